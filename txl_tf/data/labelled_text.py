r"""Texts with labels, and texts to be labelled, from files or folders; every mistake has its place.

A file has one text a line, with a label and a tab before it where it is labelled. Within a text a
newline, a tab, a carriage return and a backslash are written \n, \t, \r and \\, as in `vocab.txt`
(so \s is a space). In a folder, each folder is a label and each file in it one text as it is; texts
without labels are files side by side. Names that begin with a dot are passed over. All is UTF-8; a
file may be compressed.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from txl_tf.data import files, text, vocabulary

_SHOWN = 20  # labels, at most, that a message lists


class Text(NamedTuple):
    """A text.

    Attributes:
      name: the place of its line, as "FILE:12", or its path.
      content: characters, at least one of them no white space.
      label: None where it has none.
    """

    name: str
    content: str
    label: str | None = None


def read(path: str) -> list[Text]:
    """The labelled texts of a file, in order, or of a folder, sorted by their paths.

    Raises:
      ValueError: something is not as it should be; names the file, and the line.
    """
    found = list(_of_folders(path) if files.is_folder(path) else _of_lines(path))
    if not found:
        raise ValueError(f"{path} must hold labelled texts, got none")
    return found


def read_unlabelled(path: str) -> Iterator[Text]:
    """The texts of a file or a folder without labels; see `read`."""
    if files.is_folder(path):
        yield from _of_folder(path)
    else:
        yield from of_lines(text.Source.from_path(path))


def of_lines(source: text.Source) -> Iterator[Text]:
    """One text a line, without labels.

    Raises:
      ValueError: a line has a tab, as one with a label has; names it.
    """
    for place, line in _lines(source):
        before, tab, _ = line.partition("\t")
        if tab:
            raise ValueError(
                f"{place} must be a text without a label, in which a tab is written \\t, "
                f"got one after {_short(before)!r}"
            )
        yield _checked(Text(place, vocabulary.unescaped(line, place)))


def labels_of(texts: Sequence[Text], path: str) -> tuple[str, ...]:
    """The labels of texts for training, sorted; warns of those that look like a mistake.

    Raises:
      ValueError: there is but one, or two can hardly be told apart.
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
    """Labels that are shown alike, with the first such one."""
    first: dict[str, str] = {}
    for label in labels:
        if (before := first.setdefault(shown(label), label)) != label:
            yield before, label


def check_labels(texts: Sequence[Text], labels: Sequence[str]) -> None:
    """Refuses a text whose label is none of `labels`."""
    known = set(labels)
    for found in texts:
        if found.label not in known:
            more = ", ..." if len(labels) > _SHOWN else ""
            listed = ", ".join(labels[:_SHOWN]) + more
            raise ValueError(
                f"{found.name} must have a label of the training texts ({listed}), "
                f"got {found.label!r}"
            )


def _of_lines(path: str) -> Iterator[Text]:
    for place, line in _lines(text.Source.from_path(path)):
        label, tab, content = line.partition("\t")
        if not tab:
            raise ValueError(f"{place} must read label<TAB>text, got no tab in {_short(line)!r}")
        if not label.strip():
            raise ValueError(f"{place} must begin with a label, got {label!r}")
        if "\t" in content:
            raise ValueError(
                f"{place} must have one tab; one within a text is written \\t, "
                f"got another in {_short(content)!r}"
            )
        yield _checked(Text(place, vocabulary.unescaped(content, place), label))


def _of_folders(path: str) -> Iterator[Text]:
    for label in _names(path):
        folder = f"{path.rstrip('/')}/{label}"
        if not files.is_folder(folder):
            raise ValueError(f"{path} must hold a folder for each label, got the file {label}")
        yield from (found._replace(label=label) for found in _of_folder(folder))


def _of_folder(path: str) -> Iterator[Text]:
    for name in _names(path):
        place = f"{path.rstrip('/')}/{name}"
        if files.is_folder(place):
            raise ValueError(f"{path} must hold a file for each text, got the folder {name}")
        source = text.Source.from_path(place)
        with text.Reader(source) as reader:
            yield _checked(Text(source.name, text.decode(text.Piece(reader.whole(), source.name))))


def _names(folder: str) -> list[str]:
    return [name for name in files.names(folder) if not name.startswith(".")]


def _lines(source: text.Source) -> Iterator[tuple[str, str]]:
    """(place, line) of each line of a file, without its end."""
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
    place = f"{name}:{number}"
    try:
        decoded = line.removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise ValueError(
            f"{place} must be UTF-8, got byte 0x{wrong:02x} at {error.start}"
        ) from error
    return place, decoded


def _checked(found: Text) -> Text:
    if not found.content.strip():
        raise ValueError(f"{found.name} must hold a text, got an empty one")
    return found


def _short(line: str) -> str:
    return line if len(line) <= 40 else line[:40] + "..."
