"""Multi-head attention with a learned vector for each distance (after arXiv 1803.02155)."""

import keras
import tensorflow as tf

from txl_tf.layers.multi_head_attention import Attention


@keras.saving.register_keras_serializable(package="txl_tf")
class LearnedRelativeAttention(Attention):
    """Scores are ((q + u) . k + q . e + b) / sqrt(K), e and b learned for each distance.

    The Shaw-style kind of the original PyTorch code (its attn_type 1), with u of its own. Its
    tables have `num_positions` rows: the last serves distance 0, the first all from
    num_positions - 1 on.

    Shapes, arguments: those of `Attention`, encodings [H, R, K + 1].
    """

    NORMS_QUERIES = True

    def _build_positions(self, size):
        num_heads, width = size
        rows = self.num_positions
        self.distance_table = self._weight("distance_table", (rows, num_heads, width))
        self.distance_bias = self.add_weight((rows, num_heads), "zeros", name="distance_bias")

    def _build_biases(self, size):
        self.content_bias = self._weight("content_bias", size)

    def encodings(self, distances):
        """Looks distances up; the bias is one more column. [R] float32 -> [H, R, K + 1]."""
        last = self.num_positions - 1
        rows = last - tf.minimum(tf.cast(distances, tf.int32), last)  # [S]
        vectors = tf.gather(tf.convert_to_tensor(self.distance_table), rows)  # [S, H, K]
        biases = tf.gather(tf.convert_to_tensor(self.distance_bias), rows)  # [S, H]
        joined = tf.concat([vectors, biases[..., tf.newaxis]], axis=-1)
        return tf.cast(tf.transpose(joined, [1, 0, 2]), self.compute_dtype)  # heads first

    def queries(self, query, content_bias, position_bias):
        del content_bias, position_bias
        ones = tf.ones_like(query[..., :1])  # what the bias is multiplied by
        return query + self.content_bias[:, tf.newaxis], tf.concat([query, ones], axis=-1)
