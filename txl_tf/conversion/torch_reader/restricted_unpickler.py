"""Restricted unpickling: pickles are read as data.

`Unpickler` builds numbers, text, lists, dicts and `allowlist.Record`s. It calls nothing that a
pickle names: see `allowlist`.
"""

import pickle
import struct
from collections.abc import Callable
from typing import IO, Any

from txl_tf.conversion.torch_reader import allowlist, errors, seekable
from txl_tf.conversion.torch_reader.allowlist import Record
from txl_tf.conversion.torch_reader.errors import UnsafeFileError

_ANY_LENGTH = 1 << 62
_READ_AHEAD = 1 << 16  # larger reads are checked against the file size first


def load(path: str, *, longest: int = _ANY_LENGTH) -> Any:
    """Returns the contents of a pickle: plain values and `Record`s.

    Python 2 strings are decoded as UTF-8, or stay bytes if invalid.

    Args:
      path: a file, local or remote.
      longest: strings of more bytes are skipped and read as empty.

    Raises:
      ValueError: the file is damaged, or holds more than plain data; names the file and the name.
    """
    with seekable.opened(path) as (file, size), errors.naming(path, "a pickle"):
        return Unpickler(file, size, longest).load()


class _Bounded:
    """A file whose reads never exceed its size, as reading allocates the memory first."""

    def __init__(self, file: IO[bytes], size: int):
        self.file, self.size = file, size

    def readline(self) -> bytes:
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("missing end of line")
        return line

    def read(self, size: int) -> bytes:
        if size > _READ_AHEAD and size > self.size - self.file.tell():
            raise EOFError(f"missing bytes of a string, {size} wanted")
        return self.file.read(size)


class Unpickler(pickle._Unpickler):
    """The standard library's Python unpickler, with every acting step replaced.

    The C version would call `__setstate__` and set attributes of whatever a pickle builds, and
    allocate the memory that a pickle claims. The steps left unchanged push plain values.

    Args:
      file: positioned at a pickle, and after it once read.
      size: of the file in bytes.
      longest: see `load`.
    """

    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: IO[bytes], size: int, longest: int = _ANY_LENGTH):
        super().__init__(_Bounded(file, size))
        self._file, self._longest = file, longest

    def find_class(self, module: str, name: str) -> Any:
        return allowlist.find(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise UnsafeFileError("must be a self-contained pickle, got one with external parts")

    def _decode_string(self, value: bytes) -> Any:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value


_Step = Callable[[Any], None]


def _step(*opcodes: bytes) -> Callable[[_Step], _Step]:
    def register(step: _Step) -> _Step:
        Unpickler.dispatch.update({opcode[0]: step for opcode in opcodes})
        return step

    return register


@_step(pickle.EXT1, pickle.EXT2, pickle.EXT4, *(bytes([code]) for code in (0x96, 0x97, 0x98)))
def _refuse(unpickler: Any) -> None:
    raise UnsafeFileError(
        "must hold tensors and plain data only, got a registered or external object"
    )


@_step(pickle.REDUCE, pickle.NEWOBJ)
def _call(unpickler: Any) -> None:
    args = unpickler.stack.pop()
    unpickler.stack[-1] = allowlist.call(unpickler.stack[-1], args)


@_step(pickle.NEWOBJ_EX)
def _call_with_keywords(unpickler: Any) -> None:
    if unpickler.stack.pop() != {}:
        raise UnsafeFileError("must make objects without keywords, got some")
    _call(unpickler)


@_step(pickle.INST)
def _instance(unpickler: Any) -> None:
    module, name = (unpickler.readline()[:-1].decode("ascii") for _ in range(2))
    args = tuple(unpickler.pop_mark())
    unpickler.append(allowlist.call(unpickler.find_class(module, name), args))


@_step(pickle.OBJ)
def _object(unpickler: Any) -> None:
    name, *args = unpickler.pop_mark()
    unpickler.append(allowlist.call(name, tuple(args)))


@_step(pickle.BUILD)
def _build(unpickler: Any) -> None:
    state = unpickler.stack.pop()
    target = unpickler.stack[-1]
    if isinstance(target, dict):
        return  # attributes of a dict, such as a state dict's versions
    if not isinstance(target, Record) or target.state is not None:
        raise UnsafeFileError(
            f"must set the state of objects once, got one for {type(target).__name__}"
        )
    has_slots = isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict)
    target.state = state[0] if has_slots else state


@_step(pickle.APPEND)
def _append(unpickler: Any) -> None:
    item = unpickler.stack.pop()
    _target(unpickler, list).append(item)


@_step(pickle.APPENDS)
def _extend(unpickler: Any) -> None:
    items = unpickler.pop_mark()
    _target(unpickler, list).extend(items)


@_step(pickle.SETITEM)
def _set_item(unpickler: Any) -> None:
    value = unpickler.stack.pop()
    key = unpickler.stack.pop()
    _target(unpickler, dict)[allowlist.key(key)] = value


@_step(pickle.SETITEMS)
def _set_items(unpickler: Any) -> None:
    items = unpickler.pop_mark()
    _target(unpickler, dict).update(allowlist.pairs(items))


@_step(pickle.DICT)
def _dict(unpickler: Any) -> None:
    items = unpickler.pop_mark()  # first: it replaces `append`
    unpickler.append(allowlist.pairs(items))


@_step(pickle.ADDITEMS)
def _add_items(unpickler: Any) -> None:
    items = unpickler.pop_mark()
    _target(unpickler, set).update(map(allowlist.key, items))


@_step(pickle.FROZENSET)
def _frozen_set(unpickler: Any) -> None:
    items = unpickler.pop_mark()
    unpickler.append(frozenset(map(allowlist.key, items)))


def _target(unpickler: Any, kind: type) -> Any:
    target = unpickler.stack[-1]
    if type(target) is not kind:
        raise UnsafeFileError(f"must fill a {kind.__name__}, got a {type(target).__name__}")
    return target


def _string_step(layout: str, decode: Callable[[Any, bytes], Any]) -> _Step:
    """Returns a step for a length-prefixed string."""

    def step(unpickler: Any) -> None:
        (size,) = struct.unpack(layout, unpickler.read(struct.calcsize(layout)))
        if size > unpickler._longest and not unpickler._unframer.current_frame:
            unpickler._file.seek(size, 1)
            size = 0
        data = unpickler.read(size) if size else b""
        if len(data) < size:
            raise EOFError(f"missing {size - len(data)} bytes of a string")
        unpickler.append(decode(unpickler, data))

    return step


def _as_text(_: Any, data: bytes) -> str:
    return str(data, "utf-8", "surrogatepass")


_step(pickle.BINSTRING)(_string_step("<I", Unpickler._decode_string))
_step(pickle.BINUNICODE)(_string_step("<I", _as_text))
_step(pickle.BINUNICODE8)(_string_step("<Q", _as_text))
_step(pickle.BINBYTES)(_string_step("<I", lambda _, data: data))
_step(pickle.BINBYTES8)(_string_step("<Q", lambda _, data: data))
