"""Folders and files that programs make: checked before the work, whole or not there after it.

    with outputs.held("output_dir", path) as output:
        ...  # the work
        with output.filled() as folder:
            ...  # write into it

One process at a time holds an output. While it works there lie beside NAME a file that is locked,
.NAME.txl_tf-lock, and drafts, .NAME.RANDOM.txl_tf-draft. What a killed process left of them is
known by these names, which nobody else gives, and removed by whoever holds NAME next. Nothing else
is ever removed but an output that is replaced.

Remote folders ("gs://...") cannot be held, and what a killed process left there stays.
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
Check = Callable[[str, str], None]  # refuses the name and the path of what must not be replaced


@dataclasses.dataclass(frozen=True)
class Output:
    """A place that this process holds.

    Attributes:
      name: of the argument or flag that says where it is.
      path: where it is.
      check: refuses to replace what is there.
    """

    name: str
    path: str
    check: Check

    @contextlib.contextmanager
    def filled(self) -> Iterator[str]:
        """Gives an empty folder to fill, which takes the place of the output at the end.

        If an exception leaves the block, the output is as it was.
        """
        with draft(self.path) as folder:
            yield folder
            self.check(self.name, self.path)  # which nobody held against those who ask no lock
            _put(folder, self.path)


def check_new(name: str, path: str) -> None:
    """Refuses a folder that holds something, or a file of that name."""
    if files.exists(path) and (not files.is_folder(path) or files.names(path)):
        raise ValueError(f"{name} must be new or an empty folder, got {path}")


def checked(name: str, path: Path, check: Check = check_new, *, any_name: bool = False) -> str:
    """The path of an output that can be made; to be asked before any work. See `held`."""
    path = place(name, path, any_name=any_name)
    check(name, path)
    return path


def place(name: str, path: Path, *, any_name: bool = False, filled: bool = False) -> str:
    """The path that an argument stands for, as it can be written to.

    A symbolic link stands for its target, also one that is not there yet.

    Args:
      name: of the argument.
      path: its value.
      any_name: whether names may have what TensorFlow's checkpoints take for a pattern.
      filled: whether it is a folder that is filled where it is, not one that is put there whole.

    Raises:
      ValueError: nothing can be written there.
    """
    if not os.fspath(path):
        raise ValueError(f"{name} must be a path, got ''")
    path = files.resolved(os.fspath(path))
    if not any_name:
        files.check_plain(name, path)
    if files.is_remote(path):
        return path
    if os.path.islink(path):  # although links were followed
        raise ValueError(f"{name} must lead somewhere, got a loop of symbolic links at {path}")
    folder = path if filled else os.path.dirname(path)
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if folder and not os.path.isdir(folder):
        where = "be" if folder == path else "lie in"
        what = "a file" if os.path.exists(folder) else "a symbolic link to nothing"
        raise ValueError(f"{name} must {where} a folder, got {path}: {folder} is {what}")
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
      name: of the argument that says where it is, for messages.
      path: the folder or file to make.
      check: refuses to replace what is there; by default anything but an empty folder.
      any_name: see `place`.

    Raises:
      ValueError: nothing can be made there, something is there that must not be replaced, or
        another process makes it.
    """
    path = place(name, path, any_name=any_name)
    with contextlib.ExitStack() as stack:
        if not files.is_remote(path):
            stack.enter_context(parents(path))
            rule = f"{name} must be written by one process at a time"
            refusal = f"{rule}, got {path} while another one writes there"
            stack.enter_context(locks.held(_beside(path, _LOCK), refusal, removed=True))
        sweep(path)
        yield Output(name, checked(name, path, check, any_name=any_name), check)


@contextlib.contextmanager
def draft(path: str) -> Iterator[str]:
    """Gives an empty folder beside `path`, which is gone at the end unless it was renamed."""
    folder = _beside(path, f"{secrets.token_hex(4)}.{_DRAFT}")
    files.make_folder(folder)
    try:
        yield folder
    finally:
        if files.exists(folder):
            _remove(folder)


def write(path: str, data: bytes) -> None:
    """Writes a small file, whole or not at all; nobody else may do so at the same time."""
    files.check_no_folder(path)
    sweep(path)
    with draft(path) as folder:
        name = os.path.join(folder, os.path.basename(path))
        files.write_bytes(name, data)
        files.rename(name, path)


def sweep(path: str) -> None:
    """Clears up after a process that was killed while it held `path`; the caller holds it now."""
    parent = os.path.dirname(path) or "."
    ours = re.compile(rf"\.{re.escape(os.path.basename(path))}\.[0-9a-f]{{8}}\.({_DRAFT}|{_OLD})")
    found = files.names(parent) if files.is_folder(parent) else []
    for match in filter(None, map(ours.fullmatch, found)):
        leftover = os.path.join(os.path.dirname(path), match[0])
        if match[1] == _OLD and not files.exists(path):  # killed between the renames of `_put`
            files.rename(leftover, path)
        elif not files.is_remote(path):  # there somebody may be writing it now
            logging.info("removing %s, which a process left that was killed", leftover)
            _remove(leftover)


def _put(folder: str, path: str) -> None:
    """Gives a folder its name, in place of what has it."""
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
    """Removes what the result does not depend on: a failure is no reason to fail."""
    try:
        files.remove_folder(folder)
    except Exception as error:  # OSError, or of TensorFlow, which need not be loaded
        logging.warning("%s cannot be removed: %s", folder, error)


def _beside(path: str, ending: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{ending}")


@contextlib.contextmanager
def parents(path: str) -> Iterator[None]:
    """Makes the folders above `path`; those that are empty at the end go again."""
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
