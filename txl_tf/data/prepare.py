"""Text files to shards: learns the vocabulary in one pass, encodes in a second, both streaming.

Pieces of text are processed by any number of workers and merged in order, so the result does not
depend on their number. It is written beside the output folder and replaces it when complete.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from txl_tf import visible_log
from txl_tf.configs import validation
from txl_tf.data import encoding_passes, files, metadata, outputs, parallel, text, tokenizers
from txl_tf.data.recipe import Recipe
from txl_tf.progress import Progress

_WORTH_WORKERS = 1 << 23  # bytes of text from which workers pay off
SPLITS = ("train", "valid", "test")
RECORD_FILE = "preparation.json"
_MARKS = {RECORD_FILE, metadata.FILE_NAME}  # all prepared data has one of these
_OUR_FILES = {*_MARKS, *tokenizers.FILES}
_SHARD = re.compile(r".+-\d{5,}-of-\d{5,}\.tfrecord")

Splits = Mapping[str, Sequence[text.Source]]


class Prepared(NamedTuple):
    """Result of `prepare`; status "built", "rebuilt" (replaced other data) or "reused"."""

    metadata: metadata.Metadata
    status: str


@visible_log.shown()
def prepare(
    splits: Mapping[str, outputs.Path | Sequence[outputs.Path | text.Source]],
    output_dir: outputs.Path,
    recipe: Recipe | None = None,
    *,
    num_workers: int = 1,
    overwrite: bool = False,
) -> Prepared:
    """Prepares text for training and evaluation.

    >>> _ = txl_tf.prepare({"train": "texts/*.txt", "valid": ["valid.txt"]}, "data")

    Args:
      splits: the texts of each split: paths and globs, see `text.find`, or `text.Source`s.
      output_dir: folder to create. Prepared data in it is replaced; other files are an error.
      recipe: how text becomes tokens; None is `Recipe()`, byte tokens.
      num_workers: number of processes; does not affect the result.
      overwrite: whether to rebuild even if the folder holds the same data already.

    Raises:
      ValueError: a text or the recipe is invalid, or another process writes the folder; names the
        file or folder, which is unchanged.
    """
    recipe = recipe or Recipe()
    found = {s: _sources(splits[s]) for s in (*SPLITS, *splits) if splits.get(s)}
    _check_splits(found)
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    path = outputs.checked("output_dir", output_dir, _check_folder, any_name=True)
    start = recipe.start()
    occupied = files.exists(path) and bool(files.names(path))
    if occupied and not overwrite and (old := _reusable(found, path, recipe, start)):
        return _with_warnings(Prepared(old, "reused"))
    held = outputs.held("output_dir", output_dir, _check_folder, any_name=True)
    with held as output, output.filled() as folder:
        job = _Job(found, recipe, folder, num_workers)
        result = job.run(start)
    return _with_warnings(Prepared(result, "rebuilt" if occupied else "built"))


def _with_warnings(prepared: Prepared) -> Prepared:
    """Logs warnings about the data, and returns them."""
    for name, split in prepared.metadata.splits.items():
        for warning in split.size.warnings(name):
            logging.warning("%s", warning)
    return prepared


def _sources(texts: outputs.Path | Sequence[outputs.Path | text.Source]) -> list[text.Source]:
    """Returns the texts of a split; a single path is a list of one."""
    texts = [texts] if isinstance(texts, str | os.PathLike) else texts
    sources = [given for given in texts if isinstance(given, text.Source)]
    paths = [os.fspath(given) for given in texts if not isinstance(given, text.Source)]
    return sources + text.find(paths)


def _check_splits(splits: Splits) -> None:
    if not splits:
        raise ValueError(f"text must be given for at least one of {', '.join(SPLITS)}, got none")
    of_split: dict[str, str] = {}
    for split, sources in splits.items():
        if not any(source.size for source in sources):
            names = ", ".join(source.name for source in sources)
            raise ValueError(f"{split} must hold text, got no tokens in {names}")
        for source in sources:
            if source.size == 0:
                logging.warning("%s: no tokens in %s", split, source.name)
            other = of_split.setdefault(source.name, split)
            if other != split:
                logging.warning("%s is in both %s and %s", source.name, other, split)


def _check_folder(name: str, path: str) -> None:
    """Raises if the folder holds anything but prepared data."""
    if not files.exists(path):
        return
    if not files.is_folder(path):
        raise ValueError(f"{name} must be a folder, got the file {path}")
    names = files.names(path)
    for file in names:
        if file not in _OUR_FILES and not _SHARD.fullmatch(file):
            raise ValueError(f"{name} must hold only prepared data, got {path}/{file}")
    if names and _MARKS.isdisjoint(names):  # others use the same names for shards and vocabularies
        marks = " or ".join(sorted(_MARKS))
        raise ValueError(
            f"{name} must hold prepared data or be empty, got {path} with {names[0]} and no {marks}"
        )


def _reusable(
    splits: Splits,
    folder: str,
    recipe: Recipe,
    start: tokenizers.Tokenizer | tokenizers.Learner,
) -> metadata.Metadata | None:
    """Returns the metadata of a folder with the same texts, recipe and version; None otherwise."""
    if not {RECORD_FILE, metadata.FILE_NAME} <= set(files.names(folder)):
        return None
    try:
        record = files.read_json(f"{folder}/{RECORD_FILE}", _record_from_json)
        found = metadata.Metadata.load(folder)
        intact = tokenizers.load(folder).checksum == found.vocab_checksum
    except ValueError as error:
        logging.warning("%s cannot be reused: %s", folder, error)
        return None
    shards = {name for split, part in found.splits.items() for name in part.files(split)}
    if not intact or not shards <= set(files.names(folder)):
        logging.warning("%s cannot be reused: files are missing or changed", folder)
        return None
    same = record == json.loads(json.dumps(recipe.record(start)))
    if not same or list(found.splits) != list(splits):
        return None
    for split, sources in splits.items():
        if len(sources) != len(found.splits[split].sources):
            return None
        for source, old in zip(sources, found.splits[split].sources, strict=True):
            if _describe(source, text.sha256(source)) != old:
                return None
    return found


def _record_from_json(content: str) -> Any:
    return validation.parse_json(content, "preparation")


def _describe(source: text.Source, sha256: str) -> metadata.Source:
    name = os.path.basename(source.name)  # data may move: the folder of the text does not count
    return metadata.Source(name=name, sha256=sha256, bytes=source.size)


@dataclasses.dataclass
class _Job:
    """One call of `prepare`.

    Attributes:
      splits: the texts of each split.
      recipe: of the call.
      folder: the draft to write to.
      num_workers: number of processes.
      hashes: SHA-256 of each text read so far, by split and index.
    """

    splits: Splits
    recipe: Recipe
    folder: str
    num_workers: int
    hashes: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)

    def run(self, start: tokenizers.Tokenizer | tokenizers.Learner) -> metadata.Metadata:
        """Writes all files."""
        tokenizer = self._learn(start) if isinstance(start, tokenizers.Learner) else start
        splits = {split: self._encode(split, tokenizer) for split in self.splits}
        result = metadata.Metadata(
            tokenizer={"kind": tokenizer.kind, "options": tokenizer.options},
            vocab_size=tokenizer.vocab_size,
            vocab_checksum=tokenizer.checksum,
            splits=splits,
        )
        tokenizer.save(self.folder)
        self._write(RECORD_FILE, json.dumps(self.recipe.record(start), indent=2) + "\n")
        self._write(metadata.FILE_NAME, result.to_json())
        return result

    def _write(self, name: str, content: str) -> None:
        files.write_bytes(f"{self.folder}/{name}", content.encode("utf-8"))

    def _learn(self, learner: tokenizers.Learner) -> tokenizers.Tokenizer:
        """Runs the first pass; returns the tokenizer."""
        counted = [s for s in self.splits if s == "train" or self.recipe.vocab_from == "all"]
        if not counted:
            raise ValueError("train must be given to build a vocabulary, got neither it nor vocab")
        pieces, num_workers = self._pieces("count", counted), self._workers(counted)
        task = encoding_passes.Observe(learner, self.recipe.invalid_utf8)
        for observation in parallel.ordered_map(task, pieces, num_workers):
            learner.add(observation)
        for warning in learner.warnings():
            logging.warning("%s", warning)
        return learner.finish()

    def _encode(self, split: str, tokenizer: tokenizers.Tokenizer) -> metadata.SplitMetadata:
        """Runs the second pass for one split; returns its metadata."""
        times = self.recipe.shuffle_sentences if split == "train" else 0
        boundary = self.recipe.document_boundary
        task = encoding_passes.Encode(
            tokenizer, "line" if times else boundary, self.recipe.invalid_utf8
        )
        pieces, num_workers = self._pieces("encode", [split]), self._workers([split])
        encoded = parallel.ordered_map(task, pieces, num_workers)
        if times:
            encoded = encoding_passes.shuffled(encoded, times, boundary)
        with encoding_passes.SplitWriter(self.folder, split) as writer:
            for part in encoded:
                writer.write(part)
        sources = [
            _describe(source, self.hashes[split, i]) for i, source in enumerate(self.splits[split])
        ]
        return writer.metadata(sources, keep_streams=times > 0)

    def _workers(self, splits: Sequence[str]) -> int:
        size = sum(source.size for split in splits for source in self.splits[split])
        return self.num_workers if size >= _WORTH_WORKERS else 1

    def _pieces(self, name: str, splits: Sequence[str]) -> Iterator[text.Piece]:
        """Yields the pieces of all texts of some splits; raises if a text has changed."""
        sources = [(split, i, s) for split in splits for i, s in enumerate(self.splits[split])]
        total = sum(source.size for *_, source in sources) / 1e6
        with Progress(f"{name}:{'+'.join(splits)}", "mb", total or None) as progress:
            yield from self._read(sources, progress)

    def _read(
        self, sources: Sequence[tuple[str, int, text.Source]], progress: Progress
    ) -> Iterator[text.Piece]:
        before = 0
        for split, index, source in sources:
            with text.Reader(source) as reader:
                for piece in reader.pieces():
                    yield piece
                    progress.reach((before + reader.consumed) / 1e6)
            before += reader.consumed
            if self.hashes.setdefault((split, index), reader.sha256) != reader.sha256:
                raise ValueError(f"{source.name} must not change between passes, got other content")
