"""The data suite: speed of preparing and reading text, and train.py compared with its bare step.

    prepare   text to shards with each tokenizer, by one worker and two: MB/s. SentencePiece's
              pieces are learned before; the others count their symbols each time
    read      batches of prepared bytes: tokens/s, times_faster than training
    train     a bare step on one batch, and train.py as users run it, by its own log: tokens/s;
              times_faster is the fraction of the bare step's speed that the program reaches
    words     with a peer that has sacremoses: Hugging Face's TransfoXLTokenizer counts and encodes
              words, compared with our preparation, which also writes and checksums files: MB/s

The text is CPython's documentation, repeated. For `words` it is shorter and reduced to letters:
then Moses' rules change no word, and both give the same ids. (The peer's tokenizer drops the line
ends that its pipeline asks for, so ours marks none.)

Starting a worker process takes about a second, which counts. peak_mb is the peak of a process that
does nothing else, with its workers; for `read`, including TensorFlow.
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
_WORDS_DIVISOR = 60  # shortens the text of `words`, as the peer is slow
_CHECKED = 1 << 14  # characters whose ids are compared

_MEGABYTES = flags.DEFINE_float(
    "megabytes",
    30.0,
    "Size of the text in MB, for --suite=data. Below 8.4, a single worker is used.",
    lower_bound=0.01,
)


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each kind of work; training is that of `config`, on bytes.

    Raises:
      ValueError: prepared ids differ from those of the text, or from the peer's.
    """
    return measure(config, options, int(_MEGABYTES.value * 1e6))


def measure(config: Config, options: Options, num_bytes: int) -> list[dict[str, Any]]:
    """Runs the suite with a text of a given size; see `run`."""
    content, repeats = corpus(num_bytes), options.repeats
    with tempfile.TemporaryDirectory() as folder:
        found = _preparations(content, folder, repeats)
        found += data_reading.rows(config, content, os.path.join(folder, "byte-1"), repeats)
        if options.peers is not None:
            words = only_words(corpus(num_bytes // _WORDS_DIVISOR))
            found += _words(words, options.peers, folder, repeats)
    return found


def corpus(num_bytes: int) -> str:
    """Returns CPython's documentation, repeated to this size in whole lines of ASCII."""
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


def only_words(content: str) -> str:
    """Returns the ASCII words of each line, separated by single spaces, without empty lines."""
    lines = (" ".join(re.findall("[A-Za-z]+", line)) for line in content.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _preparations(content: str, folder: str, repeats: int) -> list[dict[str, Any]]:
    """Times each preparation; keeps its data in `folder`/TOKENIZER-NUM_WORKERS, as "byte-1"."""
    path = _write(folder, "text.txt", content)
    pieces = os.path.join(folder, "pieces")
    learned = recipe.Recipe(tokenizer="sentencepiece", vocab_size=_NUM_PIECES)
    prepare.prepare(builtin_corpus.sources(), pieces, learned)
    recipes = {name: {"tokenizer": name} for name in ("byte", "char", "word")}
    recipes["sentencepiece"] = {"vocab": pieces}
    contenders: dict[tuple[str, int], _Preparation] = {}
    with contextlib.ExitStack() as stack:
        for name, options in recipes.items():
            for num_workers in _NUM_WORKERS:
                output_dir = os.path.join(folder, f"{name}-{num_workers}")
                worker = stack.enter_context(_prepare_worker())
                preparation = _Preparation(worker, path, output_dir, options, num_workers)
                preparation()
                check_beginning(output_dir, content)
                check_same(output_dir, os.path.join(folder, f"{name}-{_NUM_WORKERS[0]}"))
                contenders[name, num_workers] = preparation
        times = timing.race(contenders, repeats)
    rows = []
    for (name, num_workers), seconds in times.items():
        row = data_reading.row("prepare", name, num_workers, "MB/s", len(content) / 1e6, seconds)
        row["peak_mb"] = contenders[name, num_workers].peak / 1e6
        row["times_faster"] = times[name, _NUM_WORKERS[0]].median / seconds.median
        rows.append(row)
    return rows


class _Preparation:
    """A preparation in a worker process; a call returns its seconds.

    Attributes:
      peak: peak bytes of the calls so far.
    """

    def __init__(
        self,
        worker: json_worker.JsonWorker,
        path: str,
        output_dir: str,
        options: dict[str, Any],
        num_workers: int,
    ) -> None:
        self._ask = functools.partial(
            worker.ask,
            text_path=path,
            output_dir=output_dir,
            options=options,
            num_workers=num_workers,
        )
        self.peak = 0

    def __call__(self) -> timing.Seconds:
        response = self._ask()
        self.peak = response["peak"]
        return timing.Seconds(response["seconds"])


def check_beginning(data_dir: str, content: str) -> None:
    """Raises if the data does not begin with the ids of the text."""
    lines = content[:_CHECKED].rpartition("\n")
    beginning = "".join(lines[:2])
    expected = tokenizers.load(data_dir).encode(beginning, complete=False)
    found = ids_of(data_dir, len(expected))
    if not np.array_equal(found, expected):
        raise ValueError(f"ids must be those of the text, got others in {data_dir}")


def check_same(data_dir: str, other: str) -> None:
    """Raises if the metadata or the ids of two folders differ."""
    if metadata.Metadata.load(data_dir) != metadata.Metadata.load(other):
        raise ValueError(f"metadata must equal that of {other}, got another in {data_dir}")
    if not np.array_equal(ids_of(data_dir), ids_of(other)):
        raise ValueError(f"ids must equal those of {other}, got others in {data_dir}")


def ids_of(data_dir: str, limit: int | None = None) -> np.ndarray:
    """Returns the ids of split train, at most `limit`, [N] int32."""
    batches = Batches(data_dir, "train", batch_size=1, segment_len=1024, mode="eval")
    steps = itertools.islice(batches.arrays(epochs=1), limit and limit // 1024 + 1)
    first = next(batches.arrays()).ids[0, :1]
    ids = np.concatenate([first, *(batch.targets[0] for batch in steps)])
    return ids[ids >= 0][:limit]


def _words(content: str, peer: str, folder: str, repeats: int) -> list[dict[str, Any]]:
    path, ids_path = _write(folder, "words.txt", content), os.path.join(folder, "ids.npy")
    output_dir = os.path.join(folder, "words")
    options = {"tokenizer": "word", "options": {"end_of_line": "none"}}
    program_path = str(_WORKERS / "hf_words.py")
    with (
        _prepare_worker() as worker,
        json_worker.JsonWorker([peer, program_path], is_foreign=True) as hf_worker,
    ):
        ask = functools.partial(hf_worker.ask, text_path=path, ids_path=ids_path)
        contenders: dict[str, Callable[[], timing.Seconds]] = {
            "TransfoXLTokenizer": lambda: timing.Seconds(ask()["seconds"]),
            "ours": _Preparation(worker, path, output_dir, options, 1),
        }
        for call in contenders.values():
            call()
        check_equal(ids_of(output_dir), np.load(ids_path))
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
            f"ids must equal the peer's, got {len(ours)} and {len(theirs)} ids that differ"
        )


def _prepare_worker() -> json_worker.JsonWorker:
    return json_worker.JsonWorker([sys.executable, "-m", "benchmarks.workers.prepare"])


def _write(folder: str, name: str, content: str) -> str:
    path = pathlib.Path(folder) / name
    path.write_bytes(content.encode())
    return str(path)
