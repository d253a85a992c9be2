"""Adaptive softmax: losses of targets, or scores of all words, from hidden states."""

import keras
import tensorflow as tf

from txl_tf.layers import clusters
from txl_tf.ops import cross_entropy
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class AdaptiveSoftmax(keras.layers.Layer):
    """Softmax over a vocabulary split into clusters (arXiv 1609.04309), or over all of it.

    The head scores the words of cluster 0 and, in further columns, each tail cluster; the
    probability of a tail word is that of its cluster times its own within the cluster. Without
    cut-offs the head is everything. Logits of cluster i are
    (hidden . projection_i^T) . table_i^T + bias_i.

    The embedding's tables and projections are arguments of every call; the layer owns the rest:
      bias, or bias_i: [n_i].
      cluster_weight, cluster_bias: [C, e], [C], with C tail clusters.
      projection_i: [e_i, D] if not tied, unless e_i = D and (div_val = 1 or not
        project_same_dim), which needs none. Without cut-offs its name is projection.
      table, or table_i: the embedding's shapes, if `tie_embeddings` is False.

    Shapes:
      hidden: [B, T, D].
      embedding_tables, embedding_projections: as in `AdaptiveEmbedding`.
      targets: [B, T] int32, -1 is ignored.
      returns [B, T, V] float32: logits, or with cut-offs log-probabilities; with targets
        [B, T] float32, their losses in nats, 0 where ignored.

    Args:
      vocab_size, d_model, d_embed, cutoffs, div_val, project_same_dim: as in `AdaptiveEmbedding`.
      tie_embeddings: whether to use the embedding's tables.
      tie_projections: for each cluster, whether to use its embedding projection; the last repeats.
      tie_output_projection: the same without cut-offs; always true in the TensorFlow original.
      init_std: standard deviation of the tables' initializer.
      proj_init_std: standard deviation of the projections' initializer.
    """

    def __init__(
        self,
        *,
        vocab_size,
        d_model,
        d_embed,
        cutoffs=(),
        div_val=1,
        project_same_dim=True,
        tie_embeddings=True,
        tie_projections=(False,),
        tie_output_projection=True,
        init_std=0.02,
        proj_init_std=0.01,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.d_embed = d_embed
        self.cutoffs = tuple(cutoffs)
        self.div_val = div_val
        self.project_same_dim = project_same_dim
        self.tie_embeddings = tie_embeddings
        self.tie_projections = tuple(tie_projections)
        self.tie_output_projection = tie_output_projection
        self.init_std = init_std
        self.proj_init_std = proj_init_std
        self.bounds = clusters.bounds(vocab_size, self.cutoffs)
        self.sizes = [end - start for start, end in self.bounds]

    def build(self, input_shape=None):
        # Tables and biases are not autocast: gradients and logits are summed in float32.
        shapes = clusters.table_shapes(self.vocab_size, self.d_embed, self.cutoffs, self.div_val)
        self.tables = [
            self.add_weight(shape, _normal(self.init_std), name=name, autocast=False)
            for name, shape in clusters.named("table", shapes)
            if not self.tie_embeddings
        ]
        self.projections = [
            self.add_weight((width, self.d_model), _normal(self.proj_init_std), name=name)
            if self._owns_projection(i, width)
            else None
            for i, (name, width) in enumerate(clusters.named("projection", self._widths()))
        ]
        self.biases = [
            self.add_weight((size,), "zeros", name=name, autocast=False)
            for name, size in clusters.named("bias", self.sizes)
        ]
        if self.cutoffs:
            shape = (len(self.cutoffs), self.d_embed)
            self.cluster_weight = self.add_weight(shape, "zeros", name="cluster_weight")
            self.cluster_bias = self.add_weight(
                shape[:1], "zeros", name="cluster_bias", autocast=False
            )

    def _widths(self):
        return [self.d_embed // self.div_val**i for i in range(len(self.sizes))]

    def ties_projection(self, cluster):
        """Returns whether `cluster` uses the embedding's projection."""
        if not self.cutoffs:
            return self.tie_output_projection
        last = len(self.tie_projections) - 1
        return self.tie_projections[min(cluster, last)]

    def _owns_projection(self, cluster, width):
        needless = width == self.d_model and (self.div_val == 1 or not self.project_same_dim)
        return not (self.ties_projection(cluster) or needless)

    def call(self, hidden, embedding_tables, embedding_projections, targets=None):
        rows, segment, _ = shape_of(hidden)
        tables = embedding_tables if self.tie_embeddings else self.tables
        tables = [tf.convert_to_tensor(table) for table in tables]
        projected = self._project(tf.reshape(hidden, [-1, self.d_model]), embedding_projections)
        if targets is None:
            return tf.reshape(self._scores(projected, tables), [rows, segment, self.vocab_size])
        nats = self._nats(projected, self._by_cluster(tables), tf.reshape(targets, [-1]))
        return tf.reshape(nats, [rows, segment])

    def _project(self, hidden, embedding_projections):
        """Projects hidden states for each cluster's table. [N, D] -> a list of [N, e_i]."""
        projected = {None: hidden}  # a projection shared by several clusters is applied once
        keys = []
        for i, own in enumerate(self.projections):
            shared = embedding_projections[min(i, len(embedding_projections) - 1)]
            projection = shared if self.ties_projection(i) else own
            key = None if projection is None else id(projection)
            if key not in projected:
                projected[key] = tf.matmul(hidden, projection, transpose_b=True)
            keys.append(key)
        return [projected[key] for key in keys]

    def _by_cluster(self, tables):
        """Returns one table a cluster, splitting a single table."""
        return tables if len(tables) == len(self.sizes) else tf.split(tables[0], self.sizes)

    def _scores(self, projected, tables):
        """Returns logits or log-probabilities, [N, V] float32."""
        words = self._word_logits(projected, tables)
        if not self.cutoffs:
            return words[0]
        head = tf.nn.log_softmax(self._head_logits(words[0], projected[0]))  # [N, n_0 + C]
        parts = [head[:, : self.sizes[0]]]
        for column, logits in enumerate(words[1:], self.sizes[0]):
            parts.append(head[:, column : column + 1] + tf.nn.log_softmax(logits))
        return tf.concat(parts, axis=-1)

    def _word_logits(self, projected, tables):
        """Returns the logits of each cluster's words within it, a list of [N, n_i] float32."""
        if len(tables) < len(self.sizes) and all(rows is projected[0] for rows in projected):
            logits = cross_entropy.linear(projected[0], tables[0], tf.concat(self.biases, axis=0))
            return tf.split(logits, self.sizes, axis=-1)  # cheaper than splitting the table
        parts = zip(projected, self._by_cluster(tables), self.biases, strict=True)
        return [cross_entropy.linear(*part) for part in parts]

    def _head_logits(self, words, projected):
        """Returns the logits of cluster 0's words and the tail clusters, [N, n_0 + C] float32."""
        tails = cross_entropy.linear(projected, self.cluster_weight, self.cluster_bias)
        return tf.concat([words, tails], axis=-1)

    def _nats(self, projected, tables, targets):
        """Returns the losses of targets [N], scoring only words of their own tail clusters."""
        head = cross_entropy.linear(projected[0], tables[0], self.biases[0])
        if not self.cutoffs:
            return cross_entropy.cross_entropy(head, targets)
        cluster = tf.add_n([tf.cast(targets >= cutoff, tf.int32) for cutoff in self.cutoffs])
        labels = tf.where(cluster == 0, targets, self.sizes[0] + cluster - 1)
        nats = cross_entropy.cross_entropy(self._head_logits(head, projected[0]), labels)
        for i, (start, _) in enumerate(self.bounds[1:], 1):
            inside = tf.where(cluster == i, targets - start, -1)
            nats += cross_entropy.cluster_cross_entropy(
                projected[i], tables[i], self.biases[i], inside
            )
        return nats

    def get_config(self):
        own = (
            "vocab_size",
            "d_model",
            "d_embed",
            "cutoffs",
            "div_val",
            "project_same_dim",
            "tie_embeddings",
            "tie_projections",
            "tie_output_projection",
            "init_std",
            "proj_init_std",
        )
        return super().get_config() | {name: getattr(self, name) for name in own}


def _normal(deviation):
    """Returns a new initializer, one for each weight: it draws the same values at every call."""
    return keras.initializers.RandomNormal(stddev=deviation)
