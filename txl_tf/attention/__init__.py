"""Attention cores: queries, keys and values in, context out; no projections, no memory."""

from txl_tf.attention.dense import DenseAttention

ATTENTION = {"dense": DenseAttention}
