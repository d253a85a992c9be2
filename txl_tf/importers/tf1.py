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
    return original.config_from_hparams(
        hparams,
        span=hparams["mem_len"] + 1,
        untie_biases=hparams["untie_r"],
        project_same_dim=hparams["proj_same_dim"],
        layer_norm_epsilon=1e-12,
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
