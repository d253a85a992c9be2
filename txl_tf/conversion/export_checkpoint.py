"""Export of a model_dir to another implementation's files."""

import os
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import huggingface, original_layout, tensors, tf1
from txl_tf.data import files, outputs
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


TARGETS: dict[str, Target] = {"tf1": tf1, "huggingface": huggingface}
TOKENIZER = "tokenizer"  # its folder


def export_checkpoint(format_name: str, loaded: model_dirs.Loaded, output_dir: str) -> int:
    """Writes a model's weights in another implementation's format; returns their number.

    The tokenizer is written to a folder beside them.

    Raises:
      ValueError: the format cannot represent the model, or output_dir is not new.
    """
    with outputs.held("output_dir", output_dir) as output, output.filled() as draft:
        elements = write(format_name, loaded.model, draft, loaded.step)
        tokenizer_dir = os.path.join(draft, TOKENIZER)
        files.make_folder(tokenizer_dir)
        loaded.tokenizer.save(tokenizer_dir)
    moves = [
        (
            tuple(weight.path.partition("/")[2] for weight in parameter.weights),
            parameter.shape,
            (TARGETS[format_name].source_name(name),),
        )
        for name, parameter in original_layout.parameters(loaded.model).items()
    ]
    for line in tensors.summarise_mapping(moves):
        logging.info("%s", line)
    return elements


def write(format_name: str, model: TransformerXL, folder: str, step: int = 0) -> int:
    """Writes only the weights, into an empty folder; returns their number.

    Raises:
      ValueError: the format cannot represent the model.
    """
    target, config = TARGETS[format_name], model.config
    unsupported = only_here(config) + target.unsupported_options(config)
    if unsupported:
        raise ValueError(
            f"model must be representable in {format_name}, got {', '.join(unsupported)}"
        )
    for line in target.known_differences(config):
        logging.warning("%s: %s", format_name, line)
    values = original_layout.values_of(model)
    target.write(folder, values, config, step)
    return sum(value.size for value in values.values())


def only_here(config: TransformerXLConfig) -> list[str]:
    """Returns options of this project that no other implementation has."""
    options = [] if config.position == "xl" else [f"position {config.position}"]
    for field in ("attention", "feed_forward"):
        options += [f"{field} {spec}" for spec in getattr(config, field) if spec != "dense"]
    return options
