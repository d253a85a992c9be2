r"""Texts with and without labels, from files or folders; errors name the file and line.

A file has one text per line, after a label and a tab if labelled. Newline, tab, carriage return
and backslash within a text are escaped as \n, \t, \r and \\, as in `vocab.txt` (so \s is a space).
In a folder, each sub-folder is a label and each file in it one text, verbatim; texts without labels
are files side by side. Names with a leading dot are skipped. All is UTF-8; files may be compressed.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from txl_tf.data import files, text, vocabulary

_SHOWN = 20  # maximum number of labels listed in a message


class Text(NamedTuple):
    """A text.

    Attributes:
      name: file and line, as "FILE:12", or the path.
      content: characters, not all of them white space.
      label: None if unlabelled.
    """

    name: str
    content: str
    label: str | None = None


def read(path: str) -> list[Text]:
    """Returns the labelled texts of a file, in order, or of a folder, sorted by path.

    Raises:
      ValueError: a text or label is malformed; names the file and the line.
    """
    texts = list(_from_folders(path) if files.is_folder(path) else _from_lines(path))
    if not texts:
        raise ValueError(f"{path} must hold labelled texts, got none")
    return texts


def read_unlabelled(path: str) -> Iterator[Text]:
    """Yields the texts of a file or a folder without labels; see `read`."""
    if files.is_folder(path):
        yield from _from_folder(path)
    else:
        yield from from_lines(text.Source.from_path(path))


def from_lines(source: text.Source) -> Iterator[Text]:
    """Yields one text per line, without labels.

    Raises:
      ValueError: a line has a tab, like a labelled one; names it.
    """
    for position, line in _lines(source):
        before, tab, _ = line.partition("\t")
        if tab:
            raise ValueError(
                f"{position} must be a text without a label, in which a tab is written \\t, "
                f"got one after {_short(before)!r}"
            )
        yield _checked(Text(position, vocabulary.unescaped(line, position)))


def labels_of(texts: Sequence[Text], path: str) -> tuple[str, ...]:
    """Returns the labels of training texts, sorted; warns of likely mistakes.

    Raises:
      ValueError: only one label, or two that differ only in white space.
    """
    counts = collections.Counter(t.label for t in texts if t.label is not None)
    labels = tuple(sorted(counts))
    if len(labels) < 2:
        raise ValueError(f"{path} must hold at least two labels, got only {labels[0]!r}")
    for one, other in _alike(labels, _plain):
        raise ValueError(
            f"{path} must hold labels that differ by more than white space, "
            f"got {one!r} ({counts[one]} texts) and {other!r} ({counts[other]})"
        )
    for one, other in _alike(labels, lambda label: _plain(label).casefold()):
        logging.warning("%s holds labels that differ by case alone: %r, %r", path, one, other)
    if len(labels) == len(texts) > 2:
        logging.warning("%s: each of %d texts has a label of its own", path, len(texts))
    elif texts[0].name == f"{files.shown(path)}:1" and counts[texts[0].label or ""] == 1:
        logging.warning("%s:1: no other text has label %r; is it a header?", path, texts[0].label)
    return labels


def _plain(label: str) -> str:
    return " ".join(label.split())


def _alike(labels: Sequence[str], shown: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yields pairs of labels that are equal under `shown`, the first such label first."""
    first: dict[str, str] = {}
    for label in labels:
        if (before := first.setdefault(shown(label), label)) != label:
            yield before, label


def check_labels(texts: Sequence[Text], labels: Sequence[str]) -> None:
    """Raises if the label of a text is not in `labels`."""
    known = set(labels)
    for item in texts:
        if item.label not in known:
            more = ", ..." if len(labels) > _SHOWN else ""
            listed = ", ".join(labels[:_SHOWN]) + more
            raise ValueError(
                f"{item.name} must have a label of the training texts ({listed}), "
                f"got {item.label!r}"
            )


def _from_lines(path: str) -> Iterator[Text]:
    for position, line in _lines(text.Source.from_path(path)):
        label, tab, content = line.partition("\t")
        if not tab:
            raise ValueError(f"{position} must be label<TAB>text, got no tab in {_short(line)!r}")
        if not label.strip():
            raise ValueError(f"{position} must begin with a label, got {label!r}")
        if "\t" in content:
            raise ValueError(
                f"{position} must have one tab; one within a text is written \\t, "
                f"got another in {_short(content)!r}"
            )
        yield _checked(Text(position, vocabulary.unescaped(content, position), label))


def _from_folders(path: str) -> Iterator[Text]:
    for label in _names(path):
        folder = f"{path.rstrip('/')}/{label}"
        if not files.is_folder(folder):
            raise ValueError(f"{path} must hold a folder for each label, got the file {label}")
        yield from (item._replace(label=label) for item in _from_folder(folder))


def _from_folder(path: str) -> Iterator[Text]:
    for name in _names(path):
        file = f"{path.rstrip('/')}/{name}"
        if files.is_folder(file):
            raise ValueError(f"{path} must hold a file for each text, got the folder {name}")
        source = text.Source.from_path(file)
        with text.Reader(source) as reader:
            yield _checked(Text(source.name, text.decode(text.Piece(reader.whole(), source.name))))


def _names(folder: str) -> list[str]:
    return [name for name in files.names(folder) if not name.startswith(".")]


def _lines(source: text.Source) -> Iterator[tuple[str, str]]:
    """Yields ("FILE:line", line) for each line of a file, without its line end."""
    with text.Reader(source) as reader:
        number, rest = 1, [b""]  # parts of a line that is longer than a piece
        for piece in reader.pieces():
            first, *others = piece.data.split(b"\n")
            rest.append(first)
            text.check_whole(f"{source.name}:{number}", sum(map(len, rest)))
            for other in others:
                yield _decoded(b"".join(rest), source.name, number)
                number, rest = number + 1, [other]
        last = b"".join(rest)
    if last:
        yield _decoded(last, source.name, number)


def _decoded(line: bytes, name: str, number: int) -> tuple[str, str]:
    position = f"{name}:{number}"
    try:
        decoded = line.removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise ValueError(
            f"{position} must be UTF-8, got byte 0x{wrong:02x} at {error.start}"
        ) from error
    return position, decoded


def _checked(item: Text) -> Text:
    if not item.content.strip():
        raise ValueError(f"{item.name} must hold a text, got an empty one")
    return item


def _short(line: str) -> str:
    return line if len(line) <= 40 else line[:40] + "..."
