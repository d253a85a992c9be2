r"""Imports another implementation's checkpoint into a new model_dir.

    txl-import --format=tf1 --checkpoint=DIR/model.ckpt-0 \
        --preset=wt103_large --vocab=DIR/cache.pkl --model_dir=RUN
    txl-import --format=huggingface --checkpoint=FOLDER --model_dir=RUN
    txl-import --format=xlnet --checkpoint=FOLDER --model_dir=RUN

Infers most of the architecture from the shapes of the tensors; the rest (mem_len, clamp_len and
others) comes from --config, --preset or flags, and contradictions are refused. Nothing is written
unless every tensor matches. The last line of stdout is one JSON object.
"""

import dataclasses
import json
import os
from typing import Any, NoReturn

from absl import app, flags, logging

from txl_tf.cli import config_flags, entry_point
from txl_tf.configs import choices, presets
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import hparams, vocabularies
from txl_tf.data import files
from txl_tf.progress import Progress

_FORMAT = flags.DEFINE_enum(
    "format",
    None,
    choices.IMPORT_FORMATS,
    "Implementation that wrote the checkpoint.",
    required=True,
)
_CHECKPOINT = flags.DEFINE_string(
    "checkpoint",
    None,
    "Path of the file, prefix (tf1, xlnet) or folder (tf1, huggingface, xlnet).",
    required=True,
)
_MODEL_DIR = flags.DEFINE_string("model_dir", None, "New folder to write.", required=True)
_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "JSON file with flags of the original (n_layer, mem_len, ...), at the top level or under "
    "hparams; default: config.json beside the checkpoint, if it exists.",
)
_PRESET = config_flags.define_preset(None)
_VOCAB = flags.DEFINE_string(
    "vocab", None, "Vocabulary file; without it, the model reads token ids written as numbers."
)
_VOCAB_KIND = flags.DEFINE_enum(
    "vocab_kind",
    None,
    list(vocabularies.KINDS),
    "Kind of --vocab, if the file does not determine it.",
)
_LENGTHS = {
    "mem_len": flags.DEFINE_integer("mem_len", None, "Memory slots of each layer.", lower_bound=0),
    "clamp_len": flags.DEFINE_integer("clamp_len", None, "Distances are clamped to it; -1 is off."),
    "same_length": flags.DEFINE_bool(
        "same_length", None, "All tokens see the same number of keys."
    ),
    "n_head": flags.DEFINE_integer(
        "num_heads", None, "Attention heads, if the tensors do not determine it.", lower_bound=1
    ),
}
_VERIFY_IO = flags.DEFINE_string(
    "verify_io", None, ".npz file with inputs, and outputs that the model must reproduce."
)
_TOLERANCE = flags.DEFINE_float("tolerance", 3e-5, "Maximum difference from --verify_io.")
config_flags.define_shorthands({})


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    given, sources = _given()
    tokenizer = _tokenizer()
    from txl_tf.conversion import import_checkpoint

    with Progress("import"):
        imported = import_checkpoint.import_checkpoint(
            _FORMAT.value,
            _CHECKPOINT.value,
            _MODEL_DIR.value,
            given=given,
            base=presets.preset(_PRESET.value) if _PRESET.value else None,
            adjust=config_flags.resolve,
            tokenizer=tokenizer,
            verify_io=_VERIFY_IO.value,
            tolerance=_TOLERANCE.value,
        )
    logging.info("check forward pass: %.4f nats a token", imported.nats)
    if tokenizer is None:
        logging.warning("without --vocab the model reads token ids written as numbers: 17 4 9")
    if imported.stored_flags:
        sources.insert(1, f"{', '.join(imported.stored_flags)} in the checkpoint")
    result = {"model_dir": _MODEL_DIR.value, "format": _FORMAT.value, "config_source": sources}
    numbers = dataclasses.asdict(imported)
    del numbers["stored_flags"]
    print(json.dumps(result | numbers))


def _given() -> tuple[dict[str, Any], list[str]]:
    """Returns hyperparameters that shapes do not show, and their sources; later ones win."""
    found: dict[str, Any] = {}
    sources = ["shapes"]
    kinds = hparams.FLAGS
    if _FORMAT.value == "xlnet":
        kinds = hparams.XLNET_FLAGS
        for flag in ("preset", "verify_io"):
            if flags.FLAGS[flag].present:
                raise app.UsageError(f"--{flag} must be left out: it is of a Transformer-XL")
    path = None if _CONFIG.value else _beside(_CHECKPOINT.value)
    if path:
        found |= hparams.read(path, kinds)
        sources.append(path)
    if _PRESET.value:
        base = presets.preset(_PRESET.value)
        if not isinstance(base.model, TransformerXLConfig):
            raise app.UsageError(f"--preset must be of a Transformer-XL, got {_PRESET.value}")
        preset = hparams.from_config(base.model)
        del preset["n_token"], preset["layer_norm_epsilon"]  # of the data, and of the format
        found |= preset
        sources.append(f"preset {_PRESET.value}")
    if _CONFIG.value:
        found |= hparams.read(_CONFIG.value, kinds)
        sources.append(_CONFIG.value)
    by_flag = {name: flag.value for name, flag in _LENGTHS.items() if flag.value is not None}
    sources += [f"--{_LENGTHS[name].name}" for name in by_flag]
    return found | by_flag, sources


def _beside(checkpoint: str) -> str | None:
    folder = checkpoint if files.is_folder(checkpoint) else os.path.dirname(checkpoint)
    path = os.path.join(folder, "config.json")
    return path if files.exists(path) else None


def _tokenizer() -> Any:
    if _VOCAB.value is None:
        if _VOCAB_KIND.value is not None:
            raise app.UsageError("--vocab_kind must be left out without --vocab")
        return None
    return vocabularies.read(_VOCAB.value, _VOCAB_KIND.value)


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
