"""Checkpoints of the original TensorFlow code (V1 or V2 files)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.config import TransformerXLConfig
from txl_tf.importers import original

_SCOPE = "transformer/"
_SLOTS = ("/Adam", "/Adam_1")  # of the optimizer


def config_from_hparams(hparams: Mapping[str, Any]) -> TransformerXLConfig:
    """The architecture that the original builds from its flags, by the names it gives them.

    Its LayerNorm has epsilon 1e-12, its initial memory is of zeros that take attention mass, and
    its `same_length` lets a query see mem_len + 1 keys.
    """
    tied = hparams["tie_projs"]
    clamp_len = hparams["clamp_len"]
    return TransformerXLConfig(
        vocab_size=hparams["n_token"],
        num_layers=hparams["n_layer"],
        d_model=hparams["d_model"],
        num_heads=hparams["n_head"],
        head_dim=hparams["d_head"],
        d_inner=hparams["d_inner"],
        mem_len=hparams["mem_len"],
        d_embed=hparams["d_embed"],
        cutoffs=tuple(hparams["cutoffs"]),
        div_val=hparams["div_val"],
        untie_biases=hparams["untie_r"],
        tie_projections=tuple(tied),
        project_same_dim=hparams["proj_same_dim"],
        dropout=hparams["dropout"],
        attention_dropout=hparams["dropatt"],
        clamp_len=clamp_len if clamp_len > 0 else None,
        layer_norm_epsilon=1e-12,
        attention_span=hparams["mem_len"] + 1 if hparams["same_length"] else None,
        attend_to_initial_zeros=True,
    )


def read_parameters(checkpoint: str) -> dict[str, np.ndarray]:
    """The model's parameters in a checkpoint, without the optimizer's, under the original's names.

    Args:
      checkpoint: the prefix of its files, such as ".../model.ckpt-0".

    Raises:
      ValueError: there is no such checkpoint, or it holds no Transformer-XL.
    """
    try:
        reader = tf.train.load_checkpoint(checkpoint)
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"checkpoint must be readable, got {checkpoint}: {error}") from error
    found = {
        name.removeprefix(_SCOPE): reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name.startswith(_SCOPE) and not name.endswith(_SLOTS)
    }
    if not found:
        raise ValueError(f"checkpoint must hold variables under {_SCOPE}, got none in {checkpoint}")
    return found


def load_weights(model, checkpoint: str) -> int:
    """Assigns a checkpoint to `model`; returns the number of elements. See `original.assign`."""
    return original.assign(model, read_parameters(checkpoint))
