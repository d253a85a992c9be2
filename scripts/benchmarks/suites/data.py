"""The data suite: how fast text is prepared and read, and what train.py reaches of its bare step.

    prepare   text to shards by each tokenizer, one worker and two: MB/s. SentencePiece's pieces are
              learnt before; the others count their symbols each time
    read      the batches of prepared bytes: tokens/s, times_faster than training
    train     a bare step on one batch, and train.py as users run it, by its own log: tokens/s;
              times_faster is the part of the bare step's speed that the program reaches
    words     with a peer that has sacremoses too: Hugging Face's TransfoXLTokenizer counts and
              encodes words, against our preparation, which also writes and sums up files: MB/s

The text is CPython's documentation, repeated. For words it is cut down to letters and fewer bytes:
then its Moses rules leave words as they are, and both give the same ids. (Of the line ends that the
peer's own pipeline asks for its tokenizer drops all, so that ours marks none.)

A worker is a process: one takes a second or so to start, which counts. peak_mb is that of a process
that does nothing else, and of its workers; for `read`, with TensorFlow.
"""

import contextlib
import functools
import itertools
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from benchmarks import timing
from benchmarks.options import Options
from benchmarks.suites import data_reading
from benchmarks.workers import json_worker
from txl_tf.configs.run import Config
from txl_tf.data import builtin_corpus, metadata, prepare, recipe, tokenizers
from txl_tf.data.batches import Batches

_WORKERS = pathlib.Path(__file__).parent.parent / "workers"
_NUM_WORKERS = (1, 2)
_NUM_PIECES = 1000  # of SentencePiece
_WORDS_SHARE = 60  # the text of words is this part of the whole: the peer takes its time
_BEGINNING = 1 << 14  # characters whose ids are compared

_MEGABYTES = flags.DEFINE_float(
    "megabytes",
    30.0,
    "Size of the text in MB, for --suite=data. Below 8.4, a single worker is used.",
    lower_bound=0.01,
)


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """A row for each work; the step is that of `config`, which reads bytes.

    Raises:
      ValueError: ids are not those of the text, or the peer's differ.
    """
    return measure(config, options, int(_MEGABYTES.value * 1e6))


