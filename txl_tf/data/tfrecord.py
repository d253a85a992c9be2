"""TFRecord files of `tf.train.Example` without TensorFlow, which takes seconds to import.

A file is a sequence of records: length (8 bytes), masked CRC-32C of the length (4), data,
masked CRC-32C of the data (4); all little-endian. TensorFlow checks both sums.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping

import google_crc32c
import numpy as np

from txl_tf.data import files


class RecordWriter:
    """Writes records to a file; a context manager."""

    def __init__(self, path: str):
        self._file = files.open_bytes(path, "wb")

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def write(self, record: bytes) -> None:
        """Appends a record."""
        length = struct.pack("<Q", len(record))
        self._file.write(length + _masked_sum(length) + record + _masked_sum(record))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def records(path: str, first: int = 0) -> Iterator[bytes]:
    """Yields the records of a file from number `first` on; earlier data is not checked.

    Raises:
      ValueError: the file is truncated or damaged; the message names it.
    """
    with files.open_bytes(path) as file:
        for number in itertools.count():
            length = file.read(8)
            if not length:
                return
            intact = file.read(4) == _masked_sum(length)
            (size,) = struct.unpack("<Q", length) if intact else (0,)
            if intact and number < first:
                file.read(size + 4)  # seeking beyond the end fails in some file systems
                continue
            record = file.read(size)
            if not intact or file.read(4) != _masked_sum(record):
                raise ValueError(
                    f"{path} must be a whole TFRecord file, got damage in record {number}"
                )
            yield record


def example(features: Mapping[str, np.ndarray]) -> bytes:
    """Returns a serialized `tf.train.Example` of lists of non-negative integers.

    Protocol buffers take Python integers one by one, 10 million per second; NumPy packs them
    faster. 1 and 3 are the field numbers in `Example`, `Features`, `Feature` and `Int64List`.
    """
    entries = []
    for name, values in sorted(features.items()):
        feature = _field(3, _field(1, varints(values)) if len(values) else b"")
        entries.append(_field(1, _field(1, name.encode("utf-8")) + _field(2, feature)))
    return _field(1, b"".join(entries))


def _field(number: int, content: bytes) -> bytes:
    """Returns a length-delimited protocol buffer field: a string, message or packed list."""
    key, length = bytes([number << 3 | 2]), len(content)
    while length > 127:
        key, length = key + bytes([length & 127 | 128]), length >> 7
    return key + bytes([length]) + content


def varints(values: np.ndarray) -> bytes:
    """Returns non-negative integers as base-128 varints: 7 bits per byte, lowest first.

    All bytes of a number except the last have the top bit set: 300 is 0b10101100 0b00000010.
    """
    largest = int(values.max(initial=0))
    if largest < 128:
        return values.astype(np.uint8).tobytes()
    width = -(-largest.bit_length() // 7)
    word = np.dtype("<u2" if width == 2 else "<u4" if width <= 4 else "<u8").type
    rest = values.astype(word)
    packed, used = rest & word(127), np.ones(len(values), word)  # a number's bytes side by side
    for i in range(8, 8 * width, 8):
        more = rest > 127
        used |= more.astype(word) << word(i)
        packed |= more.astype(word) << word(i - 1)
        rest >>= word(7)
        packed |= (rest & word(127)) << word(i)
    return packed.view(np.uint8)[np.flatnonzero(used.view(bool))].tobytes()


def _masked_sum(data: bytes) -> bytes:
    """Returns TFRecord's checksum: a rotated CRC plus a constant, as the data may hold CRCs."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
