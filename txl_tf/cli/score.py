"""Scores text: computes the log-probability of each token, with the memory of those before it.

    txl-score --model_dir=RUN --input=FILE
    grep -v '^$' FILE | txl-score --model_dir=RUN --input=- --per_line --summary
    txl-score --tflite=NAME.tflite --input=FILE

Prints one JSON object per text: {tokens, log_probs (natural logarithms, the first null),
num_tokens, unknown, nats, perplexity, bits_per_byte, bits_per_character, bits_unavailable: the
reason if bits are null}. A file is one text. With --per_line each line is one, in order, without
its line end, which counts only if the tokenizer marks it (word: <eos>). Files and lines may be
compressed and of any size; lines above 256 KiB are read in pieces. --summary omits tokens and
log_probs, so that memory use is constant. --tflite scores with a model of export_tflite, as on a
device.
"""

import json
import sys
from collections.abc import Iterator
from typing import NoReturn

from absl import app, flags, logging

from txl_tf.cli import entry_point, model_flags
from txl_tf.data import text
from txl_tf.inference import text_scorer
from txl_tf.progress import Progress

_INPUT = flags.DEFINE_string("input", None, "Text file, or - for standard input.", required=True)
_TFLITE = flags.DEFINE_string(
    "tflite", None, "Output of export_tflite, to use instead of --model_dir."
)
_PER_LINE = flags.DEFINE_bool("per_line", False, "Score each line as a separate text.")
_SUMMARY = flags.DEFINE_bool("summary", False, "Omit tokens and log_probs.")
_INVALID_UTF8 = flags.DEFINE_enum(
    "invalid_utf8",
    "error",
    text.INVALID_UTF8,
    "Refuse bytes that are not UTF-8 (error), or replace them by U+FFFD.",
)
model_flags.define(
    {"batch_size": "eval.batch_size", "segment_len": "eval.segment_len"}, required=False
)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    source = _source()
    scorer = _scorer()
    replacing = entry_point.advising(
        text.InvalidUtf8Error, "--invalid_utf8=replace puts U+FFFD in its place"
    )
    with replacing, text.Reader(source) as reader, Progress("score", "tokens") as progress:
        scorer.progress = _reached(progress, reader, source.size)
        if _PER_LINE.value:
            scores = scorer.score_each(_lines(reader), summary=_SUMMARY.value)
        else:
            whole = scorer.score_pieces(reader.pieces(), summary=_SUMMARY.value, name=source.name)
            scores = iter([whole])
        for found in scores:
            print(json.dumps(found.to_dict()))


def _lines(reader: text.Reader) -> Iterator[text.Piece]:
    for piece in text_scorer.lines(reader.pieces()):
        if piece.starts_line and not piece.complete:
            advice = "" if _SUMMARY.value else "; its answer takes memory, but for --summary"
            logging.warning(
                "%s: the line at byte %d is longer than %d bytes and is read in pieces%s",
                *(reader.name, piece.offset, text_scorer.LONGEST_LINE, advice),
            )
        yield piece


def _scorer() -> text_scorer.TextScorer:
    if _TFLITE.value is not None:
        model_flags.refuse("--tflite replaces it", "model_dir")
        model_flags.refuse("it is fixed in the --tflite file")
        from txl_tf.export.edge import native_output, runtime

        with native_output.suppress_native_output():
            return runtime.scorer(_TFLITE.value, invalid_utf8=_INVALID_UTF8.value)
    if flags.FLAGS.model_dir is None:
        raise app.UsageError("--model_dir is required, or --tflite")
    entry_point.log_devices()
    from txl_tf.inference import model_scorer

    loaded = model_flags.load()
    return model_scorer.Scorer(
        loaded.model,
        loaded.tokenizer,
        segment_len=model_flags.segment_len(loaded.config),
        batch_size=loaded.config.eval.batch_size,
        invalid_utf8=_INVALID_UTF8.value,
        state=model_flags.state(),
    )


def _source() -> text.Source:
    if _INPUT.value == "-":
        return text.Source("standard input", 0, lambda: sys.stdin.buffer)
    return text.Source.from_path(_INPUT.value)


def _reached(progress: Progress, reader: text.Reader, size: int) -> text_scorer.Progress:
    def reached(scored: int, encoded: int) -> None:
        progress.reach(scored, reader.consumed / size * scored / encoded if size else None)

    return reached


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
