"""`model.json` of a SavedModel: signatures, state shapes and config."""

import dataclasses
import math
import os
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from txl_tf.configs.run import Config
from txl_tf.data import files
from txl_tf.data.tokenizers import Tokenizer
from txl_tf.export import state_tensors

FILE_NAME = "model.json"
FORMAT = 1
_HIDDEN_SIGNATURES = ("__saved_model_init_op",)  # TensorFlow's own


def describe(
    folder: str, layout: state_tensors.Wire, tokenizer: Tokenizer, config: Config, model
) -> dict[str, Any]:
    """Returns the description of the SavedModel in `folder`.

    Args:
      folder: of the SavedModel.
      layout: of the state tensors.
      tokenizer: of the model.
      config: of the run; its model section is replaced by that of `model`.
      model: the exported TransformerXL.
    """
    config = dataclasses.replace(config, model=model.config)
    state = {name: tensor(spec) for name, spec in layout.specs.items()}
    return {
        "format": FORMAT,
        "vocab_size": model.config.vocab_size,
        "tokenizer": {
            "kind": tokenizer.kind,
            "options": tokenizer.options,
            "checksum": tokenizer.checksum,
        },
        "compute_dtype": model.compute_dtype,
        "state": state,
        "state_bytes_per_row": sum(_bytes(spec) for spec in layout.specs.values()),
        "signatures": _signatures(folder),
        "config": dataclasses.asdict(config),
    }


def tensor(spec: tf.TensorSpec) -> dict[str, Any]:
    """Returns the shape, with -1 for unknown sizes, and the dtype."""
    shape = [-1 if size is None else size for size in spec.shape]
    return {"shape": shape, "dtype": spec.dtype.name}


def _bytes(spec: tf.TensorSpec) -> int:
    return math.prod(spec.shape[1:]) * spec.dtype.size


def _signatures(folder: str) -> dict[str, Any]:
    """Returns the graph's tensor names by signature, for sessions."""
    data = files.read_bytes(os.path.join(folder, "saved_model.pb"))
    (graph,) = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    return {
        name: {"inputs": _tensors(signature.inputs), "outputs": _tensors(signature.outputs)}
        for name, signature in sorted(graph.signature_def.items())
        if name not in _HIDDEN_SIGNATURES
    }


def _tensors(infos) -> dict[str, Any]:
    return {key: {"tensor": info.name} | _info(info) for key, info in sorted(infos.items())}


def _info(info) -> dict[str, Any]:
    shape = None  # any rank
    if not info.tensor_shape.unknown_rank:
        shape = [axis.size for axis in info.tensor_shape.dim]
    return {"shape": shape, "dtype": tf.dtypes.as_dtype(info.dtype).name}
