"""Tests of finding, opening, cutting and decoding text."""

import gzip
import hashlib
import io
import os
import sys

from absl.testing import absltest, parameterized

import helpers
import prepared
from txl_tf.data import text


def source(data, name="a.txt"):
    return text.Source(name, len(data), lambda: io.BytesIO(data))


def pieces(data, size=text.PIECE_BYTES):
    with text.Reader(source(data)) as reader:
        return list(reader.pieces(size))


class FindTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        for name in ("b.txt", "a.txt", "c.md", "[d].txt"):
            (self.folder / name).write_text(name)
        (self.folder / "e.txt").mkdir()

    def find(self, *patterns):
        found = text.find([f"{self.folder}/{pattern}" for pattern in patterns])
        return [each.name.removeprefix(f"{self.folder}/") for each in found]

    def test_order_is_as_given_and_sorted_within_a_glob(self):
        self.assertEqual(self.find("c.md", "[ab].txt"), ["c.md", "a.txt", "b.txt"])
        self.assertEqual(self.find("*.txt"), ["[d].txt", "a.txt", "b.txt"])  # no folder

    def test_all_folders(self):
        (self.folder / "deep" / "er").mkdir(parents=True)
        (self.folder / "deep" / "er" / "f.txt").write_text("f")
        expected = ["[d].txt", "a.txt", "b.txt", "deep/er/f.txt"]
        self.assertEqual(self.find("**/*.txt"), expected)

    def test_a_name_with_brackets_is_that_file(self):
        self.assertEqual(self.find("[d].txt"), ["[d].txt"])

    def test_remote(self):
        (found,) = text.find([f"file://{self.folder}/*.md"])
        with text.Reader(found) as reader:
            self.assertEqual(reader.text(100), b"c.md")

    def test_refuses(self):
        for patterns, message in (
            (["no.txt"], "/no.txt must be a file, got no such file"),
            (["*.zip"], r"/\*.zip must match a file, got none"),
            (["e.txt"], r"/e.txt must be a file, got a folder; try .*/e.txt/\*"),
            (["a.txt", "*.txt"], "files of a split must be distinct, got .*/a.txt twice"),
            (["a.txt", "e.txt/../a.txt"], "must be distinct, got .*/e.txt/../a.txt twice"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                self.find(*patterns)

    def test_a_pipe_cannot_be_read_twice(self):
        os.mkfifo(self.folder / "pipe")
        with self.assertRaisesRegex(
            ValueError, "/pipe must be a regular file, .* got a pipe or a device; w"
        ):
            self.find("pipe")

    def test_unknown_file_systems(self):
        for path in ("https://example.org/a.txt", "s3://bucket/*.txt", "ftp://x/**/a"):
            message = rf"path must be local or begin with one of .*gs://.*, got {path[:8]}"
            with self.assertRaisesRegex(ValueError, message):
                text.find([path])


class ReaderTest(parameterized.TestCase):
    def test_gzip_by_its_magic_number(self):
        packed = gzip.compress(b"a b\n" * 3000) + gzip.compress(b"more")  # two members
        with text.Reader(source(packed)) as reader:
            self.assertEqual(reader.text(1 << 20), b"a b\n" * 3000 + b"more")
            self.assertEqual(reader.sha256, hashlib.sha256(packed).hexdigest())
            self.assertEqual(reader.consumed, len(packed))
        self.assertEqual(text.sha256(source(packed)), hashlib.sha256(packed).hexdigest())

    @parameterized.parameters(-1, -9, 20)
    def test_damaged_gzip(self, end):
        with self.assertRaisesRegex(ValueError, "a.txt must be a whole gzip file, got damage"):
            pieces(gzip.compress(prepared.text(5000).encode())[:end])

    @parameterized.parameters(b"", b"\x1f", b"\x1f\x8a", b"a")
    def test_short_plain_files(self, data):
        self.assertEqual(b"".join(piece.data for piece in pieces(data)), data)


class PiecesTest(parameterized.TestCase):
    @parameterized.parameters(4, 5, 7, 100, 1000, 10_000)
    def test_nothing_is_lost(self, size):
        data = prepared.text(1500).encode()
        found = pieces(data, size)
        self.assertEqual(b"".join(piece.data for piece in found), data)
        offset = 0
        for piece in found:
            self.assertEqual(piece.offset, offset)
            self.assertLessEqual(len(piece.data), size)
            offset += len(piece.data)
        self.assertEqual([piece.complete for piece in found], [False] * (len(found) - 1) + [True])

    def test_cuts_after_line_ends(self):
        found = pieces(b"ab\ncd\nef\ngh", 8)
        self.assertEqual([piece.data for piece in found], [b"ab\ncd\n", b"ef\ngh"])
        self.assertTrue(found[1].starts_line)

    def test_else_after_white_space(self):
        for space in (" ", "\t", "\r", "\u3000", "\u2028", "\xa0"):
            head = f"abcd{space}".encode()
            found = pieces(head + b"efgh ij", len(head) + 3)
            self.assertEqual(found[0].data, head)
            self.assertFalse(found[1].starts_line)

    def test_first_after_that_of_ascii(self):
        """Other white space may stand within a word: in "ascii" `WordTokenizer` has it so."""
        for space in "\x1c\x85\xa0\u2028\u3000":
            data = f"ab\tcd{space}ef gh".encode()
            self.assertEqual(pieces(data, data.index(b" "))[0].data, b"ab\t")

    def test_else_between_characters(self):
        for symbol in ("a", "é", "日", "😀"):
            for shift in range(4):
                data = b"x" * shift + symbol.encode() * 5
                for piece in pieces(data, 9):
                    piece.data.decode("utf-8")  # fails on half a character

    def test_white_space_farther_back_than_64_kib_is_not_sought(self):
        size = text.SEARCH_BYTES + 10
        for back, expected in ((text.SEARCH_BYTES + 1, size), (text.SEARCH_BYTES, 11)):
            data = bytearray(b"x" * (2 * size))
            data[size - back] = ord(" ")
            self.assertLen(pieces(bytes(data), size)[0].data, expected)

    def test_state_at_a_cut(self):
        found = pieces(b"ab\n \t\ncd\n", 6)
        self.assertEqual([p.data for p in found], [b"ab\n \t\n", b"cd\n", b""][: len(found)])
        self.assertEqual([p.after_blank for p in found[:2]], [False, True])
        self.assertEqual([p.starts_line for p in found[:2]], [True, True])
        found = pieces(b"ab   \ncd", 4)  # the first line is not blank, though its end is
        self.assertEqual(found[1].data, b" \n")
        self.assertEqual([p.after_blank for p in found], [False, False, False])

    def test_words_are_split_at_their_white_space(self):
        every = list(map(chr, range(sys.maxunicode + 1)))
        self.assertEqual(text.WORDS.keys(), text.WHITE_SPACES.keys())
        for name, split in text.WORDS.items():
            splits = [c for c in every if split(f"a{c}b") == ["a", "b"]]
            self.assertEqual(splits, list(text.WHITE_SPACES[name]))
        content = f" é{text.WHITE_SPACE}日\ud800 \n"
        words = [
            word.decode("utf-8", "surrogatepass")
            for word in content.encode("utf-8", "surrogatepass").split()
        ]
        self.assertEqual(text.WORDS["ascii"](content), words)


class DecodeTest(parameterized.TestCase):
    def test_byte_order_mark(self):
        mark = "\ufeff".encode()
        self.assertEqual(text.decode(text.Piece(mark + b"a" + mark)), "a\ufeff")
        self.assertEqual(text.decode(text.Piece(mark + b"a", offset=7)), "\ufeffa")
        self.assertEqual(text.size(text.Piece(mark + b"a")), 1)
        self.assertEqual(text.size(text.Piece(mark + b"a", offset=7)), 4)

    def test_invalid_bytes(self):
        with self.assertRaisesRegex(
            text.InvalidUtf8Error,
            "b.txt must be UTF-8, got byte 0xff at offset 102; iconv converts",
        ):
            text.decode(text.Piece(b"a \xff b\n", "b.txt", 100))
        self.assertEqual(text.decode(text.Piece(b"a \xff b\n"), "replace"), "a \ufffd b\n")

    @parameterized.parameters(("", True), (" \t\r", True), ("\u3000\x1c", True), (" a", False))
    def test_blank(self, line, expected):
        self.assertEqual(text.is_blank(line.encode()), expected)


if __name__ == "__main__":
    absltest.main()
