"""Attention restricted to the k highest scores of each query."""

import keras

from txl_tf.attention.dense import DenseAttention
from txl_tf.ops import top_k


@keras.saving.register_keras_serializable(package="txl_tf")
class TopKAttention(DenseAttention):
    """Explicit Sparse Transformer (arXiv 1912.11637): each query keeps its k highest scores.

    Full scores, with positions and mask, are compared in float32; ties with the k-th stay. All
    scores are computed, so the cost is that of dense attention plus the top-k selection; cheaper is
    top-k within a window, `local(window=..., k=...)`.

    Options: those of `configs.layer_specs.TopK`.
    """

    def select(self, scores):
        return top_k.mask_below_top_k(scores, self.spec.k)
