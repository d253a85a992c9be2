"""Atomic outputs: checked before the work, complete or absent after it.

    with outputs.held("output_dir", path) as output:
        ...  # the work
        with output.filled() as folder:
            ...  # write into it

One process at a time holds an output. Meanwhile there are, beside NAME, a locked file
.NAME.txl_tf-lock and drafts .NAME.RANDOM.txl_tf-draft. Leftovers of a killed process are recognised
by these reserved names and removed by the next holder of NAME. Nothing else is ever removed except
an output that is replaced.

Remote folders ("gs://...") cannot be held, and leftovers of a killed process stay there.
"""

import contextlib
import dataclasses
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator

from absl import logging

from txl_tf.data import files, locks

_LOCK, _DRAFT, _OLD = "txl_tf-lock", "txl_tf-draft", "txl_tf-old"

Path = str | os.PathLike[str]
Check = Callable[[str, str], None]  # (name, path): raises if it must not be replaced


@dataclasses.dataclass(frozen=True)
class Output:
    """An output that this process holds.

    Attributes:
      name: of the argument or flag with the path.
      path: of the output.
      check: raises if the existing output must not be replaced.
    """

    name: str
    path: str
    check: Check

    @contextlib.contextmanager
    def filled(self) -> Iterator[str]:
        """Yields an empty folder to fill, which is renamed to the output at the end.

        If the block raises, the output is unchanged.
        """
        with draft(self.path) as folder:
            yield folder
            self.check(self.name, self.path)  # again: writers without locks may have come
            _put(folder, self.path)


def check_new(name: str, path: str) -> None:
    """Raises if the path is a file or a folder that is not empty."""
    if files.exists(path) and (not files.is_folder(path) or files.names(path)):
        raise ValueError(f"{name} must be new or an empty folder, got {path}")


def checked(name: str, path: Path, check: Check = check_new, *, any_name: bool = False) -> str:
    """Returns the path of an output that can be created; call it before any work. See `held`."""
    path = resolve(name, path, any_name=any_name)
    check(name, path)
    return path


def resolve(name: str, path: Path, *, any_name: bool = False, filled: bool = False) -> str:
    """Returns the path of an argument, resolved and writable.

    A symbolic link is resolved to its target, even a missing one.

    Args:
      name: of the argument.
      path: its value.
      any_name: whether to allow characters that TensorFlow's checkpoints treat as wildcards.
      filled: whether the folder is filled in place, rather than renamed from a draft.

    Raises:
      ValueError: the path cannot be written.
    """
    if not os.fspath(path):
        raise ValueError(f"{name} must be a path, got ''")
    path = files.resolved(os.fspath(path))
    if not any_name:
        files.check_plain(name, path)
    if files.is_remote(path):
        return path
    if os.path.islink(path):  # after resolution
        raise ValueError(f"{name} must be a path, got a loop of symbolic links at {path}")
    folder = path if filled else os.path.dirname(path)
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if folder and not os.path.isdir(folder):
        rule = "be" if folder == path else "lie in"
        kind = "a file" if os.path.exists(folder) else "a broken symbolic link"
        raise ValueError(f"{name} must {rule} a folder, got {path}: {folder} is {kind}")
    if not filled and os.path.isdir(path):
        if os.path.samefile(path, "."):
            raise ValueError(f"{name} must not be the working directory, got {path}; name another")
        if os.path.ismount(path):
            raise ValueError(f"{name} must not be a mount point, got {path}; name a folder in it")
    return path


@contextlib.contextmanager
def held(
    name: str, path: Path, check: Check = check_new, *, any_name: bool = False
) -> Iterator[Output]:
    """Holds an output for this process, from before the work to its end.

    Args:
      name: of the argument, for messages.
      path: of the file or folder to create.
      check: raises if an existing output must not be replaced; by default if it is not empty.
      any_name: see `resolve`.

    Raises:
      ValueError: the path cannot be written, the existing output must not be replaced, or another
        process is writing it.
    """
    path = resolve(name, path, any_name=any_name)
    with contextlib.ExitStack() as stack:
        if not files.is_remote(path):
            stack.enter_context(parents(path))
            rule = f"{name} must be written by one process at a time"
            refusal = f"{rule}, got {path} while another one writes there"
            stack.enter_context(locks.held(_beside(path, _LOCK), refusal, remove=True))
        sweep(path)
        check(name, path)  # under the lock: the previous holder may just have filled it
        yield Output(name, path, check)


@contextlib.contextmanager
def draft(path: str) -> Iterator[str]:
    """Yields an empty folder beside `path`, removed at the end unless it was renamed."""
    folder = _beside(path, f"{secrets.token_hex(4)}.{_DRAFT}")
    files.make_folder(folder)
    try:
        yield folder
    finally:
        if files.exists(folder):
            _remove(folder)


def write(path: str, data: bytes) -> None:
    """Writes a small file atomically; the caller must be its only writer."""
    files.check_no_folder(path)
    sweep(path)
    with draft(path) as folder:
        name = os.path.join(folder, os.path.basename(path))
        files.write_bytes(name, data)
        files.rename(name, path)


def sweep(path: str) -> None:
    """Removes leftovers of a killed holder of `path`; the caller must hold it."""
    parent = os.path.dirname(path) or "."
    ours = re.compile(rf"\.{re.escape(os.path.basename(path))}\.[0-9a-f]{{8}}\.({_DRAFT}|{_OLD})")
    present = files.names(parent) if files.is_folder(parent) else []
    for match in filter(None, map(ours.fullmatch, present)):
        leftover = os.path.join(os.path.dirname(path), match[0])
        if match[1] == _OLD and not files.exists(path):  # killed between the renames of `_put`
            files.rename(leftover, path)
        elif not files.is_remote(path):  # no locks there: it may be in use
            logging.info("removing %s, left by a killed process", leftover)
            _remove(leftover)


def _put(folder: str, path: str) -> None:
    """Renames a folder to `path`, replacing what is there."""
    if not files.is_remote(path) and files.exists(path):
        shutil.copymode(path, folder)
    if not (files.exists(path) and files.names(path)):
        files.rename(folder, path)
        return
    old = _beside(path, f"{secrets.token_hex(4)}.{_OLD}")
    try:
        files.rename(path, old)
        files.rename(folder, path)
    except BaseException:
        if files.exists(old) and not files.exists(path):
            files.rename(old, path)
        raise
    _remove(old)


def _remove(folder: str) -> None:
    """Removes a folder on a best-effort basis: a failure is only logged."""
    try:
        files.remove_folder(folder)
    except Exception as error:  # OSError or TensorFlow's, which may not be loaded
        logging.warning("%s cannot be removed: %s", folder, error)


def _beside(path: str, ending: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{ending}")


@contextlib.contextmanager
def parents(path: str) -> Iterator[None]:
    """Creates the parents of `path`; removes those that are empty at the end."""
    missing, above = [], os.path.dirname(path)
    while above and not os.path.exists(above):
        missing.append(above)
        above = os.path.dirname(above)
    if missing:
        os.makedirs(missing[0], exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for folder in missing:
                os.rmdir(folder)
