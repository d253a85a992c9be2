"""Tests of vocabularies: counting order, text files, and errors with line numbers."""

import json

from absl.testing import absltest, parameterized

import helpers
from txl_tf.data.vocabulary import Vocabulary


class BuildTest(parameterized.TestCase):
    COUNTS = dict(b=2, a=3, c=2, d=1)  # in the order of first sight

    def build(self, **options):
        return "".join(s[0] for s in Vocabulary.build(self.COUNTS, **options).symbols)

    @parameterized.parameters(
        (dict(), "abcd"),
        (dict(min_count=2), "abc"),
        (dict(max_size=2), "ab"),
        (dict(specials=("d", "S")), "dSabc"),
        (dict(specials=("S",), max_size=3), "Sab"),
        (dict(unknown=True), "abcd<"),
        (dict(unknown=True, max_size=4), "abc<"),
        (dict(unknown=True, max_size=5), "abcd<"),
        (dict(unknown=True, min_count=9), "<"),
    )
    def test_order(self, options, expected):
        self.assertEqual(self.build(**options), expected)

    def test_unknown_of_the_text_is_used(self):
        counts = {"a": 2, "<unk>": 3, "b": 1}
        self.assertEqual(Vocabulary.build(counts, unknown=True).symbols, ("<unk>", "a", "b"))
        self.assertEqual(Vocabulary.build(counts).unknown_id, 0)
        cut = Vocabulary.build({"a": 2, "<unk>": 1, "b": 1}, unknown=True, max_size=2)
        self.assertEqual(cut.symbols, ("a", "<unk>"))

    def test_unknown_symbols_by_preference(self):
        self.assertEqual(Vocabulary(["<UNK>", "a"]).unknown_id, 0)
        self.assertEqual(Vocabulary(["<UNK>", "<unk>"]).unknown_id, 1)
        self.assertIsNone(Vocabulary(["a"]).unknown_id)

    def test_no_room(self):
        with self.assertRaisesRegex(
            ValueError, "vocab_size must leave room for S and <unk>, got 1"
        ):
            self.build(specials=("S",), unknown=True, max_size=1)

    def test_golden_options(self):
        """The original code; its max_size does not count special symbols."""
        expected = json.loads((helpers.shared("golden/D1_data/wt103/expected.json")).read_text())
        counts = dict(zip(expected["idx2sym"], expected["counts"], strict=True))
        built = Vocabulary.build(counts, specials=expected["special"])
        self.assertEqual(list(built.symbols), expected["idx2sym"])
        limited = Vocabulary.build(counts, specials=["<eos>"], max_size=13)
        (option,) = [o for o in expected["options"] if o["kwargs"].get("max_size") == 12]
        self.assertEqual(list(limited.symbols), option["idx2sym"])


class FileTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = str(helpers.temp_dir(self) / "vocab.txt")

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    def test_any_character_survives(self):
        odd = [chr(code) for code in range(0x300)] + ["\u2028", "\ufeff", "😀", "\\n", "a\x00b"]
        Vocabulary(odd).save(self.path)
        self.assertEqual(Vocabulary.load(self.path), Vocabulary(odd))
        with open(self.path, "rb") as file:
            lines = file.read().decode().split("\n")
        self.assertEqual(lines[-1], "")
        self.assertEqual(len(lines) - 1, len(odd))  # the id is the number of lines before
        self.assertEqual([lines[ord(c)] for c in "\n\r\t \\"], [r"\n", r"\r", r"\t", r"\s", "\\\\"])

    def test_byte_order_mark_can_be_the_first_symbol(self):
        Vocabulary(["\ufeff", "a"]).save(self.path)
        self.assertEqual(Vocabulary.load(self.path).symbols, ("\ufeff", "a"))

    def test_windows_line_ends(self):
        self.write("a\r\nb\r\n")
        self.assertEqual(Vocabulary.load(self.path).symbols, ("a", "b"))

    @parameterized.parameters(
        ("a\n\nb\n", ":2 must hold a symbol, got a blank line"),
        ("a\nb\na\n", ":3 must hold a new symbol, got 'a' of line 1 again"),
        ("a\n\\q\n", r":2 must escape with one of .*, got '\\\\q'"),
        ("", "must hold a symbol per line, got an empty file"),
        (b"a\n\xff\n", "must be UTF-8, got an invalid byte at 2"),
    )
    def test_load_refuses(self, content, message):
        self.write(content)
        with self.assertRaisesRegex(ValueError, f"{self.path} ?{message}"):
            Vocabulary.load(self.path)

    def test_list_with_counts(self):
        self.write("\ufeff<S> 54 x\n<UNK>\t0\nthe 99\r\n\\n\nlast")
        found = Vocabulary.from_list(self.path)
        self.assertEqual(found.symbols, ("<S>", "<UNK>", "the", "\\n", "last"))
        self.assertEqual(found.unknown_id, 1)

    @parameterized.parameters(
        ("a\n \t\nb\n", ":2 must hold a symbol, got a blank line"),
        ("the 9\nb\nthe 1\n", ":3 must hold a new symbol, got 'the' of line 1 again"),
    )
    def test_list_refuses(self, content, message):
        self.write(content)
        with self.assertRaisesRegex(ValueError, self.path + message):
            Vocabulary.from_list(self.path)

    def test_repeats_can_be_skipped_but_blank_lines_cannot(self):
        self.write("the 9\nb\nthe 1\nc\n")
        self.assertEqual(
            Vocabulary.from_list(self.path, skip_repeats=True).symbols, ("the", "b", "c")
        )
        self.write("the\n\nthe\n")
        with self.assertRaisesRegex(ValueError, ":2 must hold a symbol"):
            Vocabulary.from_list(self.path, skip_repeats=True)


class VocabularyTest(absltest.TestCase):
    def test_repeats_are_refused(self):
        with self.assertRaisesRegex(ValueError, "symbols must be distinct, got 'a' twice"):
            Vocabulary(["a", "b", "a"])

    def test_extended(self):
        self.assertEqual(Vocabulary(["a", "b"]).extended("b", "c").symbols, ("a", "b", "c"))


if __name__ == "__main__":
    absltest.main()
