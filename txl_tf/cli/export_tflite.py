r"""Converts a model for devices to a .tflite file, with its tokenizer in a folder beside it.

    txl-export-tflite --model_dir=RUN --output=NAME.tflite --quantize=dynamic \
        --data_dir=DATA --split=test

Writes NAME.tflite (signatures step and score with static shapes, built-in operators only) and
NAME.assets (tokenizer, model.json). Compares the result with the model on text, and calibrates
--quantize=int8 on other text: the train split of --data_dir, or the first half of --text. Without
either, it compares on Python's documentation, if the vocabulary covers it; int8 needs one of them.
See docs/edge.md. The last line of stdout is one JSON object.
"""

import dataclasses
import json
from typing import TYPE_CHECKING, NoReturn

from absl import app, flags, logging

from txl_tf.cli import entry_point, model_flags
from txl_tf.configs import choices
from txl_tf.data import builtin_corpus, metadata, outputs, text
from txl_tf.progress import Progress

if TYPE_CHECKING:
    from txl_tf.export.edge.agreement import Agreement
    from txl_tf.export.edge.calibration import Sample
    from txl_tf.model_dir import Loaded

_OUTPUT = flags.DEFINE_string("output", None, "File to write, NAME.tflite.", required=True)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 1, "Rows of a call, fixed in the file.", lower_bound=1
)
_QUANTIZE = flags.DEFINE_enum(
    "quantize",
    "none",
    choices.QUANTIZATIONS,
    "Quantization of the weights; int8 also of activations.",
)
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Prepared data, the output of prepare_data.")
_SPLIT = flags.DEFINE_string("split", "valid", "Split of --data_dir to compare on.")
_TEXT = flags.DEFINE_string("text", None, "Text file to use instead of --data_dir.")
_COMPARED = flags.DEFINE_integer(
    "compared_tokens", 8192, "Maximum number of tokens to compare.", lower_bound=1
)
model_flags.define({"segment_len": "eval.segment_len"})


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    model_flags.refuse("devices compute in float32", "precision")
    model_flags.refuse("the state on a device is keys and values", "state")
    _check_text_flags()
    from txl_tf.export.edge import tflite

    outputs.checked("output", _OUTPUT.value, tflite.check_new, any_name=True)
    entry_point.log_devices()
    loaded = model_flags.load()
    segment_len = model_flags.segment_len(loaded.config)
    calibration, held_out = _samples(loaded, segment_len)
    # The converter's output is held back, and so would be lines about its progress.
    logging.info("converting: segment_len=%d quantize=%s", segment_len, _QUANTIZE.value)
    with Progress("compare", "tokens") as progress:
        report = tflite.export_tflite(
            loaded.model,
            loaded.tokenizer,
            loaded.config,
            _OUTPUT.value,
            segment_len=segment_len,
            batch_size=_BATCH_SIZE.value,
            quantize=_QUANTIZE.value,
            calibration=calibration,
            held_out=held_out,
            progress=lambda done, tokens: progress.reach(done, done / tokens),
        )
    logging.info("bytes=%d %s", report.bytes, report.path)
    logging.info("ops: %s", ", ".join(f"{name} {n}" for name, n in report.ops.items()))
    if report.agreement is not None:
        _log(report.agreement)
    print(json.dumps(report.to_dict() | {"step": loaded.step}))


def _check_text_flags() -> None:
    if _TEXT.value is not None and _DATA_DIR.value is not None:
        raise app.UsageError("--text and --data_dir must not both be given")
    if _DATA_DIR.value is None:
        model_flags.refuse("it needs --data_dir", "split")
        if _QUANTIZE.value == "int8" and _TEXT.value is None:
            raise app.UsageError("--quantize=int8 needs text for calibration: --data_dir or --text")


def _samples(loaded: "Loaded", segment_len: int) -> "tuple[Sample | None, ...]":
    """Text to learn ranges from, and other text to compare on."""
    from txl_tf.export.edge import calibration, tflite

    tokenizer, compared = loaded.tokenizer, _COMPARED.value + 1
    learnt = tflite.CALIBRATION_SEGMENTS * _BATCH_SIZE.value * segment_len + 1
    if _TEXT.value is not None:
        source = text.Source.from_path(_TEXT.value)
        return _halves(
            calibration.from_text(tokenizer, [source], learnt + compared), learnt, compared
        )
    if _DATA_DIR.value is None:
        return None, _builtin(loaded, compared)
    splits = metadata.Metadata.load(_DATA_DIR.value).splits
    if "train" not in splits or _SPLIT.value == "train":
        found = calibration.from_split(_DATA_DIR.value, _SPLIT.value, tokenizer, learnt + compared)
        return _halves(found, learnt, compared)
    held_out = calibration.from_split(_DATA_DIR.value, _SPLIT.value, tokenizer, compared)
    return calibration.from_split(_DATA_DIR.value, "train", tokenizer, learnt), held_out


def _halves(found: "Sample", learnt: int, compared: int) -> "tuple[Sample, ...]":
    middle = min(learnt, len(found.ids) // 2)
    return found.part(0, middle), found.part(middle, middle + compared)


def _builtin(loaded: "Loaded", compared: int) -> "Sample | None":
    from txl_tf.export.edge import calibration

    sources = builtin_corpus.sources()["valid"]
    try:
        found = calibration.from_text(loaded.tokenizer, sources, compared)
    except ValueError:  # a symbol is unknown, and the tokenizer takes that for an error
        found = None
    if found is None or not found.size.is_mostly_known:
        logging.warning(
            "nothing is compared: the vocabulary does not cover the built-in text; "
            "give --data_dir or --text"
        )
        return None
    return dataclasses.replace(found, name="documentation of Python")


def _log(found: "Agreement") -> None:
    logging.info(
        "top1_agreement=%.4f contexts=%d largest_difference=%.2g on %s",
        found.top1_agreement,
        found.contexts,
        found.largest_difference,
        found.text,
    )
    logging.info(
        "nats_per_token=%.4f float_nats_per_token=%.4f change=%+.3f%%",
        found.nats_per_token,
        found.float_nats_per_token,
        100 * (found.nats_per_token / found.float_nats_per_token - 1),
    )
    if found.bits_unavailable is None:
        logging.info(
            "bits_per_character=%.4f float_bits_per_character=%.4f",
            found.bits_per_character,
            found.float_bits_per_character,
        )


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
