"""Words and marks of lines as ids, by hand-made tables."""

import dataclasses
import json

from absl.testing import absltest, parameterized

import helpers
import learnt
import prepared
from txl_tf.data import text, tokenizers
from txl_tf.data.vocabulary import Vocabulary


class WordTest(parameterized.TestCase):
    def words(self, content, known=None, **options):
        word = learnt.tokenizer("word", content if known is None else known, **options)
        return " ".join(word.symbol(i) for i in word.encode(content))

    @parameterized.parameters(
        ("a b\r\nc\r\n", "a b <eos> c <eos>"),
        ("a b", "a b <eos>"),
        ("a\u2028b\n", "a b <eos>"),
        ("a\rb\n", "a b <eos>"),
        ("a\u0085b\u3000c\u00a0d\x1ce\n", "a b c d e <eos>"),
        ("\n\n\n", "<eos> <eos> <eos>"),
        (" \n", "<eos>"),
        (" ", "<eos>"),
        ("x<eos>y\n", "x<eos>y <eos>"),
        ("a <eos> b\n", "a <eos> b <eos>"),  # a literal <eos> is the mark: documented
        ("", ""),
    )
    def test_end_of_line(self, content, expected):
        self.assertEqual(self.words(content), expected)

    @parameterized.parameters(
        ("a b\nc\n", "<S> a b <S> <S> c <S>"),
        ("a b\nc", "<S> a b <S> <S> c <S>"),
        ("\n", "<S> <S>"),
        ("", ""),
    )
    def test_boundary(self, content, expected):
        self.assertEqual(self.words(content, end_of_line="boundary"), expected)

    def test_open_ends(self):
        word = learnt.tokenizer("word", "a b\n")
        self.assertEqual(word.encode("a b", complete=False).tolist(), [1, 2])
        self.assertEqual(word.encode("b\na", starts_line=False).tolist(), [2, 0, 1, 0])
        self.assertEqual(word.encode("", starts_line=False).tolist(), [0])  # ends an open line
        pair = learnt.tokenizer("word", "a b\n", end_of_line="boundary")
        self.assertEqual(pair.encode("a\nb", complete=False).tolist(), [0, 1, 0, 0, 2])
        self.assertEqual(pair.encode("a\nb\n", starts_line=False).tolist(), [1, 0, 0, 2, 0])
        # A literal mark at the end of an open line stays.
        self.assertEqual(pair.encode("a <S> ", complete=False).tolist(), [0, 1, 0])
        self.assertEqual(pair.encode("a\n<S> ", complete=False).tolist(), [0, 1, 0, 0, 0])

    @parameterized.parameters(
        ("eos", "a b\n\nc\n"), ("boundary", "a b\n\nc\n"), ("none", "a b c"), ("eos", "a\nb c")
    )
    def test_decode(self, end_of_line, content):
        word = learnt.tokenizer("word", content, end_of_line=end_of_line)
        self.assertEqual(word.decode(word.encode(content, complete=False)), content)

    def test_long_text_equals_a_plain_loop(self):
        content = prepared.text(100_000)
        for mark, end, begin in (("eos", "<eos>", ""), ("boundary", "<S>", "<S>")):
            word = learnt.tokenizer("word", content, end_of_line=mark)
            lines = content.splitlines()
            expected = [w for line in lines for w in f"{begin} {line} {end}".split()]
            self.assertEqual([word.symbol(i) for i in word.encode(content)], expected)
        counts = {}
        for symbol in content.split():
            counts[symbol] = counts.get(symbol, 0) + 1
        self.assertEqual(list(word.count(content).items()), list(counts.items()))

    def test_blank_lines(self):
        drop = dict(blank_lines="drop")
        self.assertEqual(self.words("\n\na\n \t\nb\n\n", **drop), "a <eos> b <eos>")
        self.assertEqual(self.words("a\n  ", **drop), "a <eos>")
        word = learnt.tokenizer("word", "a b\n", **drop)
        rest = word.encode("\n\nb\n", starts_line=False)  # ends a line that began before
        self.assertEqual([word.symbol(i) for i in rest], ["<eos>", "b", "<eos>"])

    @parameterized.parameters(*"\x1c\x1f\x85\xa0\u1680\u2003\u2028\u3000")
    def test_white_space_of_ascii(self, space):
        """As under Python 2: `bytes.split`, also of blank lines."""
        content = f"a{space}b c\v\f\r d\n {space} \n \t\n"
        marked = content.replace("\n", " <eos> ").encode().split()
        expected = [word.decode() for word in marked]
        self.assertEqual(self.words(content, white_space="ascii"), " ".join(expected))
        dropped = self.words(content, white_space="ascii", blank_lines="drop")
        self.assertEqual(dropped, f"a{space}b c d <eos> {space} <eos>")
        dropped = self.words(content, white_space="unicode", blank_lines="drop")
        self.assertEqual(dropped, "a b c d <eos>")
        self.assertEqual(self.words(content), self.words(content, white_space="unicode"))
        word = learnt.tokenizer("word", content, white_space="ascii")
        self.assertEqual(word.decode(word.encode(content)), f"a{space}b c d\n{space}\n\n")

    def test_white_space_is_saved_and_old_files_are_read(self):
        content = "a\u3000b c\xa0\n"
        folder = helpers.temp_dir(self)
        for white_space, saved in (("ascii", {"white_space": "ascii"}), ("unicode", {})):
            word = learnt.tokenizer("word", content, white_space=white_space)
            word.save(str(folder))
            options = json.loads((folder / "tokenizer.json").read_text())["options"]
            known = dict(lower_case=False, blank_lines="keep", unknown="unk", end_of_line="eos")
            self.assertEqual(options, known | saved)  # "unicode" writes the files of old
            loaded = tokenizers.load(folder)
            self.assertEqual((loaded, loaded.checksum), (word, word.checksum))
            self.assertEqual(loaded.options["white_space"], white_space)
        ascii_words = dataclasses.replace(word, white_space="ascii")
        self.assertNotEqual(ascii_words.checksum, word.checksum)

    def test_white_space_within_symbols(self):
        for space in text.WHITE_SPACE:
            symbols = Vocabulary(["<eos>", "<unk>", f"a{space}b", f"{space}"])
            for white_space, spaces in text.WHITE_SPACES.items():
                options = dict(vocabulary=symbols, white_space=white_space)
                if space in spaces:
                    with self.assertRaisesRegex(ValueError, f"got .* white_space '{white_space}'"):
                        tokenizers.WordTokenizer(**options)
                else:
                    word = tokenizers.WordTokenizer(**options)
                    self.assertEqual(word.encode(f"a{space}b {space}\n").tolist(), [2, 3, 0])

    def test_growing_keeps_the_white_space(self):
        start = learnt.tokenizer("word", "a\u3000b\n", white_space="ascii").extension(
            vocab_size=None, min_count=0
        )
        start.add(start.observe(text.Piece("a\u3000b c\xa0d a\n".encode())))
        self.assertEqual(start.finish().symbols, ("<eos>", "a\u3000b", "<unk>", "c\xa0d", "a"))

    def test_unknown(self):
        train = "a b a <unk> <eos> x<eos>y\n"
        word = learnt.tokenizer("word", train)
        self.assertEqual(word.vocabulary.symbols, ("<eos>", "a", "b", "<unk>", "x<eos>y"))
        self.assertEqual(word.encode("a q\n").tolist(), [1, 3, 0])
        self.assertEqual(
            learnt.tokenizer("word", "a <UNK>\n").vocabulary.symbols, ("<eos>", "a", "<UNK>")
        )
        self.assertEqual(self.words("q x<eos>z\n", known="a"), "<unk> <unk> <eos>")
        self.assertEqual(word.encode_piece(text.Piece(b"q <unk> a\n")).unknown, 1)  # a word, too
        with self.assertRaisesRegex(ValueError, "symbols of the vocabulary, got 'q'"):
            self.words("a q", known="a", unknown="error")

    def test_lower_case(self):
        self.assertEqual(self.words("A İ ΣΑΣ\n", lower_case=True), "a i\u0307 σας <eos>")

    def test_nul_survives(self):
        word = learnt.tokenizer("word", "a\x00b c\n")
        folder = helpers.temp_dir(self)
        word.save(str(folder))
        loaded = tokenizers.load(folder)
        self.assertEqual(loaded.decode(loaded.encode("a\x00b c\n")), "a\x00b c\n")
        self.assertLen(loaded.symbol(int(loaded.encode("a\x00b")[0])), 3)

    def test_odd_share_of_different_words(self):
        start = tokenizers.WordTokenizer.start(vocab_size=None, min_count=0)
        start.add(start.observe(text.Piece("\n".join(map(chr, range(20000, 20100))).encode())))
        (warning,) = start.warnings()
        self.assertIn("100 of 100 words are distinct", warning)
        start.add(start.observe(text.Piece(b"a " * 150)))
        self.assertEmpty(start.warnings())

    def test_refuses(self):
        for options, message in (
            (dict(end_of_line="no"), "end_of_line must be one of eos, boundary, none for .*'no'"),
            (dict(blank_lines="no"), "blank_lines must be one of keep, drop for .* word, got 'no'"),
            (dict(unknown="no"), "unknown must be one of unk, error for tokenizer word, got 'no'"),
            (dict(white_space="no"), "white_space must be one of unicode, ascii for .* got 'no'"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                learnt.tokenizer("word", **options)
        with self.assertRaisesRegex(ValueError, "words without white space, got 'a b'"):
            tokenizers.WordTokenizer(vocabulary=Vocabulary(["<eos>", "<unk>", "a b"]))
        with self.assertRaisesRegex(ValueError, "hold <eos> and <unk>, got none"):
            tokenizers.WordTokenizer(vocabulary=Vocabulary(["a"]))

    def test_list_gets_what_it_lacks(self):
        path = str(helpers.temp_dir(self) / "list")
        with open(path, "w") as file:
            file.write("the 9\nof\u3000x 3\n")
        for options, expected in (
            (dict(), ("the", "of", "<eos>", "<unk>")),
            (dict(white_space="ascii"), ("the", "of\u3000x", "<eos>", "<unk>")),
            (dict(end_of_line="boundary", unknown="error"), ("the", "of", "<S>")),
        ):
            word = tokenizers.WordTokenizer.from_list(path, skip_repeats=False, **options)
            self.assertEqual(word.vocabulary.symbols, expected)


if __name__ == "__main__":
    absltest.main()
