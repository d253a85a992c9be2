"""Token embedding, with narrower tables for rarer words."""

import keras
import tensorflow as tf

from txl_tf.layers import clusters


@keras.saving.register_keras_serializable(package="txl_tf")
class AdaptiveEmbedding(keras.layers.Layer):
    """Looks ids up, projects to the model's width and scales by sqrt(D) (arXiv 1809.10853).

    With `div_val` 1 there is one table, `table` [V, e], and `projection` [e, D] where e is not D;
    cut-offs play no part. Above 1, cluster i has `table_i` [n_i, e_i], e_i = e // div_val**i, and
    `projection_i` [e_i, D]. An id outside the vocabulary is an error on a CPU; XLA clamps it.

    Shapes: ids [B, T] int32 -> [B, T, D].

    Args:
      vocab_size: V.
      d_model: D.
      d_embed: e.
      cutoffs: first ids of the clusters after the first.
      div_val: what widths are divided by from cluster to cluster.
      project_same_dim: whether a cluster as wide as D is projected all the same.
      init_std: deviation of the tables' initialiser.
      proj_init_std: deviation of the projections' initialiser.

    Attributes:
      tables: the tables, first cluster first.
      projections: for each table its projection, or None.
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

    def build(self, input_shape=None):
        shapes = clusters.table_shapes(self.vocab_size, self.d_embed, self.cutoffs, self.div_val)
        # Not autocast: casting the rows found costs less than casting a table.
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
            return self._embed(ids, 0) * self.d_model**0.5
        parts = []
        last = len(self.tables) - 1
        for i, (start, end) in enumerate(clusters.bounds(self.vocab_size, self.cutoffs)):
            mine = (ids >= start) & (ids < end)
            places = ids - start
            # Others' ids need some valid place; ids of no cluster must stay invalid.
            places = tf.maximum(places, 0) if i > 0 else places
            places = tf.minimum(places, end - start - 1) if i < last else places
            parts.append(self._embed(places, i, mine))
        return tf.add_n(parts) * self.d_model**0.5

    def _embed(self, places, cluster, mine=None):
        """Projected rows of one table, zero where not `mine`. [B, T] -> [B, T, D]."""
        table = tf.convert_to_tensor(self.tables[cluster])
        rows = tf.cast(rows_of(table, places), self.compute_dtype)  # [B, T, e_i]
        if mine is not None:
            rows = tf.where(mine[..., tf.newaxis], rows, tf.zeros([], rows.dtype))
        projection = self.projections[cluster]
        return rows if projection is None else tf.einsum("bte,ed->btd", rows, projection)

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
        )
        return super().get_config() | {name: getattr(self, name) for name in own}


def _normal(deviation):
    """A new one for each weight: one initialiser draws the same numbers every time."""
    return keras.initializers.RandomNormal(stddev=deviation)


@tf.custom_gradient
def rows_of(table, ids):
    """`tf.gather` with a dense gradient.

    A tied table gets a dense gradient from the softmax as well. A sparse one beside it would make
    TensorFlow concatenate both, as if every word had been looked up, and sum by row afterwards.

    Shapes: table [n, e], ids [...] int32 -> [..., e].
    """
    count, width = table.shape

    def gradient(upstream):
        flat = tf.reshape(upstream, [-1, width])
        return tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), count), None

    return tf.gather(table, ids), gradient
