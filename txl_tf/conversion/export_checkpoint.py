"""Export of a model_dir to another implementation's files."""

import math
import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import huggingface, original_layout, tensors, tf1, xlnet
from txl_tf.data import files, outputs
from txl_tf.models.recurrent_model import RecurrentModel
from txl_tf.models.transformer_xl import TransformerXL


class Target(Protocol):
    """Interface of modules whose format can be written."""

    def source_name(self, name: str) -> str:
        """Returns the name in the files of a parameter of the TensorFlow original."""

    def unsupported_options(self, config: TransformerXLConfig) -> list[str]:
        """Returns the options of `config` that the format cannot represent."""

    def known_differences(self, config: TransformerXLConfig) -> list[str]:
        """Returns the computations in which the other code differs for these weights."""

    def write(
        self, folder: str, values: Mapping[str, np.ndarray], config: TransformerXLConfig, step: int
    ) -> None:
        """Writes values named as in `original_layout.parameters` into an empty folder."""


class Exporter(Protocol):
    """Interface of the export to a format; `CONFIG` is the class of its models' configs."""

    CONFIG: Any

    def unsupported_options(self, config: Any, /) -> list[str]:
        """Returns the options of `config` that the format cannot represent."""

    def known_differences(self, config: Any, /) -> list[str]:
        """Returns the computations in which the other code differs for these weights."""

    def write(self, folder: str, model: Any, step: int, /) -> list[tensors.Move]:
        """Writes a model into an empty folder; returns what became of each parameter."""


class TransformerXLExporter:
    """Exporter to a format of `TARGETS`, by way of the TensorFlow original's layout."""

    CONFIG = TransformerXLConfig

    def __init__(self, target: Target) -> None:
        self._target = target
        self.known_differences = target.known_differences

    def unsupported_options(self, config: TransformerXLConfig) -> list[str]:
        return only_here(config) + self._target.unsupported_options(config)

    def write(self, folder: str, model: TransformerXL, step: int) -> list[tensors.Move]:
        self._target.write(folder, original_layout.values_of(model), model.config, step)
        return [
            (
                tuple(weight.path.partition("/")[2] for weight in parameter.weights),
                parameter.shape,
                (self._target.source_name(name),),
            )
            for name, parameter in original_layout.parameters(model).items()
        ]


TARGETS: dict[str, Target] = {"tf1": tf1, "huggingface": huggingface}
EXPORTERS: dict[str, Exporter] = {
    **{name: TransformerXLExporter(target) for name, target in TARGETS.items()},
    "xlnet": xlnet,
}
TOKENIZER = "tokenizer"  # its folder


def export_checkpoint(format_name: str, loaded: model_dirs.Loaded, output_dir: str) -> int:
    """Writes a model's weights in another implementation's format; returns their number.

    The tokenizer is written to a folder beside them.

    Raises:
      ValueError: the format cannot represent the model, or output_dir is not new.
    """
    with outputs.held("output_dir", output_dir) as output, output.filled() as draft:
        moves = _write(format_name, loaded.model, draft, loaded.step)
        tokenizer_dir = os.path.join(draft, TOKENIZER)
        files.make_folder(tokenizer_dir)
        loaded.tokenizer.save(tokenizer_dir)
    for line in tensors.summarise_mapping(moves):
        logging.info("%s", line)
    return _num_elements(moves)


def write(format_name: str, model: RecurrentModel, folder: str, step: int = 0) -> int:
    """Writes only the weights, into an empty folder; returns their number.

    Raises:
      ValueError: the format cannot represent the model.
    """
    return _num_elements(_write(format_name, model, folder, step))


def _write(format_name: str, model: RecurrentModel, folder: str, step: int) -> list[tensors.Move]:
    exporter, config = EXPORTERS[format_name], model.config
    if not isinstance(config, exporter.CONFIG):
        expected, actual = exporter.CONFIG.__name__, type(config).__name__
        raise ValueError(f"model must have a {expected} for format {format_name}, got a {actual}")
    unsupported = exporter.unsupported_options(config)
    if unsupported:
        raise ValueError(
            f"model must be representable in {format_name}, got {', '.join(unsupported)}"
        )
    for line in exporter.known_differences(config):
        logging.warning("%s: %s", format_name, line)
    return exporter.write(folder, model, step)


def _num_elements(moves: list[tensors.Move]) -> int:
    return sum(math.prod(shape) for _, shape, _ in moves)


def only_here(config: TransformerXLConfig) -> list[str]:
    """Returns options of this project that no other implementation has."""
    options = [] if config.position == "xl" else [f"position {config.position}"]
    for field in ("attention", "feed_forward"):
        options += [f"{field} {spec}" for spec in getattr(config, field) if spec != "dense"]
    return options
