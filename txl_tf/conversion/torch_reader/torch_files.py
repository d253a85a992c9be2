"""PyTorch files without PyTorch: both formats of `torch.save`, read as data.

Since PyTorch 1.6 a file is a zip archive: a pickle `data.pkl`, and a member `data/KEY` for each
storage. Older files are a sequence of pickles (a magic number, a version, system information, the
object, the keys of the storages), then the storages, each after its length.

See `restricted_unpickler` for the allowed content of a pickle.
"""

import contextlib
import io
import zipfile
from typing import IO, Any

import numpy as np

from txl_tf.conversion.torch_reader import errors, restricted_unpickler, seekable, storages
from txl_tf.conversion.torch_reader.allowlist import Name, Record
from txl_tf.conversion.torch_reader.errors import UnsafeFileError, shown

MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_HEAD = 64  # bytes; the pickle of the magic number is shorter
_ZIP = b"PK\x03\x04"
_WHAT = "PyTorch (from torch.save)"
_HOLDERS = ("model_state", "state_dict", "model")  # NVIDIA's name first
_MOST_TENSORS = 100_000
_LONGEST_NAME = 1000


def load(path: str, *, tensors: bool = True) -> Any:
    """Returns the contents of a file of `torch.save`.

    Tensors are NumPy arrays and share memory as they did; bfloat16 becomes float32. Dicts of any
    kind are dicts, and objects of known classes are `Record`s.

    Args:
      path: a file, local or remote.
      tensors: whether to read tensors; otherwise each is None.

    Raises:
      ValueError: the file is damaged, or holds more than plain data; names the file and the name.
    """
    with seekable.opened(path) as (file, size), errors.naming(path, _WHAT):
        is_zip = file.read(len(_ZIP)) == _ZIP
        file.seek(0)
        return (_load_zip if is_zip else _load_legacy)(file, size, tensors)


def is_torch(path: str) -> bool:
    """Whether a file looks like one for `load`, by its first bytes."""
    with seekable.opened(path) as (file, _):
        head = file.read(_HEAD)
    with contextlib.suppress(Exception):  # not a pickle, or another one
        return (
            head.startswith(_ZIP)
            or restricted_unpickler.Unpickler(io.BytesIO(head), len(head)).load() == MAGIC
        )
    return False


def state_dict(path: str) -> dict[str, np.ndarray]:
    """Returns the tensors of a model by name.

    They may be the whole content, an entry of it ("model_state" as in NVIDIA's, "state_dict" or
    "model"), or those of a pickled module, as in the original code.

    Raises:
      ValueError: as `load`; or the file has no such tensors.
    """
    held = load(path)
    for _ in _HOLDERS:  # holders may be nested, to this depth
        held = _holder(held)
    with errors.naming(path, _WHAT):
        found = _module_tensors(held) if isinstance(held, Record) else held
        if not isinstance(found, dict):
            raise UnsafeFileError(f"must hold tensors by name, got {type(found).__name__}")
        if not found:
            raise UnsafeFileError("must hold tensors by name, got none")
        for name, value in found.items():
            if not isinstance(name, str) or not isinstance(value, np.ndarray):
                entry = f"{type(value).__name__} as entry {shown(str(name)[:200])}"
                raise UnsafeFileError(f"must hold tensors by name, got {entry}")
        return found


def _holder(held: Any) -> Any:
    """Returns the entry of a checkpoint that is or has the state dict; else `held` itself."""
    entries = [held.get(name) for name in _HOLDERS] if isinstance(held, dict) else []
    return next((entry for entry in entries if isinstance(entry, (dict, Record))), held)


def _module_tensors(module: Record) -> dict[str, Any]:
    """Returns the `state_dict` of a module."""
    found: dict[str, Any] = {}
    queue = [("", module)]
    for prefix, part in queue:  # grows in the loop
        fields = part.fields if isinstance(part, Record) else {}
        if not isinstance(fields.get("_parameters"), dict) or len(prefix) > _LONGEST_NAME:
            what = part.path if isinstance(part, Record) else type(part).__name__
            raise UnsafeFileError(
                f"must hold tensors by name, got {shown(what)} without parameters"
            )
        unsaved = fields.get("_non_persistent_buffers_set") or ()
        buffers = {k: v for k, v in (fields.get("_buffers") or {}).items() if k not in unsaved}
        own = fields["_parameters"] | buffers
        found |= {f"{prefix}{name}": v for name, v in own.items() if v is not None}
        parts = [(n, p) for n, p in (fields.get("_modules") or {}).items() if p is not None]
        queue += [(f"{prefix}{name}.", inner) for name, inner in parts]
        if max(len(found), len(queue)) > _MOST_TENSORS:
            raise UnsafeFileError(f"must hold at most {_MOST_TENSORS} tensors, got more")
    return found


