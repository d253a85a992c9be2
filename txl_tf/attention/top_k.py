"""Attention to the best matches alone."""

import keras

from txl_tf.attention.dense import DenseAttention
from txl_tf.ops import top_k


@keras.saving.register_keras_serializable(package="txl_tf")
class TopKAttention(DenseAttention):
    """Explicit Sparse Transformer (arXiv 1912.11637): each query keeps its k highest scores.

    Scores are whole, positions and mask included, and compared in float32; those tied with the k-th
    stay. All of them have to be computed, so that it costs what dense attention does, and sorting:
    for less, choose within a window, `local(window=..., k=...)`.

    Options: those of `configs.layer_specs.TopK`.
    """

    def select(self, scores):
        return top_k.mask_below_top_k(scores, self.spec.k)
