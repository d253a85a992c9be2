"""Attention cores: queries, keys and values in, context out; no projections, no memory."""

from txl_tf.attention.dense import DenseAttention
from txl_tf.attention.local import LocalAttention
from txl_tf.attention.topk import TopKAttention

ATTENTION = {"dense": DenseAttention, "local": LocalAttention, "topk": TopKAttention}
