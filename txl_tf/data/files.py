"""File access: local paths by the standard library, others (gs://...) by TensorFlow.

TensorFlow takes seconds to import and is not fork-safe: it is loaded for remote paths only.
"""

import contextlib
import glob as glob_lib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

_Read = TypeVar("_Read")

_SCHEME = re.compile("([A-Za-z][A-Za-z0-9.]*)://")  # as in TensorFlow
_PATTERN = re.compile(r"[][*?\\]")


def _remote(path: str) -> Any:
    """Returns `tf.io.gfile` for a path with a registered scheme."""
    import tensorflow as tf  # see above

    match = _SCHEME.match(path)
    known = sorted(filter(None, tf.io.gfile.get_registered_schemes()))
    if match and match[1] not in known:
        choices = ", ".join(f"{scheme}://" for scheme in known)
        raise ValueError(f"path must be local or begin with one of {choices}, got {path}")
    return tf.io.gfile


def is_remote(path: str) -> bool:
    """Whether a path has a scheme, as gs://bucket/name has."""
    return _SCHEME.match(path) is not None


def check_plain(name: str, path: str) -> None:
    """Raises if a path is unusable for TensorFlow's checkpoints.

    They look for their files by glob patterns that begin with the path: in run[1] they would find,
    and delete, those of run1.

    Args:
      name: of the argument.
      path: its value.

    Raises:
      ValueError: it has a wildcard character, or is not UTF-8.
    """
    if _PATTERN.search(path):
        raise ValueError(
            f"{name} must have none of [ ] * ? and \\ in its path, which TensorFlow's checkpoints "
            f"treat as wildcards, got {path}; choose another name"
        )
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must have a name in UTF-8, got {path!a}") from error


def check_no_folder(path: str) -> None:
    """Raises if the path of a file is a folder."""
    if is_folder(path):
        raise ValueError(f"{path} must be a file, got a folder")


def shown(path: str) -> str:
    r"""Returns a path for messages and JSON; bytes that are not UTF-8 are escaped as \xe9."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def open_bytes(path: str, mode: str = "rb") -> IO[bytes]:
    """Opens a file for reading ("rb"), writing ("wb") or appending ("ab")."""
    return _remote(path).GFile(path, mode) if is_remote(path) else open(path, mode)


def read_bytes(path: str) -> bytes:
    """Returns the contents of a small file.

    Raises:
      ValueError: it does not exist, or is a folder.
    """
    check_no_folder(path)
    if not exists(path):
        raise ValueError(f"{path} must be a file, got no such file")
    with open_bytes(path) as file:
        return file.read()


def read_text(path: str) -> str:
    """Returns the text of a small UTF-8 file, line ends unchanged.

    Raises:
      ValueError: it does not exist or is not UTF-8; names the file and the byte.
    """
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8, got an invalid byte at {error.start}") from error


def read_json(path: str, from_json: Callable[[str], _Read]) -> _Read:
    """Returns `from_json` of the text of a small JSON file.

    Raises:
      ValueError: the file does not exist or is not UTF-8, or `from_json` raised; names the file.
    """
    content = read_text(path)
    try:
        return from_json(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_bytes(path: str, data: bytes) -> None:
    """Writes a small file; errors name it, unlike Python's own for a full disk."""
    try:
        with open_bytes(path, "wb") as file:
            file.write(data)
    except OSError as error:
        error.filename = error.filename or path
        raise


def digest(file: IO[bytes]) -> str:
    """Returns the SHA-256 of the rest of a file, as `sha256sum` prints it."""
    sha256 = hashlib.sha256()
    while part := file.read(1 << 20):
        sha256.update(part)
    return sha256.hexdigest()


def glob(pattern: str) -> list[str]:
    """Returns the matching paths, sorted; "**" matches any number of folders, also none.

    Wildcards do not match a leading dot.
    """
    if pattern.endswith("/**"):
        pattern += "/*"
    return sorted(set(_remote_glob(pattern) if is_remote(pattern) else _local_glob(pattern)))


def _local_glob(pattern: str) -> list[str]:
    return glob_lib.glob(pattern, recursive=True)


def _remote_glob(pattern: str) -> list[str]:
    """As `_local_glob`; TensorFlow's own treats "**" as "*" and matches hidden names."""
    above, deep, below = pattern.partition("/**/")
    with _utf8_names(pattern):
        found = _remote(above).glob(above)
        walked = [folder for top in found if deep for folder, *_ in _remote(top).walk(top)]
    if deep:
        folders = [folder.rstrip("/") for folder in walked]
        found = [path for folder in folders for path in _remote_glob(f"{folder}/{below}")]
    return [path for path in found if "/." not in path or "/." in pattern]


def exists(path: str) -> bool:
    """Whether a file or a folder exists."""
    return _remote(path).exists(path) if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
    """Whether a folder exists."""
    return _remote(path).isdir(path) if is_remote(path) else os.path.isdir(path)


def size(path: str) -> int:
    """Returns the size of a file in bytes."""
    return _remote(path).stat(path).length if is_remote(path) else os.path.getsize(path)


def names(folder: str) -> list[str]:
    """Returns the names in a folder, sorted."""
    if not is_remote(folder):
        return sorted(os.listdir(folder))
    with _utf8_names(folder):
        return sorted(name.rstrip("/") for name in _remote(folder).listdir(folder))


@contextlib.contextmanager
def _utf8_names(path: str) -> Iterator[None]:
    """Names the path in the error for names that TensorFlow cannot decode."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"names at {path} must be UTF-8, got {error.object!r}") from error


def make_folder(path: str) -> None:
    """Creates a folder and its missing parents."""
    if is_remote(path):
        _remote(path).makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def rename(source: str, target: str) -> None:
    """Renames a file or a folder, atomically if local; replaces an existing file."""
    if is_remote(source):
        _remote(source).rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Removes a file."""
    if is_remote(path):
        _remote(path).remove(path)
    else:
        os.remove(path)


def remove_folder(path: str) -> None:
    """Removes a folder and its contents."""
    if is_remote(path):
        _remote(path).rmtree(path)
    else:
        shutil.rmtree(path)


def resolved(path: str) -> str:
    """Returns a path without a trailing slash, and the target of a symbolic link."""
    shortened = path.rstrip("/")
    if is_remote(path) or not (
        os.path.islink(shortened) or os.path.basename(shortened) in ("", ".", "..")
    ):
        return shortened
    return os.path.realpath(path)
