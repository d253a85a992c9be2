"""Golden files of XLNet: arrays, a model with their weights, and memories.

The arrays come from where tests/golden/collect_variants.py says; a memory there has no empty slots.
"""

import json

import numpy as np
import tensorflow as tf

import helpers
from txl_tf.configs.model import XLNetConfig
from txl_tf.models.memory import Memory
from txl_tf.models.xlnet import XLNet

_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh"}


def load(case):
    """Its arrays, and its hyperparameters."""
    data = dict(np.load(helpers.GOLDEN / f"{case}.npz").items())
    return data, json.loads(str(data.pop("hparams")))


def make(data, hparams, filled=0, backward=False):
    """The case's model, for a memory with `filled` slots, which the original's same_length counts.

    The reference reads half of some batches backward, with distances of the opposite sign: the
    same as position kernels whose rows for sines, the first half, have the opposite sign.
    """
    config = XLNetConfig(
        vocab_size=hparams["vocab"],
        num_layers=hparams["num_layers"],
        d_model=hparams["d"],
        num_heads=hparams["H"],
        head_dim=hparams["D"],
        d_inner=hparams["F"],
        dropout=0.0,
        feed_forward=(f"dense(activation='{_ACTIVATIONS[hparams['ff_activation']]}')",),
        layer_norm_epsilon=hparams["layer_norm_eps"],
        clamp_len=None if hparams["clamp_len"] < 0 else hparams["clamp_len"],
        mem_len=hparams["mem_len"],
        reuse_len=hparams["reuse_len"],
        bidirectional=hparams["attn_type"] == "bi",
        attention_span=filled + 1 if hparams["same_length"] else None,
    )
    model = XLNet(config)
    model.embedding.tables[0].assign(data["w.word_embedding.weight"])
    model.query_embedding.tables[0].assign(data["w.mask_emb"][0])
    model.softmax.biases[0].assign(data["w.lm_loss.bias"])
    sign = np.ones([hparams["d"], 1, 1], "float32")
    sign[: hparams["d"] // 2] = -1 if backward else 1
    for index, block in enumerate(model.blocks):
        w = {
            name.partition(f"layer.{index}.")[2]: value
            for name, value in data.items()
            if name.startswith(f"w.layer.{index}.")
        }
        attention, net = block.attention, block.feed_forward
        for weight, value in (
            (attention.query_kernel, w["rel_attn.q"]),
            (attention.key_kernel, w["rel_attn.k"]),
            (attention.value_kernel, w["rel_attn.v"]),
            (attention.position_kernel, sign * w["rel_attn.r"]),
            (attention.output_kernel, w["rel_attn.o"].transpose(1, 2, 0)),
            (attention.content_bias, w["rel_attn.r_w_bias"]),
            (attention.position_bias, w["rel_attn.r_r_bias"]),
            (attention.segment_bias, w["rel_attn.r_s_bias"]),
            (attention.segment_embedding, w["rel_attn.seg_embed"]),
            (block.attention_norm.gamma, w["rel_attn.layer_norm.weight"]),
            (block.attention_norm.beta, w["rel_attn.layer_norm.bias"]),
            (net.inner_kernel, w["ff.layer_1.kernel"]),
            (net.inner_bias, w["ff.layer_1.bias"]),
            (net.outer_kernel, w["ff.layer_2.kernel"]),
            (net.outer_bias, w["ff.layer_2.bias"]),
            (block.feed_forward_norm.gamma, w["ff.layer_norm.weight"]),
            (block.feed_forward_norm.beta, w["ff.layer_norm.bias"]),
        ):
            weight.assign(value)
    return model


def memory_of(mems, slots):
    """A memory of these slots from the reference's [L, M, B, D]; None is an empty one."""
    if mems is None:
        return None
    states = tuple(tf.constant(state.transpose(1, 0, 2)) for state in mems)
    return Memory(
        tuple(tf.pad(s, [[0, 0], [slots - s.shape[1], 0], [0, 0]]) for s in states),
        tf.fill([states[0].shape[0]], states[0].shape[1]),
    )
