"""Multi-head attention with relative positions (arXiv 1901.02860, section 3.3)."""

import keras
import tensorflow as tf

from txl_tf.layers.multi_head_attention import Attention


@keras.saving.register_keras_serializable(package="txl_tf")
class RelativeAttention(Attention):
    """The paper's: scores are ((q + u) . k + (q + v) . r) / sqrt(K), r a projected sinusoid.

    Shapes, arguments: those of `Attention`; content_bias is u, position_bias is v.
    """

    NORMS_QUERIES = True

    def _build_positions(self, size):
        self.position_kernel = self._weight("position_kernel", (self.d_model, *size))

    def _build_biases(self, size):
        if self.own_biases:
            self.content_bias = self._weight("content_bias", size)
            self.position_bias = self._weight("position_bias", size)

    def encodings(self, distances):
        """Projects sinusoids of distances. [R, D] -> [H, R, K]."""
        kernel = tf.cast(self.position_kernel, distances.dtype)
        return tf.einsum("sd,dhk->hsk", distances, kernel)

    def queries(self, query, content_bias, position_bias):
        if self.own_biases:
            content_bias, position_bias = self.content_bias, self.position_bias
        return query + content_bias[:, tf.newaxis], query + position_bias[:, tf.newaxis]
