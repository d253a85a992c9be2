"""Scores text: the log-probability of each token, read through the model's memory.

    txl-score --model_dir=RUN --input=FILE
    grep -v '^$' FILE | txl-score --model_dir=RUN --input=- --per_line --summary
    txl-score --tflite=NAME.tflite --input=FILE

Prints one JSON object a text: {tokens, log_probs (natural logarithms, the first null), num_tokens,
unknown, nats, perplexity, bits_per_byte, bits_per_character, bits_unavailable: the reason where
bits are null}. A file is one text; with --per_line each line is one, and has the line's place in
the output: without its line end, which counts only where the tokenizer marks it (word: <eos>).
Files and lines of any size, plain or compressed, will do (lines above 256 KiB are read in pieces):
with --summary, which leaves out tokens and log_probs, memory does not grow. With --tflite a model
of export_tflite scores, as it would on a device.
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

_INPUT = flags.DEFINE_string("input", None, "A text file, or - for standard input.", required=True)
_TFLITE = flags.DEFINE_string("tflite", None, "A file of export_tflite, in place of --model_dir.")
_PER_LINE = flags.DEFINE_bool("per_line", False, "Each line is a text of its own.")
_SUMMARY = flags.DEFINE_bool("summary", False, "Leave out tokens and log_probs.")
_INVALID_UTF8 = flags.DEFINE_enum(
    "invalid_utf8", "error", text.INVALID_UTF8, "Refuse bytes that are no UTF-8, or put U+FFFD."
)
model_flags.define(
    {"batch_size": "eval.batch_size", "segment_len": "eval.segment_len"}, required=False
)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses arguments that are no flags
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
        model_flags.refuse("--tflite takes its place", "model_dir")
        model_flags.refuse("a --tflite file has it built in")
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
