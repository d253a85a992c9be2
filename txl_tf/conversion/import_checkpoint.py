"""Import of another implementation's checkpoint into a model_dir, complete or not at all."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.conversion import (
    original_layout,
    shape_checks,
    shape_inference,
    tensors,
    verification,
    xlnet,
)
from txl_tf.conversion.formats import FORMATS, Format
from txl_tf.data import outputs, tokenizers, vocabulary
from txl_tf.models.transformer_xl import TransformerXL


@dataclasses.dataclass(frozen=True)
class Imported:
    """Result of an import.

    Attributes:
      parameters: number of elements assigned.
      step: number of optimizer steps of the weights.
      stored_flags: names of the flags in the checkpoint itself.
      nats: loss of an arbitrary short text; only shows that it is finite.
      differences: largest difference to each kind of output in `verify_io`.
    """

    parameters: int
    step: int
    stored_flags: tuple[str, ...]
    nats: float
    differences: dict[str, float]


def import_checkpoint(
    format_name: str,
    checkpoint: str,
    model_dir: str,
    *,
    given: Mapping[str, Any],
    base: Config | None = None,
    adjust: Callable[[Config], Config] = lambda config: config,
    tokenizer: tokenizers.Tokenizer | None = None,
    verify_io: str | None = None,
    tolerance: float = 3e-5,
) -> Imported:
    """Writes a model_dir with the weights of a checkpoint.

    Args:
      format_name: a name in IMPORTERS.
      checkpoint: the files, as that format's `read` takes them.
      model_dir: a new or empty folder.
      given: flags of the original that shapes do not determine; others must agree with the shapes.
      base: config for the settings of data, training and evaluation.
      adjust: applies final changes to the config.
      tokenizer: of the training text; None is a tokenizer of ids written as numbers.
      verify_io: an .npz file of reference outputs; see `verification.compare`.
      tolerance: of the reference outputs.

    Raises:
      ValueError: something does not fit; names it. Nothing is written.
    """
    with outputs.held("model_dir", model_dir) as output:
        importer = IMPORTERS[format_name]
        source = importer.read(checkpoint)
        logging.info("%s: %d tensors, step %d", checkpoint, len(source.tensors), source.step)
        tensors.check_numbers(source.tensors)
        config = adjust(importer.config(source, given, base))
        tokenizer = tokenizer or numbers(config.model.vocab_size)
        _check_vocabulary(config, tokenizer)
        model = model_dirs.make_model(config)
        total = importer.assign(source, given, model)
        nats = verification.smoke(model)
        differences = verification.compare(model, verify_io) if verify_io else {}
        verification.check(differences, tolerance)
        with output.filled() as draft:
            model_dirs.describe(draft, config, tokenizer)
            model_dirs.save_weights(draft, model, source.step)
    return Imported(total, source.step, tuple(sorted(source.hparams)), nats, differences)


def _check_vocabulary(config: Config, tokenizer: tokenizers.Tokenizer) -> None:
    if tokenizer.vocab_size != config.model.vocab_size:
        raise ValueError(
            f"vocab must have {config.model.vocab_size} symbols, one per row of the embedding, "
            f"got {tokenizer.vocab_size}"
        )


def numbers(vocab_size: int) -> tokenizers.Tokenizer:
    """Returns a stand-in for an unknown vocabulary: text of token ids, as in "17 4 9"."""
    return tokenizers.WordTokenizer(
        vocabulary=vocabulary.Vocabulary(map(str, range(vocab_size))),
        end_of_line="none",
        unknown="error",
    )


class Importer(Protocol):
    """Interface of the import of a format."""

    def read(self, checkpoint: str) -> tensors.Source:
        """Reads the files, as NumPy arrays."""

    def config(
        self, source: tensors.Source, given: Mapping[str, Any], base: Config | None, /
    ) -> Config:
        """Returns the config, with the settings of `base` besides the model."""

    def assign(self, source: tensors.Source, given: Mapping[str, Any], model: Any, /) -> int:
        """Assigns all weights and logs their mapping; returns the number of elements."""


class TransformerXLImporter:
    """Importer of a format of `FORMATS`, by way of the TensorFlow original's layout."""

    def __init__(self, source_format: Format) -> None:
        self._format = source_format

    def read(self, checkpoint: str) -> tensors.Source:
        return self._format.read(checkpoint)

    def config(
        self, source: tensors.Source, given: Mapping[str, Any], base: Config | None
    ) -> Config:
        return _config(self._format, source, given, base)

    def assign(self, source: tensors.Source, given: Mapping[str, Any], model: Any) -> int:
        return _assign(self._format, source, given, model)


IMPORTERS: dict[str, Importer] = {
    **{name: TransformerXLImporter(source_format) for name, source_format in FORMATS.items()},
    "xlnet": xlnet,
}


def _config(
    source_format: Format, source: tensors.Source, given: Mapping[str, Any], base: Config | None
) -> Config:
    given = {**source.hparams, **given}
    renamed = source_format.renamed(source.tensors, given)
    shapes = {name: tensor.value.shape for name, tensor in renamed.items()}
    shape_checks.check(shapes, given, _labels(source_format, renamed))
    flags = shape_inference.hparams(shapes, given)
    model = source_format.config_from_hparams(flags)
    deviations = {n: flags[n] for n in ("init_std", "proj_init_std") if n in flags}
    model = dataclasses.replace(model, **deviations)
    if base is None:
        train = {"segment_len": flags["tgt_len"]} if "tgt_len" in flags else {}
        return Config(model=model, train=TrainConfig(**train))
    return dataclasses.replace(base, model=model)


def _labels(source_format: Format, renamed: Mapping[str, tensors.Tensor]) -> Callable[[str], str]:
    """Returns a function of a parameter's name for messages: in the checkpoint, and original."""

    def label(name: str) -> str:
        sources = (
            renamed[name].sources[:2] if name in renamed else (source_format.source_name(name),)
        )
        theirs = " + ".join(sources)
        return theirs if theirs.endswith(name) else f"{theirs} ({name})"

    return label


def _assign(
    source_format: Format, source: tensors.Source, given: Mapping[str, Any], model: TransformerXL
) -> int:
    """Assigns all weights and logs their mapping; returns the number of elements, checked twice."""
    renamed = source_format.renamed(source.tensors, {**source.hparams, **given})
    label = _labels(source_format, renamed)
    total = original_layout.assign(model, {name: t.value for name, t in renamed.items()}, label)
    parameters = original_layout.parameters(model)
    moves = [
        (
            tensor.sources,
            source.tensors[tensor.sources[0]].shape,
            tuple(weight.path.partition("/")[2] for weight in parameters[name].weights),
        )
        for name, tensor in renamed.items()
    ]
    for line in tensors.summarise_mapping(moves):
        logging.info("%s", line)
    used = {name for tensor in renamed.values() for name in tensor.sources}
    rest = sorted({re.sub(r"\d+", "*", name) for name in source.tensors.keys() - used})
    if rest:
        logging.info("skipped as aliases, identities or constants: %s", ", ".join(rest))
    in_checkpoint = sum(source.tensors[name].size for name in used)
    in_model = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    if not in_checkpoint == total == in_model:
        raise ValueError(
            f"number of elements must be {total}, as assigned, got {in_checkpoint} in the "
            f"checkpoint and {in_model} in the model"
        )
    return total
