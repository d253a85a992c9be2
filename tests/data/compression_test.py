"""Tests of compressed text: formats, and damage never passes for the end of a file."""

import bz2
import gzip
import io
import lzma
import sys
import unittest.mock

from absl.testing import absltest, parameterized
from backports import zstd

import prepared
from txl_tf.data import compression, text

_COMPRESS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}
_CONTENT = prepared.text(3000).encode()


def read(data, size=1 << 20):
    source = text.Source("a", len(data), lambda: io.BytesIO(data))
    with text.Reader(source) as reader:
        found = []
        while part := reader.text(size):
            found.append(part)
        return b"".join(found), reader.consumed, reader.sha256


class CompressionTest(parameterized.TestCase):
    def test_every_compression_is_covered(self):
        self.assertEqual([c.name for c in compression.COMPRESSIONS], list(_COMPRESS))

    @parameterized.product(name=list(_COMPRESS), size=[7, 4096, 1 << 20])
    def test_streams_one_after_another(self, name, size):
        packed = _COMPRESS[name](_CONTENT) + _COMPRESS[name](b"") + _COMPRESS[name](b"more")
        found, consumed, sha256 = read(packed, size)
        self.assertEqual(found, _CONTENT + b"more")
        self.assertEqual(consumed, len(packed))
        self.assertEqual(sha256, text.sha256(text.Source("", 0, lambda: io.BytesIO(packed))))

    @parameterized.parameters(*_COMPRESS)
    def test_pieces_are_those_of_the_plain_text(self, name):
        def pieces(data):
            with text.Reader(text.Source("a", 0, lambda: io.BytesIO(data))) as reader:
                return list(reader.pieces(100))

        self.assertEqual(pieces(_COMPRESS[name](_CONTENT)), pieces(_CONTENT))

    @parameterized.parameters(*_COMPRESS)
    def test_empty_text_and_padding(self, name):
        self.assertEqual(read(_COMPRESS[name](b"") + b"\0" * 8)[0], b"")

    @parameterized.product(name=list(_COMPRESS), end=[-1, -9, 20])
    def test_cut_short(self, name, end):
        with self.assertRaisesRegex(ValueError, f"^a must be a whole {name} file, got damage: ."):
            read(_COMPRESS[name](_CONTENT)[:end])

    @parameterized.parameters(*_COMPRESS)
    def test_a_damaged_later_stream_is_no_end(self, name):
        packed = _COMPRESS[name](_CONTENT)
        for later in (b"x" * 50, packed[:4] + bytes([packed[4] ^ 255]) + packed[5:50]):
            with self.assertRaisesRegex(ValueError, f"^a must be a whole {name} file, got damage"):
                read(packed + later)

    def test_other_beginnings(self):
        old = lzma.compress(_CONTENT, lzma.FORMAT_ALONE)
        skipped = b"\x50\x2a\x4d\x18\x02\0\0\0ab" + zstd.compress(_CONTENT)  # as pzstd writes them
        for packed in (old, skipped):
            self.assertEqual(read(packed)[0], _CONTENT)
        for plain in (b"BZh9 is how it begins", b"(\xb5 /", b"]"):
            self.assertEqual(read(plain)[0], plain)

    def test_little_is_held_of_much(self):
        """A bomb: four mebibytes of NULs in some bytes; what is read is what was asked for."""
        stream = _Counting(bz2.compress(bytes(1 << 22)))
        opened = compression.detect(stream.head).open(stream)
        for _ in range(3):
            self.assertLessEqual(len(opened.read(1000)), 1000)
        self.assertLessEqual(stream.read_bytes, 1 << 17)

    def test_without_the_library(self):
        with unittest.mock.patch.dict(sys.modules, {"backports.zstd": None, "backports": None}):
            self.assertEqual(read(gzip.compress(b"a"))[0], b"a")
            with self.assertRaisesRegex(ValueError, "^backports.zstd must be installed to read"):
                read(zstd.compress(b"a"))


class _Counting(io.BytesIO):
    def __init__(self, data):
        super().__init__(data)
        self.head, self.read_bytes = data[:16], 0

    def read(self, size=-1, /):
        data = super().read(size)
        self.read_bytes += len(data)
        return data


if __name__ == "__main__":
    absltest.main()
