"""From a model_dir to another implementation's files."""

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
    """What the module of a format has to be written in."""

    def source_name(self, name: str) -> str:
        """What a parameter of the TensorFlow original is called in the files."""

    def unsupported_options(self, config: TransformerXLConfig) -> list[str]:
        """What makes `config` impossible there."""

    def known_differences(self, config: TransformerXLConfig) -> list[str]:
        """Where the other code computes something else with these weights."""

    def write(
        self, folder: str, values: Mapping[str, np.ndarray], config: TransformerXLConfig, step: int
    ) -> None:
        """Writes values under the names of `original.parameters` into an empty folder."""


TARGETS: dict[str, Target] = {"tf1": tf1, "huggingface": huggingface}
TOKENIZER = "tokenizer"  # the folder for it


def export_checkpoint(format_name: str, loaded: model_dirs.Loaded, output_dir: str) -> int:
    """Writes the weights of a model as another implementation does; returns their number.

    The tokenizer goes into a folder of its own beside them.

    Raises:
      ValueError: the model has what the other implementation does not, or output_dir is not new.
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
    """Writes the weights alone into an empty folder; returns their number.

    Raises:
      ValueError: the model has what the other implementation does not.
    """
    target, config = TARGETS[format_name], model.config
    wrong = only_here(config) + target.unsupported_options(config)
    if wrong:
        raise ValueError(
            f"the model must be one that {format_name} can hold, got {', '.join(wrong)}"
        )
    for line in target.known_differences(config):
        logging.warning("%s: %s", format_name, line)
    values = original_layout.values_of(model)
    target.write(folder, values, config, step)
    return sum(value.size for value in values.values())


def only_here(config: TransformerXLConfig) -> list[str]:
    """Options of ours that neither implementation has."""
    wrong = [] if config.position == "xl" else [f"position {config.position}"]
    for field in ("attention", "feed_forward"):
        wrong += [f"{field} {spec}" for spec in getattr(config, field) if spec != "dense"]
    return wrong
