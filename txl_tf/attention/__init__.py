"""Attention cores: queries, keys and values in, context out; no projections, no memory."""

from txl_tf.attention.base import AttentionCore
from txl_tf.attention.big_bird import BigBirdAttention
from txl_tf.attention.dense import DenseAttention
from txl_tf.attention.linformer import LinformerAttention
from txl_tf.attention.local import LocalAttention
from txl_tf.attention.longformer import LongformerAttention
from txl_tf.attention.routing import RoutingAttention
from txl_tf.attention.top_k import TopKAttention
from txl_tf.configs.layer_specs import LayerSpec

ATTENTION = {
    "dense": DenseAttention,
    "topk": TopKAttention,
    "local": LocalAttention,
    "longformer": LongformerAttention,
    "bigbird": BigBirdAttention,
    "linformer": LinformerAttention,
    "routing": RoutingAttention,
}


def make_core(spec: LayerSpec, **kwargs) -> AttentionCore:
    """Returns the attention core of a spec; `kwargs` are those of `AttentionCore`."""
    return ATTENTION[spec.name](spec, **kwargs)
