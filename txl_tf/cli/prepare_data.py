r"""Prepares text for training and evaluation: token shards, the vocabulary and metadata.json.

    txl-prepare --train='text/*.txt' --valid=valid.txt --tokenizer=char \
        --output_dir=DATA
    txl-prepare --builtin_corpus --output_dir=DATA

Text is UTF-8, plain or compressed with gzip, bzip2, xz or zstd, and may be larger than memory. File
names may have wildcards; "**" matches any number of folders. Options that a tokenizer does not
support are refused: byte has drop_newlines; char all but end_of_line=boundary and white_space; word
all but drop_newlines; sentencepiece none. Run again with the same text and flags, it reuses the
output. The last line of stdout is one JSON object; its "status" is built, rebuilt or reused.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from absl import app, flags

from txl_tf.cli import entry_point
from txl_tf.data import (
    builtin_corpus,
    documents,
    files,
    prepare,
    recipe,
    text,
    tokenizers,
)
from txl_tf.data.tokenizers import counted

_FILES = {
    split: flags.DEFINE_multi_string(
        split,
        [],
        f"Text of the {split} split: comma-separated files or glob patterns; an existing file may "
        "have commas in its name",
    )
    for split in prepare.SPLITS
}
_BUILTIN_CORPUS = flags.DEFINE_bool(
    "builtin_corpus", False, "Use CPython's own documentation as text, without a download."
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder to write.", required=True)
_NUM_WORKERS = flags.DEFINE_integer(
    "num_workers", None, "Number of processes; default: one per core. Does not change the result."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Rebuild existing output.")

# Fields of recipe.Recipe. Each flag is None where the default of the field or tokenizer holds.
_RECIPE = [
    flags.DEFINE_enum("tokenizer", None, list(tokenizers.TOKENIZERS), "Tokenizer. Default: byte."),
    flags.DEFINE_integer(
        "vocab_size", None, "Maximum number of symbols, including special ones.", lower_bound=1
    ),
    flags.DEFINE_integer(
        "min_count", None, "Minimum count of a symbol; rarer ones are unknown.", lower_bound=0
    ),
    flags.DEFINE_string(
        "vocab",
        None,
        "Vocabulary to use: a data_dir or model_dir (with all options of its tokenizer), a file "
        "with one word per line (a count may follow the word), or a SentencePiece model.",
    ),
    flags.DEFINE_string(
        "extend_vocab",
        None,
        "Use the tokenizer of this data_dir or model_dir and append new symbols of the text, for "
        "fine-tuning with train --init_from. byte and sentencepiece cover all text and are not "
        "extended.",
    ),
    flags.DEFINE_enum(
        "vocab_repeats",
        None,
        recipe.VOCAB_REPEATS,
        "Treatment of repeated lines in --vocab; the original code skips them. Default: error.",
    ),
    flags.DEFINE_enum(
        "vocab_from", None, recipe.VOCAB_FROM, "Splits whose symbols are counted. Default: train."
    ),
    flags.DEFINE_enum(
        "document_boundary",
        None,
        list(documents.BOUNDARIES),
        "Where documents begin: at each file, after blank lines, at each line, or nowhere. "
        "Default: file.",
    ),
    flags.DEFINE_enum(
        "invalid_utf8",
        None,
        text.INVALID_UTF8,
        "Refuse bytes that are not UTF-8, or replace them by U+FFFD. Default: error.",
    ),
    flags.DEFINE_integer(
        "shuffle_sentences",
        None,
        "Number of copies of each training file, with shuffled lines, as in the original "
        "TensorFlow code for lm1b. Default: 0, one copy in order.",
        lower_bound=0,
    ),
]
# Options of tokenizers.
_OPTIONS = [
    flags.DEFINE_enum(
        "end_of_line",
        None,
        ["eos", "none", "boundary"],
        "Mark of line ends: <eos>, none, or <S> at both ends of the line. Default: eos for word, "
        "none for char (where the line end is a character).",
    ),
    flags.DEFINE_enum(
        "white_space",
        None,
        list(text.WHITE_SPACES),
        "White space that separates words: Unicode, or ASCII only, which was used to count the "
        "published vocabularies. Default: unicode.",
    ),
    flags.DEFINE_bool(
        "lower_case", None, "Lower-case text, in preparation and whenever the model is used."
    ),
    flags.DEFINE_enum(
        "blank_lines", None, counted.BLANK_LINES, "Treatment of blank lines. Default: keep."
    ),
    flags.DEFINE_bool("drop_newlines", None, "Drop line ends, as in the originals' enwik8."),
    flags.DEFINE_enum(
        "unknown",
        None,
        counted.UNKNOWN,
        "Symbols outside the vocabulary become <unk>, or are an error. Default: unk.",
    ),
]


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    given: dict[str, Any] = {f.name: f.value for f in _RECIPE if f.value is not None}
    options = {flag.name: flag.value for flag in _OPTIONS if flag.value is not None}
    replacing = entry_point.advising(
        text.InvalidUtf8Error, "--invalid_utf8=replace puts U+FFFD in its place"
    )
    with replacing:
        result = prepare.prepare(
            _splits(),
            _OUTPUT_DIR.value,
            recipe.Recipe(options=options, **given),
            num_workers=_num_workers(),
            overwrite=_OVERWRITE.value,
        )
    print(json.dumps(_summary(result), ensure_ascii=False))


def _splits() -> Mapping[str, Sequence[str | text.Source]]:
    patterns = {s: [p for v in flag.value for p in _patterns(v)] for s, flag in _FILES.items()}
    if not _BUILTIN_CORPUS.value:
        return patterns
    named = ", ".join(f"--{split}" for split, found in patterns.items() if found)
    if named:
        raise app.UsageError(f"--builtin_corpus must be the only text, got {named} too")
    return builtin_corpus.sources()


def _patterns(value: str) -> list[str]:
    if files.exists(value):
        return [value]
    return [os.path.expanduser(part) for part in value.split(",") if part]


def _num_workers() -> int:
    if _NUM_WORKERS.value is not None:
        return _NUM_WORKERS.value
    if hasattr(os, "sched_getaffinity"):  # what this process may use, not what the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _summary(result: prepare.Prepared) -> dict[str, Any]:
    made = result.metadata
    counted_fields = ("tokens", "documents", "unknown", "bytes", "characters")
    return {
        "output_dir": _OUTPUT_DIR.value,
        "status": result.status,
        "tokenizer": made.tokenizer["kind"],
        "vocab_size": made.vocab_size,
        "splits": {
            name: {field: getattr(split, field) for field in counted_fields}
            for name, split in made.splits.items()
        },
    }


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
