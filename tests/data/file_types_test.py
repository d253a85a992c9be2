"""Files that are not text are named before any work."""

import gzip
import io
import os
import pathlib
import pickle
import sqlite3
import tarfile
import tempfile
import zipfile

import numpy as np
from absl.testing import absltest, parameterized

import helpers
from txl_tf.data import file_types, text, tfrecord

_TEXT = "Grüße, 12 a b c\n" * 40


def zipped(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "application/epub+zip" if name == "mimetype" else _TEXT)
    return stream.getvalue()


def tarred():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return stream.getvalue()


def stored(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def recorded(record):
    with tempfile.TemporaryDirectory() as folder:
        with tfrecord.RecordWriter(f"{folder}/a") as writer:
            writer.write(record)
        return pathlib.Path(folder, "a").read_bytes()


class RefusalTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)

    def refuse(self, data, message):
        (self.folder / "a.txt").write_bytes(data)
        path = f"{self.folder}/a.txt"
        with self.assertRaisesRegex(
            ValueError, f"^{path} must be UTF-8 text, plain or .*{message}"
        ):
            text.find([path])

    @parameterized.parameters(
        (zipped("a.txt"), "got a zip archive; unpack it first"),
        (zipped("[Content_Types].xml", "word/document.xml"), "got an Office document"),
        (zipped("mimetype"), "got an EPUB book"),
        (zipped("archive/data.pkl"), "got a PyTorch file"),
        (tarred(), "got a tar archive; unpack it first"),
        (gzip.compress(tarred()), "got a tar archive within gzip; unpack it first"),
        (gzip.compress(gzip.compress(b"a")), "got gzip within gzip; unpack it first"),
        (b"7z\xbc\xaf\x27\x1c", "got a 7z archive"),
        (b"%PDF-1.7\n%\xe2\xe3", "got a PDF document; give its text instead"),
        (b"PAR1\x15\x04\x15", "got a Parquet table"),
        (pickle.dumps({"a": 1}), "got a pickle"),
        (recorded(b"\n\x02ab"), "got a TFRecord file"),
        (stored(np.zeros(3)), "got a NumPy array"),
        (b"\x89PNG\r\n\x1a\n\0", "got a PNG image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "got a JPEG image"),
        (b"GIF89a\x10\0\x10\0", "got a GIF image"),
        (b"\x7fELF\x02\x01", "got an executable program"),
        (b"\xff\xff\xff\xff\x78\x02\0\0", "got an Arrow table"),
        (_TEXT.encode("utf-16"), "got UTF-16LE; convert it: iconv -f UTF-16 -t UTF-8"),
        (b"\xfe\xff" + _TEXT.encode("utf-16-be"), "got UTF-16BE; convert it: iconv -f UTF-16 "),
        (_TEXT.encode("utf-32"), "got UTF-32LE; convert it: iconv -f UTF-32 -t UTF-8"),
        (gzip.compress(_TEXT.encode("utf-16")), "got UTF-16LE within gzip"),
    )
    def test_by_the_first_bytes(self, data, message):
        self.refuse(data, message)

    def test_a_database(self):
        with sqlite3.connect(self.folder / "b") as base:
            base.execute("create table a (b)")
        self.refuse((self.folder / "b").read_bytes(), "got a SQLite database")

    @parameterized.parameters(
        b"", b"PK", b"PK is short", b"GIF89a is a format", b"MZ", b"RIFF and WEBP", b"PAR1 a",
        b"ID3 tags", b"BM", b"%!PS", b"7zip", b"\x80abc", b"\xff", b"\xff\xfe\x00\xd8\x00\x00",
        bytes(range(256)), bytes(range(255, -1, -1)), "\ufeffa".encode(), _TEXT.encode(),
    )  # fmt: skip
    def test_what_may_be_text_is_read(self, data):
        self.assertIsNone(file_types.detect(data))

    def test_standard_input_too(self):
        source = text.Source("standard input", 0, lambda: io.BytesIO(zipped("a")))
        with self.assertRaisesRegex(ValueError, "^standard input must be UTF-8 text, .* zip"):
            text.Reader(source)


class OddityTest(parameterized.TestCase):
    @parameterized.parameters(
        ("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE"),
        ("utf-32-le", "UTF-32LE"), ("utf-32-be", "UTF-32BE"),
    )  # fmt: skip
    def test_text_of_another_encoding(self, codec, name):
        found = file_types.oddity(_TEXT.encode(codec))
        self.assertRegex(found, r"^\d+ of the first \d+ bytes are NUL: is it " + name)
        self.assertEndsWith(found, f"convert it: iconv -f {name} -t UTF-8")
        russian = "Война и мир, том первый. " * 30
        self.assertIn(f"is it {name}?", file_types.oddity(russian.encode(codec)))

    def test_other_nuls(self):
        data = np.random.default_rng(0).integers(20, size=1000).astype(np.uint8).tobytes()
        self.assertRegex(file_types.oddity(data), r"^\d+ of the first 1000 bytes are NUL$")
        self.assertIsNone(file_types.oddity(b"a\0b c\n"))
        self.assertIsNone(file_types.oddity(_TEXT.encode() * 9 + b"\0"))

    def test_text_of_another_encoding_is_warned_of_once(self):
        path = helpers.temp_dir(self) / "a.txt"
        path.write_bytes(_TEXT.encode("utf-16-le"))
        with self.assertLogs(level="WARNING") as logs:
            text.find([str(path)])
        self.assertLen(logs.output, 1)
        self.assertIn(f"{path}: ", logs.output[0])
        self.assertIn("is it UTF-16LE?", logs.output[0])

    def test_a_pipe_is_read_but_once(self):
        reading, writing = os.pipe()
        os.write(writing, b"a b")
        os.close(writing)
        with text.Reader(text.Source.from_path(f"/dev/fd/{reading}")) as reader:
            self.assertEqual(reader.text(10), b"a b")
        os.close(reading)


if __name__ == "__main__":
    absltest.main()
