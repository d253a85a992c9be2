r"""Turns text into shards of tokens, the vocabulary and metadata.json, for train.py and others.

    txl-prepare --train='text/*.txt' --valid=valid.txt --tokenizer=char \
        --output_dir=DATA
    txl-prepare --builtin_corpus --output_dir=DATA

Text is UTF-8, plain or compressed by gzip, bzip2, xz or zstd, and may be larger than memory; a name
may have wildcards, "**" being any number of folders. Flags that a tokenizer does not take are
refused: byte takes drop_newlines; char all but end_of_line=boundary and white_space; word all but
drop_newlines; sentencepiece none. Run again with the same text and flags it finds that nothing is
to be done. The last line of stdout is one JSON object; its "status" is built, rebuilt or reused.
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
        f"Text of the {split} split: files or patterns, comma-separated; the name of a file may "
        "have commas. Repeatable.",
    )
    for split in prepare.SPLITS
}
_BUILTIN_CORPUS = flags.DEFINE_bool(
    "builtin_corpus", False, "Take CPython's own documentation as text: nothing to download."
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder to make.", required=True)
_NUM_WORKERS = flags.DEFINE_integer(
    "num_workers", None, "Processes; by default one a core. The result is the same for any number."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Build even what is there already.")

# Fields of recipe.Recipe. Each flag is None where the default of the field or tokenizer holds.
_RECIPE = [
    flags.DEFINE_enum("tokenizer", None, list(tokenizers.TOKENIZERS), "Default: byte."),
    flags.DEFINE_integer("vocab_size", None, "Most symbols, special ones included.", lower_bound=1),
    flags.DEFINE_integer("min_count", None, "Rarer symbols become unknown.", lower_bound=0),
    flags.DEFINE_string(
        "vocab",
        None,
        "Take this vocabulary: a data_dir or model_dir (with all its tokenizer's options), a "
        "file of one word a line (a count may follow the word), or a SentencePiece model.",
    ),
    flags.DEFINE_string(
        "extend_vocab",
        None,
        "Take the tokenizer of this data_dir or model_dir, and give the symbols that the text has "
        "besides the ids after its own, so that train --init_from can go on from its models. "
        "byte and sentencepiece know all text and stay as they are.",
    ),
    flags.DEFINE_enum(
        "vocab_repeats",
        None,
        recipe.VOCAB_REPEATS,
        "What to do with a repeated line of --vocab; the original code skips it. Default: error.",
    ),
    flags.DEFINE_enum(
        "vocab_from", None, recipe.VOCAB_FROM, "Splits to count symbols in. Default: train."
    ),
    flags.DEFINE_enum(
        "document_boundary",
        None,
        list(documents.BOUNDARIES),
        "A document is a file, what stands between blank lines, or a line. Default: file.",
    ),
    flags.DEFINE_enum(
        "invalid_utf8",
        None,
        text.INVALID_UTF8,
        "Stop at bytes that are not UTF-8, or put U+FFFD in their place. Default: error.",
    ),
    flags.DEFINE_integer(
        "shuffle_sentences",
        None,
        "Have each training file this many times, its lines shuffled, as the original TensorFlow "
        "code for lm1b. Default: 0, once and in order.",
        lower_bound=0,
    ),
]
# Options of tokenizers.
_OPTIONS = [
    flags.DEFINE_enum(
        "end_of_line",
        None,
        ["eos", "none", "boundary"],
        "How a line end is marked: <eos>, not at all, or <S> at both ends of the line. Default: "
        "eos for word, none for char (a line end is a character there).",
    ),
    flags.DEFINE_enum(
        "white_space",
        None,
        list(text.WHITE_SPACES),
        "What separates words: all white space of Unicode, or that of ASCII alone, by which the "
        "published vocabularies were counted. Default: unicode.",
    ),
    flags.DEFINE_bool("lower_case", None, "Lower-case all text, also when the model is used."),
    flags.DEFINE_enum("blank_lines", None, counted.BLANK_LINES, "Default: keep."),
    flags.DEFINE_bool("drop_newlines", None, "Leave out line ends, as the originals' enwik8."),
    flags.DEFINE_enum(
        "unknown",
        None,
        counted.UNKNOWN,
        "What the vocabulary lacks becomes <unk>, or is an error. Default: unk.",
    ),
]


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses arguments that are no flags
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
        raise app.UsageError(f"--builtin_corpus must stand alone, got {named} too")
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