def measure(config: Config, options: Options, num_bytes: int) -> list[dict[str, Any]]:
    """As `run`, with a text of that size."""
    content, repeats = corpus(num_bytes), options.repeats
    with tempfile.TemporaryDirectory() as folder:
        found = _preparations(content, folder, repeats)
        found += data_reading.rows(config, content, os.path.join(folder, "byte-1"), repeats)
        if options.peers is not None:
            words = words_alone(corpus(num_bytes // _WORDS_SHARE))
            found += _words(words, options.peers, folder, repeats)
    return found


def corpus(num_bytes: int) -> str:
    """CPython's documentation again and again, in whole lines, at least one; all of it ASCII."""
    parts = []
    for source in itertools.chain.from_iterable(builtin_corpus.sources().values()):
        with source.open() as file:
            parts.append(file.read().decode("utf-8"))
    lines = "".join(parts).encode("ascii", "ignore").decode().splitlines(keepends=True)
    length, taken = 0, []
    for line in itertools.cycle(lines):
        taken.append(line)
        length += len(line)
        if length >= num_bytes:
            return "".join(taken)
    return ""


def words_alone(content: str) -> str:
    """Letters alone, between single spaces; lines without any are left out."""
    lines = (" ".join(re.findall("[A-Za-z]+", line)) for line in content.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _preparations(content: str, folder: str, repeats: int) -> list[dict[str, Any]]:
    """Leaves the data of tokenizer and number of workers in `folder`/byte-1 and so on."""
    path = _write(folder, "text.txt", content)
    pieces = os.path.join(folder, "pieces")
    learnt = recipe.Recipe(tokenizer="sentencepiece", vocab_size=_NUM_PIECES)
    prepare.prepare(builtin_corpus.sources(), pieces, learnt)
    recipes = {name: {"tokenizer": name} for name in ("byte", "char", "word")}
    recipes["sentencepiece"] = {"vocab": pieces}
    contenders: dict[tuple[str, int], _Preparation] = {}
    with contextlib.ExitStack() as stack:
        for name, options in recipes.items():
            for num_workers in _NUM_WORKERS:
                made = os.path.join(folder, f"{name}-{num_workers}")
                alone = stack.enter_context(_ours("prepare"))
                mine = _Preparation(alone, path, made, options, num_workers)
                mine()
                check_beginning(made, content)
                check_same(made, os.path.join(folder, f"{name}-{_NUM_WORKERS[0]}"))
                contenders[name, num_workers] = mine
        times = timing.race(contenders, repeats)
    rows = []
    for (name, num_workers), seconds in times.items():
        row = data_reading.row("prepare", name, num_workers, "MB/s", len(content) / 1e6, seconds)
        row["peak_mb"] = contenders[name, num_workers].peak / 1e6
        row["times_faster"] = times[name, _NUM_WORKERS[0]].median / seconds.median
        rows.append(row)
    return rows


class _Preparation:
    """A way to prepare, in a process of its own; a call tells its seconds.

    Attributes:
      peak: bytes, of the calls so far.
    """

    def __init__(
        self,
        alone: json_worker.Child,
        path: str,
        made: str,
        options: dict[str, Any],
        num_workers: int,
    ) -> None:
        self._ask = functools.partial(
            alone.ask, text_path=path, output_dir=made, options=options, num_workers=num_workers
        )
        self.peak = 0

    def __call__(self) -> timing.Seconds:
        answer = self._ask()
        self.peak = answer["peak"]
        return timing.Seconds(answer["seconds"])


def check_beginning(data_dir: str, content: str) -> None:
    """Raises if the data do not begin with the ids of the text."""
    lines = content[:_BEGINNING].rpartition("\n")
    beginning = "".join(lines[:2])
    expected = tokenizers.load(data_dir).encode(beginning, complete=False)
    found = ids_of(data_dir, len(expected))
    if not np.array_equal(found, expected):
        raise ValueError(f"ids must be those of the text, which those in {data_dir} are not")


def check_same(data_dir: str, other: str) -> None:
    """Refuses data that says something else of itself, as the number of its tokens."""
    if metadata.Metadata.load(data_dir) != metadata.Metadata.load(other):
        raise ValueError(f"data must be that of one worker, which {data_dir} is not")
    if not np.array_equal(ids_of(data_dir), ids_of(other)):
        raise ValueError(f"ids must be those of one worker, which those in {data_dir} are not")


def ids_of(data_dir: str, most: int | None = None) -> np.ndarray:
    """Returns the ids of split train, or the first of them, [N] int32."""
    batches = Batches(data_dir, "train", batch_size=1, segment_len=1024, mode="eval")
    steps = itertools.islice(batches.arrays(epochs=1), most and most // 1024 + 1)
    first = next(batches.arrays()).ids[0, :1]
    ids = np.concatenate([first, *(batch.targets[0] for batch in steps)])
    return ids[ids >= 0][:most]


def _words(content: str, peer: str, folder: str, repeats: int) -> list[dict[str, Any]]:
    path, ids_path = _write(folder, "words.txt", content), os.path.join(folder, "ids.npy")
    made = os.path.join(folder, "words")
    options = {"tokenizer": "word", "options": {"end_of_line": "none"}}
    program_path = str(_WORKERS / "hf_words.py")
    with (
        _ours("prepare") as alone,
        json_worker.Child([peer, program_path], is_foreign=True) as theirs,
    ):
        ask = functools.partial(theirs.ask, text_path=path, ids_path=ids_path)
        contenders: dict[str, Callable[[], timing.Seconds]] = {
            "TransfoXLTokenizer": lambda: timing.Seconds(ask()["seconds"]),
            "ours": _Preparation(alone, path, made, options, 1),
        }
        for call in contenders.values():
            call()
        check_equal(ids_of(made), np.load(ids_path))
        times = timing.race(contenders, repeats)
    rows = []
    for who, seconds in times.items():
        row = data_reading.row("words", who, 1, "MB/s", len(content) / 1e6, seconds)
        row["times_faster"] = times["TransfoXLTokenizer"].median / seconds.median
        rows.append(row)
    return rows


def check_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Raises if the ids differ."""
    if not np.array_equal(ours, theirs):
        raise ValueError(
            f"ids must be the peer's, got {len(ours)} and {len(theirs)} that are not all equal"
        )


def _ours(name: str) -> json_worker.Child:
    return json_worker.Child([sys.executable, "-m", f"benchmarks.workers.{name}"])


def _write(folder: str, name: str, content: str) -> str:
    path = pathlib.Path(folder) / name
    path.write_bytes(content.encode())
    return str(path)
