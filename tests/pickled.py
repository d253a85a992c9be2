"""Pickles and PyTorch files, assembled byte by byte so that tests need no PyTorch."""

import dataclasses
import struct
import zipfile
from typing import Any

from absl.testing import parameterized

import helpers
from txl_tf.conversion.torch_reader import restricted_unpickler

MAGIC = 0x1950A86A20F9469CFC6C


@dataclasses.dataclass(frozen=True)
class Global:
    """A class or function by its path."""

    path: str


@dataclasses.dataclass(frozen=True)
class Raw:
    """Raw opcodes."""

    code: bytes


@dataclasses.dataclass(frozen=True)
class Bytes2:
    """A string of Python 2."""

    data: bytes


@dataclasses.dataclass(frozen=True)
class Do:
    """Values, and the opcode that combines them into one."""

    values: tuple[Any, ...]
    opcode: bytes


def call(path, *args):
    return Do((Global(path), args), b"R")


def new(path, *args):
    return Do((Global(path), args), b"\x81")


def build(target, state):
    return Do((target, state), b"b")


def persistent(*pid):
    return Do((pid,), b"Q")


def made(path, **fields):
    """An object with attributes."""
    return build(new(path), fields)


def code(value):
    """Returns the opcodes of a value."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes([len(data)]) + data
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            data = value.encode("utf-8", "surrogatepass")
            return b"X" + struct.pack("<I", len(data)) + data
        case bytes():
            return b"B" + struct.pack("<I", len(value)) + value
        case Bytes2():
            return b"T" + struct.pack("<I", len(value.data)) + value.data
        case tuple():
            return b"(" + b"".join(map(code, value)) + b"t"
        case list():
            return b"](" + b"".join(map(code, value)) + b"e"
        case dict():
            return b"}(" + b"".join(code(k) + code(v) for k, v in value.items()) + b"u"
        case Global():
            return b"c" + "\n".join([*value.path.rsplit(".", 1), ""]).encode()
        case Raw():
            return value.code
        case Do():
            return b"".join(map(code, value.values)) + value.opcode
    raise TypeError(value)


def dumps(value):
    return b"\x80\x02" + code(value) + b"."


def storage(key, numel, kind="Float", view=()):
    """A reference to a storage; `view` as the old format has it."""
    return persistent("storage", Global(f"torch.{kind}Storage"), key, "cpu", numel, *view)


def tensor(source, size, stride, offset=0):
    hooks = call("collections.OrderedDict")
    return call("torch._utils._rebuild_tensor_v2", source, offset, size, stride, False, hooks)


def vector(key, numel, kind="Float"):
    return tensor(storage(key, numel, kind), (numel,), (1,))


def write_zip(path, value, storages, *, root="archive/", byteorder="little", compression=0):
    """Writes the format since PyTorch 1.6; `storages` are the bytes of each by key."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(f"{root}data.pkl", dumps(value))
        if byteorder:
            archive.writestr(f"{root}byteorder", byteorder)
        for key, data in storages.items():
            archive.writestr(f"{root}data/{key}", data)
        archive.writestr(f"{root}version", "3\n")


WIDTHS = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Short": 2, "Half": 2, "BFloat16": 2}


def write_legacy(path, value, storages, *, kinds=None):
    """Writes the format before PyTorch 1.6; `kinds` of storages other than Float, by key."""
    info = dict(protocol_version=1001, little_endian=True, type_sizes=dict(short=2, int=4, long=4))
    parts = [dumps(MAGIC), dumps(1001), dumps(info), dumps(value), dumps(list(storages))]
    for key, data in storages.items():
        width = WIDTHS.get((kinds or {}).get(key, "Float"), 1)
        parts += [struct.pack("<q", len(data) // width), data]
    with open(path, "wb") as file:
        file.write(b"".join(parts))


class PickleFileTest(parameterized.TestCase):
    """Base class of tests that write a pickle and read it; nothing may create `canary`."""

    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.canary = self.folder / "canary"
        self.path = self.folder / "file.pkl"

    def load(self, data, **options):
        self.path.write_bytes(data)
        return restricted_unpickler.load(str(self.path), **options)

    def refuse(self, data, message):
        """Asserts that a pickle is rejected by an error that names the file, and nothing ran."""
        with self.assertRaisesRegex(ValueError, message) as caught:
            self.load(data)
        text = str(caught.exception)
        self.assertStartsWith(text, str(self.path))
        self.assertNotIn("\n", text)
        self.assertFalse(self.canary.exists())
