"""TFRecord files of `tf.train.Example` without TensorFlow, which takes seconds to import.

A file is a sequence of records: length (8 bytes), masked CRC-32C of the length (4), data,
masked CRC-32C of the data (4); all little-endian. TensorFlow checks both sums.
"""

import functools
import itertools
import struct
from collections.abc import Iterator, Mapping

import numpy as np

from txl_tf.data import files

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_BLOCK = 512  # bytes summed at once: one table of 512 kB
_FEW = 16  # bytes up to which they are summed one by one
_ROWS = np.arange(_BLOCK) * 256  # start of each position's row in that table


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
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C of the data, computed by blocks.

    The register is linear in the bytes: the sum of a block is the exclusive or of the tabulated
    contributions of its bytes, and leading zeros change nothing. The initial value, all ones,
    equals inverting the first four bytes.
    """
    positions, carry, step = _tables()
    if len(data) <= _FEW:
        crc = 0xFFFFFFFF
        for byte in data:
            crc = step[(crc ^ byte) & 255] ^ crc >> 8
        return crc ^ 0xFFFFFFFF
    padded = np.zeros(-(-len(data) // _BLOCK) * _BLOCK, np.uint8)
    padded[-len(data) :] = np.frombuffer(data, np.uint8)
    padded[len(padded) - len(data) :][:4] ^= 255
    blocks = positions.ravel().take(padded.reshape(-1, _BLOCK) + _ROWS)  # [n, _BLOCK]
    crc = 0
    for block in np.bitwise_xor.reduce(blocks, axis=1).tolist():
        low, second, third, high = crc & 255, crc >> 8 & 255, crc >> 16 & 255, crc >> 24
        crc = carry[0][low] ^ carry[1][second] ^ carry[2][third] ^ carry[3][high] ^ block
    return crc ^ 0xFFFFFFFF


@functools.cache
def _tables() -> tuple[np.ndarray, list[list[int]], list[int]]:
    """Returns the contribution of a byte at each position of a block to the register at its end.

    Also those of the register's four bytes from before the block (equal to those of the block's
    first four bytes), and of a single byte to the register right after it.

    Shapes: [_BLOCK, 256] uint32; 4 lists of 256; 256.
    """
    step: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        step = step >> 1 ^ _POLYNOMIAL * (step & 1)
    positions = np.empty([_BLOCK, 256], np.uint32)
    positions[-1] = step
    for i in range(_BLOCK - 1, 0, -1):
        positions[i - 1] = step[positions[i] & 255] ^ positions[i] >> 8
    return positions, positions[:4].tolist(), step.tolist()
