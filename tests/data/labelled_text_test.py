"""Tests of labelled texts from files and folders, and of errors with their positions."""

import gzip

from absl.testing import absltest, parameterized

import helpers
from txl_tf.data import labelled_text, text


class LabelledTextTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)

    def write(self, data, name="texts.tsv"):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)

    def test_a_file_has_a_text_a_line(self):
        path = self.write("\ufeffgood\ta\\nb\\tc\\\\n\r\nbad\tä  \n\ngood\tx".replace("\n\n", "\n"))
        found = labelled_text.read(path)
        self.assertEqual([t.label for t in found], ["good", "bad", "good"])
        self.assertEqual([t.content for t in found], ["a\nb\tc\\n", "ä  ", "x"])
        self.assertEqual(found[2].name, f"{path}:3")
        self.assertEqual(labelled_text.labels_of(found, path), ("bad", "good"))

    def test_lines_longer_than_a_piece(self):
        long = "word " * (text.PIECE_BYTES // 2)
        found = labelled_text.read(self.write(f"a\t{long}\nb\t{long}x\n"))
        self.assertEqual([t.content for t in found], [long, long + "x"])

    def test_a_text_without_end_is_refused(self):
        self.enterContext(absltest.mock.patch.object(text, "LONGEST_WHOLE", 2_000_000))
        long = "w" * 2_000_001
        line, alone = self.write(f"short\n{long}"), self.write(long, "folder/x")
        for path, name in ((line, f"{line}:2"), (str(self.folder / "folder"), alone)):
            found = labelled_text.read_unlabelled(path)
            with self.assertRaisesRegex(ValueError, f"{name} must be a text of at most 2000000 by"):
                list(found)

    def test_a_compressed_file(self):
        path = self.write(gzip.compress(b"a\tone\nb\ttwo\n"))
        self.assertEqual([t.content for t in labelled_text.read(path)], ["one", "two"])

    def test_a_folder_has_a_folder_for_each_label(self):
        self.write("first\ttext\n", "all/good/2.txt")
        self.write("second", "all/good/1.txt")
        self.write("third", "all/bad/x")
        self.write("", "all/.hidden/y")
        found = labelled_text.read(str(self.folder / "all"))
        expected = [("bad", "third"), ("good", "second"), ("good", "first\ttext\n")]
        self.assertEqual([(t.label, t.content) for t in found], expected)
        self.assertEqual(found[1].name, str(self.folder / "all/good/1.txt"))

    def test_texts_without_labels(self):
        path = self.write("one\\ntwo\nthree\n")
        found = list(labelled_text.read_unlabelled(path))
        self.assertEqual([t.content for t in found], ["one\ntwo", "three"])
        self.assertEqual({t.label for t in found}, {None})
        self.write("a\nb", "more/1.txt")
        (found,) = labelled_text.read_unlabelled(str(self.folder / "more"))
        self.assertEqual(found.content, "a\nb")

    @parameterized.parameters(
        ("a\tx\nno tab here\n", r":2 must be label<TAB>text, got no tab in 'no tab here'"),
        ("a\tx\n\nb\ty\n", r":2 must be label<TAB>text, got no tab in ''"),
        (" \tx\n", r":1 must begin with a label, got ' '"),
        ("a\tx\ty\n", r":1 must have one tab; .* written \\t, got another in 'x\\ty'"),
        ("a\tx\\q\n", r":1 must escape with one of .*, got '\\\\q'"),
        ("a\tx\\", r":1 must escape with one of .*, got '\\\\'"),
        ("a\t \\n\n", r":1 must hold a text, got an empty one"),
        (b"a\tx\nb\t\xff\n", r":2 must be UTF-8, got byte 0xff at 2"),
        ("", r"texts.tsv must hold labelled texts, got none"),
    )
    def test_mistakes_in_files_are_reported(self, data, message):
        with self.assertRaisesRegex(ValueError, message):
            labelled_text.read(self.write(data))

    def test_mistakes_in_folders_are_reported(self):
        with self.assertRaisesRegex(ValueError, "none/here must be a file, got no such file"):
            labelled_text.read("none/here")
        self.write("x", "all/stray.txt")
        folder = str(self.folder / "all")
        with self.assertRaisesRegex(ValueError, "a folder for each label, got the file stray.txt"):
            labelled_text.read(folder)
        (self.folder / "all/stray.txt").unlink()
        with self.assertRaisesRegex(ValueError, "all must hold labelled texts, got none"):
            labelled_text.read(folder)
        self.write(b"\xfe", "all/a/1.txt")
        with self.assertRaisesRegex(ValueError, r"all/a/1.txt must be UTF-8, got byte 0xfe"):
            labelled_text.read(folder)

    def test_a_labelled_file_is_not_read_as_texts(self):
        path = self.write("one\ntwo \\t\ngood\tthree\n")
        message = r":3 must be a text without a label, .* written \\t, got one after 'good'"
        with self.assertRaisesRegex(ValueError, message):
            list(labelled_text.read_unlabelled(path))
        self.write("x", "all/good/1.txt")
        with self.assertRaisesRegex(ValueError, "a file for each text, got the folder good"):
            list(labelled_text.read_unlabelled(str(self.folder / "all")))
        self.write("x", "all/good/deeper/1.txt")
        with self.assertRaisesRegex(ValueError, "good must hold a file .*, got the folder deeper"):
            labelled_text.read(str(self.folder / "all"))

    @parameterized.parameters(
        ("a \tx\nb\tx\na\tx\na\ty\n", "got 'a' .2 texts. and 'a ' .1."),
        ("a  b\tx\na b\tx\n", "got 'a  b' .1 texts. and 'a b' .1."),
    )
    def test_labels_that_cannot_be_distinguished_are_rejected(self, content, message):
        path = self.write(content)
        with self.assertRaisesRegex(ValueError, message):
            labelled_text.labels_of(labelled_text.read(path), path)

    @parameterized.parameters(
        ("Pos\tx\npos\ty\npos\tz\n", "labels that differ by case alone: 'Pos', 'pos'"),
        ("label\ttext\na\tx\nb\ty\nb\tz\n", ":1: no other text has label 'label'; is it a header?"),
        ("some words\ta\nothers\tb\nand more\ta\n", "each of 3 texts has a label of its own"),
    )
    def test_odd_labels_are_warned_of(self, content, message):
        path = self.write(content)
        with self.assertLogs(level="WARNING") as logs:
            labelled_text.labels_of(labelled_text.read(path), path)
        self.assertLen(logs.output, 1 + ("Pos" in content))
        self.assertIn(message, logs.output[0])

    def test_usual_labels_are_not(self):
        path = self.write("a\tx\nb\ty\na\tz\n")
        with self.assertNoLogs(level="WARNING"):
            labelled_text.labels_of(labelled_text.read(path), path)

    def test_labels(self):
        path = self.write("a\tx\na\ty\n")
        with self.assertRaisesRegex(ValueError, "at least two labels, got only 'a'"):
            labelled_text.labels_of(labelled_text.read(path), path)
        other = labelled_text.read(self.write("b\tx\nc\ty\n", "valid.tsv"))
        message = r"valid.tsv:2 must have a label of the training texts \(a, b\), got 'c'"
        with self.assertRaisesRegex(ValueError, message):
            labelled_text.check_labels(other, ("a", "b"))


if __name__ == "__main__":
    absltest.main()
