"""Storages of a PyTorch file: flat arrays that its tensors view."""

import math
import sys
from typing import IO, Any, NamedTuple

import numpy as np

from txl_tf.conversion.torch_reader.errors import UnsafeFileError

_CHUNK = 1 << 24
BRAIN = "bfloat16"  # not in NumPy: the upper half of a float32


class Kind(NamedTuple):
    """Element type of a storage: bytes per element in the file, and dtype here."""

    width: int
    dtype: str


_TYPES = {
    "Double": Kind(8, "float64"),
    "Float": Kind(4, "float32"),
    "Half": Kind(2, "float16"),
    "BFloat16": Kind(2, BRAIN),
    "Long": Kind(8, "int64"),
    "Int": Kind(4, "int32"),
    "Short": Kind(2, "int16"),
    "Char": Kind(1, "int8"),
    "Byte": Kind(1, "uint8"),
    "Bool": Kind(1, "bool"),
}
KINDS = {f"{m}.{n}Storage": k for m in ("torch", "torch.cuda") for n, k in _TYPES.items()}


class Storage:
    """A flat array, read after the tensors that view it are made.

    Attributes:
      kind: element type.
      numel: number of elements.
      array: [numel], to be filled; None if not wanted.
    """

    def __init__(self, kind: Kind, numel: int, array: np.ndarray | None):
        self.kind, self.numel, self.array = kind, numel, array

    @classmethod
    def empty(cls, kind: Kind, numel: int, *, wanted: bool) -> "Storage":
        """Returns a storage to fill. The caller checks `numel` against the file."""
        dtype = "float32" if kind.dtype == BRAIN else kind.dtype
        return cls(kind, numel, np.empty(numel, dtype) if wanted else None)

    @property
    def size(self) -> int:
        """Size in the file in bytes."""
        return self.numel * self.kind.width

    def part(self, offset: int, numel: int) -> "Storage":
        """Returns a slice of this storage."""
        if not _is_count(offset) or not _is_count(numel) or offset + numel > self.numel:
            raise UnsafeFileError(f"must view parts inside their storage of {self.numel} numbers")
        array = None if self.array is None else self.array[offset : offset + numel]
        return Storage(self.kind, numel, array)

    def view(self, offset: int, size: Any, stride: Any) -> np.ndarray | None:
        """Returns a tensor that views this storage.

        Args:
          offset: of the first element.
          size: number of elements along each axis.
          stride: distance of neighbours along each axis, in elements.

        Raises:
          UnsafeFileError: the tensor is not inside the storage.
        """
        if not isinstance(size, tuple) or not isinstance(stride, tuple) or len(size) != len(stride):
            raise UnsafeFileError("must hold tensors with one size and stride per axis, got others")
        if not all(map(_is_count, (offset, *size, *stride))) or len(size) > 32:
            raise UnsafeFileError(
                "must hold tensors with sizes and strides of at least 0, got others"
            )
        count = math.prod(size)
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if count > self.numel or (count and last >= self.numel):
            raise UnsafeFileError(
                f"must hold tensors inside their storages, got {_short(size)} at {_short(offset)} "
                f"in a storage of {self.numel} numbers"
            )
        if self.array is None:
            return None
        if not count:
            return np.empty(size, self.array.dtype)
        width = self.array.itemsize
        strides = [s * width if n > 1 else 0 for n, s in zip(size, stride, strict=True)]
        return np.lib.stride_tricks.as_strided(self.array[offset:], size, strides)

    def fill(self, file: IO[bytes], byte_order: str) -> None:
        """Reads the elements from the file's current position.

        Raises:
          UnsafeFileError: the file is truncated.
        """
        if self.array is None:
            return
        raw = self.array.view(np.uint8)[self.array.nbytes - self.size :]
        for start in range(0, self.size, _CHUNK):
            data = _read(file, min(_CHUNK, self.size - start))
            raw[start : start + len(data)] = np.frombuffer(data, np.uint8)
        if byte_order != sys.byteorder and self.kind.width > 1:
            raw.view(f"u{self.kind.width}").byteswap(inplace=True)
        if self.kind.dtype == BRAIN:
            halves = raw.view(np.uint16)  # in the second half of the array
            self.array.view(np.uint32)[:] = halves.astype(np.uint32) << np.uint32(16)
        if self.kind.dtype == "bool":
            np.minimum(raw, 1, out=raw)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise UnsafeFileError(f"must be whole, got a storage with {size - len(data)} bytes missing")
    return data


def _short(value: Any) -> str:
    return str(value)[:100]
