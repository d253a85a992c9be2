"""Adaptive token embedding: narrower tables for rarer words."""

import keras
import tensorflow as tf

from txl_tf.layers import clusters


@keras.saving.register_keras_serializable(package="txl_tf")
class AdaptiveEmbedding(keras.layers.Layer):
    """Looks ids up, projects to the model's width and scales the result (arXiv 1809.10853).

    With `div_val` 1 there is one table, `table` [V, e], and `projection` [e, D] unless e = D;
    cut-offs are ignored. Above 1, cluster i has `table_i` [n_i, e_i], e_i = e // div_val**i, and
    `projection_i` [e_i, D]. An id outside the vocabulary is an error on a CPU; XLA clamps it.

    Shapes: ids [B, T] int32 -> [B, T, D].

    Args:
      vocab_size: V.
      d_model: D.
      d_embed: e.
      cutoffs: first ids of the clusters after the first.
      div_val: factor by which widths shrink from cluster to cluster.
      project_same_dim: whether a cluster of width D is projected as well.
      init_std: standard deviation of the tables' initializer.
      proj_init_std: standard deviation of the projections' initializer.
      scale: factor of the result; None is sqrt(D).

    Attributes:
      tables: one table per cluster, first cluster first.
      projections: the projection of each table, or None.
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
        init_std=0.02,
        proj_init_std=0.01,
        scale=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.d_embed = d_embed
        self.cutoffs = tuple(cutoffs)
        self.div_val = div_val
        self.project_same_dim = project_same_dim
        self.init_std = init_std
        self.proj_init_std = proj_init_std
        self.scale = d_model**0.5 if scale is None else scale

    def build(self, input_shape=None):
        shapes = clusters.table_shapes(self.vocab_size, self.d_embed, self.cutoffs, self.div_val)
        # Not autocast: casting the gathered rows costs less than casting a table.
        self.tables = [
            self.add_weight(shape, _normal(self.init_std), name=name, autocast=False)
            for name, shape in clusters.named("table", shapes)
        ]
        self.projections = [
            self.add_weight((width, self.d_model), _normal(self.proj_init_std), name=name)
            if self._projects(width)
            else None
            for name, (_, width) in clusters.named("projection", shapes)
        ]

    def _projects(self, width):
        return width != self.d_model or (self.div_val > 1 and self.project_same_dim)

    def call(self, ids):
        if len(self.tables) == 1:
            return self._embed(ids, 0) * self.scale
        parts = []
        last = len(self.tables) - 1
        for i, (start, end) in enumerate(clusters.bounds(self.vocab_size, self.cutoffs)):
            inside = (ids >= start) & (ids < end)
            rows = ids - start
            # Ids of other clusters need some valid row; ids of no cluster must stay invalid.
            rows = tf.maximum(rows, 0) if i > 0 else rows
            rows = tf.minimum(rows, end - start - 1) if i < last else rows
            parts.append(self._embed(rows, i, inside))
        return tf.add_n(parts) * self.scale

    def _embed(self, rows, cluster, inside=None):
        """Returns projected rows of one table, zero where not `inside`. [B, T] -> [B, T, D]."""
        table = tf.convert_to_tensor(self.tables[cluster])
        vectors = tf.cast(gather_rows(table, rows), self.compute_dtype)  # [B, T, e_i]
        if inside is not None:
            vectors = tf.where(inside[..., tf.newaxis], vectors, tf.zeros([], vectors.dtype))
        projection = self.projections[cluster]
        return vectors if projection is None else tf.einsum("bte,ed->btd", vectors, projection)

    def get_config(self):
        own = (
            "vocab_size",
            "d_model",
            "d_embed",
            "cutoffs",
            "div_val",
            "project_same_dim",
            "init_std",
            "proj_init_std",
            "scale",
        )
        return super().get_config() | {name: getattr(self, name) for name in own}


def _normal(deviation):
    """Returns a new initializer, one for each weight: it draws the same values at every call."""
    return keras.initializers.RandomNormal(stddev=deviation)


@tf.custom_gradient
def gather_rows(table, ids):
    """Gathers rows like `tf.gather`, but with a dense gradient.

    A tied table also gets a dense gradient from the softmax. TensorFlow adds a sparse one to it by
    concatenating both, as if every word had been looked up, and summing by row.

    Shapes: table [n, e], ids [...] int32 -> [..., e].
    """
    count, width = table.shape

    def gradient(upstream):
        flat = tf.reshape(upstream, [-1, width])
        return tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), count), None

    return tf.gather(table, ids), gradient