class _Unpickler(restricted_unpickler.Unpickler):
    """Unpickler of tensors whose storages are elsewhere in the file.

    Attributes:
      storages: by key, to be filled.
    """

    def __init__(self, file: IO[bytes], size: int, room: int, wanted: bool):
        super().__init__(file, size)
        self.storages: dict[str, storages.Storage] = {}
        self._parts: dict[str, storages.Storage] = {}
        self._room, self._wanted = room, wanted

    def persistent_load(self, pid: Any) -> Any:
        kind = pid[0] if isinstance(pid, tuple) and pid else None
        if kind == "module" and isinstance(pid[1], Name):  # its source code follows
            return pid[1]
        if kind != "storage" or len(pid) not in (5, 6):
            raise UnsafeFileError("must only refer to storages, got another persistent id")
        storage = self._storage(pid[1], pid[2], pid[4])
        view = pid[5] if len(pid) == 6 else None
        if view is None:
            return storage
        key, offset, numel = view
        return self._parts.setdefault(_key(key), storage.part(offset, numel))

    def _storage(self, name: Any, key: Any, numel: Any) -> storages.Storage:
        kind = storages.KINDS.get(name.path) if isinstance(name, Name) else None
        if kind is None:
            raise UnsafeFileError("must hold storages of a known type, got another")
        known = self.storages.get(_key(key))
        if known is None:
            fits = type(numel) is int and 0 <= numel * kind.width <= self._room
            if not fits:
                raise UnsafeFileError(
                    f"must hold storages no larger than the file, got {shown(key)} of "
                    f"{numel if type(numel) is int and numel < 1 << 62 else 'many'} numbers"
                )
            self._room -= numel * kind.width
            known = storages.Storage.empty(kind, numel, wanted=self._wanted)
            self.storages[key] = known
        if known.kind != kind or known.numel != numel:
            raise UnsafeFileError(
                f"must hold storages of one type and size, got two of {shown(key)}"
            )
        return known


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise UnsafeFileError(f"must name its storages by text, got {type(value).__name__}")
    return value


def _load_legacy(file: IO[bytes], size: int, wanted: bool) -> Any:
    def load_next() -> Any:
        return restricted_unpickler.Unpickler(file, size).load()

    magic, version, _ = load_next(), load_next(), load_next()
    if magic != MAGIC or version != _VERSION:
        raise UnsafeFileError("must be a file of torch.save, got another pickle")
    unpickler = _Unpickler(file, size, size, wanted)
    held = unpickler.load()
    if not wanted:
        return held
    missing = dict(unpickler.storages)
    for key in load_next():
        storage = missing.pop(_key(key), None)
        if storage is None:
            raise UnsafeFileError(f"must hold each storage that is used once, got {shown(key)}")
        numel = int.from_bytes(file.read(8), "little")  # like the elements, on all machines
        if numel != storage.numel:
            raise UnsafeFileError(f"must hold {storage.numel} numbers in {shown(key)}, got {numel}")
        storage.fill(file, "little")
    if missing:
        raise UnsafeFileError(f"must hold the storage {shown(next(iter(missing)))}, got none")
    return held


def _load_zip(file: IO[bytes], size: int, wanted: bool) -> Any:
    archive = zipfile.ZipFile(file)
    roots = [n.removesuffix("data.pkl") for n in archive.namelist() if _is_pickle(n)]
    if len(roots) != 1:
        raise UnsafeFileError(f"must hold one data.pkl, got {len(roots)}: not a file of torch.save")
    (root,) = roots
    order = "little"
    if f"{root}byteorder" in archive.namelist():
        order = _member(archive, f"{root}byteorder", size).decode("ascii")
    if order not in ("little", "big"):
        raise UnsafeFileError(f"must have byteorder little or big, got {shown(order)}")
    pickled = _member(archive, f"{root}data.pkl", size)
    unpickler = _Unpickler(io.BytesIO(pickled), len(pickled), size, wanted)
    held = unpickler.load()
    for key, storage in unpickler.storages.items() if wanted else ():
        info = _info(archive, f"{root}data/{key}", size)
        if info.file_size != storage.size:
            raise UnsafeFileError(f"must hold {storage.size} bytes in {key}, got {info.file_size}")
        with archive.open(info) as member:
            storage.fill(member, order)
            member.read(1)  # reaches the end, where the checksum is verified
    return held


def _is_pickle(name: str) -> bool:
    return name == "data.pkl" or name.count("/") == 1 and name.endswith("/data.pkl")


def _info(archive: zipfile.ZipFile, name: str, size: int) -> zipfile.ZipInfo:
    """Returns a member whose size in memory is at most its size in the file."""
    info = archive.NameToInfo.get(name)
    if info is None:
        raise UnsafeFileError(f"must hold the storage {shown(name)}, got none")
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
        raise UnsafeFileError(f"must hold uncompressed members, got {shown(name)} compressed")
    return info


def _member(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    return archive.read(_info(archive, name, size))
