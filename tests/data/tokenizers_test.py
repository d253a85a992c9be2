"""The laws that all tokenizers keep, and what each of them does."""

import dataclasses
import io
import json
import pickle
import random

import numpy as np
import sentencepiece
from absl.testing import absltest, parameterized

import helpers
import prepared
from txl_tf.data import text, tokenizers
from txl_tf.data.tokenizers import sentencepiece as sentencepiece_lib
from txl_tf.data.vocabulary import Vocabulary

ODD = "a b\r\nc\td \u00a0e\x00f\n\n👨‍👩‍👧 e\u0301 <eos> \ufeff\u2028\u3000\u2581x \\n 日本\n"


def learn(kind, *contents, vocab_size=None, min_count=0, **options):
    """A tokenizer learnt from texts; sentencepiece from enough text to be of use."""
    if kind == "sentencepiece":
        vocab_size = vocab_size or 400
    start = tokenizers.kind(kind).start(vocab_size=vocab_size, min_count=min_count, **options)
    if not isinstance(start, tokenizers.Learner):
        return start
    for content in [*contents, *([prepared.text(20_000)] if kind == "sentencepiece" else [])]:
        start.add(start.observe(text.Piece(content.encode())))
    return start.finish()


class ContractTest(parameterized.TestCase):
    def test_every_kind_is_covered(self):
        self.assertEqual(set(tokenizers.TOKENIZERS), {"byte", "char", "word", "sentencepiece"})

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_save_and_load(self, kind):
        tokenizer = learn(kind, ODD)
        folder = helpers.temp_dir(self)
        tokenizer.save(str(folder))
        loaded = tokenizers.load(folder)
        self.assertEqual(loaded, tokenizer)
        self.assertEqual(loaded.checksum, tokenizer.checksum)
        np.testing.assert_array_equal(loaded.encode(ODD), tokenizer.encode(ODD))

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_goes_to_other_processes(self, kind):
        tokenizer = learn(kind, ODD)
        tokenizer.encode(ODD)  # fills its caches
        copied = pickle.loads(pickle.dumps(tokenizer))
        np.testing.assert_array_equal(copied.encode(ODD), tokenizer.encode(ODD))

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_ids_are_int32_and_in_range(self, kind):
        tokenizer = learn(kind, ODD)
        for content in (ODD, "never seen: \u0416", ""):
            ids = tokenizer.encode(content)
            self.assertEqual((ids.dtype, ids.ndim), (np.int32, 1))
            self.assertTrue(((ids >= 0) & (ids < tokenizer.vocab_size)).all())
        self.assertEmpty(tokenizer.encode(""))

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_pieces_give_the_ids_of_the_whole(self, kind):
        content = prepared.text(5000)
        tokenizer = learn(kind, content)
        whole = tokenizer.encode(content)
        source = text.Source.from_text("a", content)
        for size in (600, 1000):
            with text.Reader(source) as reader:
                found = [tokenizer.encode_piece(piece) for piece in reader.pieces(size)]
            np.testing.assert_array_equal(np.concatenate([f.ids for f in found]), whole)
            self.assertEqual(sum(f.bytes for f in found), len(content.encode()))
            self.assertEqual(sum(f.characters for f in found), len(content))

    @parameterized.parameters(
        ("byte", {}),
        ("char", {}),
        ("char", dict(end_of_line="eos")),
        ("char", dict(lower_case=True, blank_lines="drop")),
        ("word", {}),
        ("word", dict(end_of_line="none")),
        ("word", dict(end_of_line="boundary")),
        ("sentencepiece", {}),
    )
    def test_the_size_is_that_of_the_text_given_back(self, kind, options):
        content = " A  b\t\u3000é \r\n\n \nb A\n é\u00a0b"
        tokenizer = learn(kind, content, **options)
        found = tokenizer.encode_piece(text.Piece(content.encode()))
        back = tokenizer.decode(found.ids)
        self.assertEqual(found.size, (len(found.ids), len(back.encode()), len(back), 0))

    def test_a_replaced_byte_counts_as_what_it_was(self):
        for kind in ("char", "word"):
            found = learn(kind, "a \ufffd\n").encode_piece(text.Piece(b"a \xff\n"), "replace")
            self.assertEqual((found.bytes, found.characters), (4, 4))

    @parameterized.parameters("byte", "char", "sentencepiece")
    def test_lossless(self, kind):
        tokenizer = learn(kind, ODD)
        self.assertEqual(tokenizer.decode(tokenizer.encode(ODD)), ODD)
        data = ODD.encode()
        self.assertEqual(tokenizer.decode_bytes(tokenizer.encode_bytes(data)), data)

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_symbols_and_bounds(self, kind):
        tokenizer = learn(kind, ODD)
        shown = [tokenizer.symbol(i) for i in range(tokenizer.vocab_size)]
        self.assertLen(set(shown), tokenizer.vocab_size)
        size = tokenizer.vocab_size
        for wrong in (size, -1):
            for use in (tokenizer.symbol, lambda i, t=tokenizer: t.decode([0, i])):
                with self.assertRaisesRegex(
                    ValueError, rf"0..{size - 1} \(vocabulary of {size}\), got {wrong}"
                ):
                    use(wrong)

    def test_checksum_depends_on_everything(self):
        word = learn("word", "a b c")
        others = [
            learn("word", "a c b"),
            learn("char", "abc"),
            dataclasses.replace(word, lower_case=True),
            dataclasses.replace(word, white_space="ascii"),
            learn("byte"),
            learn("byte", drop_newlines=True),
        ]
        self.assertLen({t.checksum for t in [word, *others]}, 7)

    def test_load_refuses(self):
        folder = helpers.temp_dir(self)
        with self.assertRaisesRegex(ValueError, "must hold tokenizer.json, got none"):
            tokenizers.load(folder)
        for content, message in (
            ("{", "tokenizer must be JSON"),
            ("[]", "tokenizer must be a JSON object"),
            ('{"kind": "byte"}', "tokenizer must have options, got none"),
            ('{"kind": "byte", "options": {"x": 1}}', "options has no field 'x'; choose from drop"),
            ('{"kind": "byte", "options": {"drop_newlines": 1}}', "drop_newlines must be true or"),
        ):
            (folder / "tokenizer.json").write_text(content)
            with self.assertRaisesRegex(ValueError, f"tokenizer.json: {message}"):
                tokenizers.load(folder)
        (folder / "tokenizer.json").write_text(json.dumps(dict(kind="bytes", options={})))
        with self.assertRaisesRegex(ValueError, "kind must be one of byte, .*, got 'bytes'"):
            tokenizers.load(folder)


class ByteTest(absltest.TestCase):
    def test_all_values(self):
        byte = learn("byte")
        data = bytes(range(256))
        self.assertEqual(byte.encode_bytes(data).tolist(), list(range(256)))
        self.assertEqual(byte.decode_bytes(range(256)), data)
        self.assertEqual(byte.encode_bytes(b"ab\nc").tolist(), [97, 98, 10, 99])
        self.assertEqual([byte.symbol(i) for i in (97, 10, 200)], ["a", "\n", "<0xC8>"])
        self.assertEqual(byte.encode_bytes("\ufeffa".encode()).tolist(), [0xEF, 0xBB, 0xBF, 97])

    def test_characters_of_text(self):
        encoding = learn("byte").encode_piece(text.Piece("é日😀\n".encode()))
        self.assertEqual((encoding.bytes, encoding.characters), (10, 4))

    def test_drop_newlines(self):
        encoding = learn("byte", drop_newlines=True).encode_piece(text.Piece(b"a\n\nb\n"))
        self.assertEqual((encoding.ids.tolist(), encoding.bytes), ([97, 98], 2))

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "always has 256 ids, got 300 and 0"):
            learn("byte", vocab_size=300)


class CharTest(parameterized.TestCase):
    def test_order_and_unknown(self):
        char = learn("char", "bab\n", "ca")
        self.assertEqual(char.vocabulary.symbols, ("b", "a", "\n", "c", "<unk>"))
        self.assertEqual(char.encode("caf\n").tolist(), [3, 1, 4, 2])
        self.assertEqual(char.decode([3, 4]), "c\ufffd")
        self.assertIsNone(char.end_id)

    def test_count_equals_a_plain_loop(self):
        content = prepared.text(3000) + ODD
        counts = {}
        for symbol in content:
            counts[symbol] = counts.get(symbol, 0) + 1
        self.assertEqual(list(learn("char").count(content).items()), list(counts.items()))

    def test_end_of_line(self):
        char = learn("char", "ab\n", end_of_line="eos")
        self.assertEqual(char.vocabulary.symbols, ("<eos>", "a", "b", "<unk>"))
        self.assertEqual(char.encode("ab").tolist(), [1, 2, 0])
        self.assertEqual(char.encode("ab", complete=False).tolist(), [1, 2])
        self.assertEqual(char.encode("a\n\nb\n").tolist(), [1, 0, 0, 2, 0])
        self.assertEqual(char.decode([1, 0]), "a\n")
        self.assertEqual(char.end_id, 0)
        self.assertEqual(char.encode("<eos>").tolist(), [3] * 5 + [0])  # letters, no mark

    def test_options(self):
        self.assertEqual(learn("char", "ab\n\nA", drop_newlines=True).vocab_size, 4)
        lower = learn("char", "aAİ", lower_case=True)  # İ becomes two code points
        self.assertEqual(lower.vocabulary.symbols, ("a", "i", "\u0307", "<unk>"))
        self.assertEqual(lower.encode("A").tolist(), [0])
        self.assertEqual(learn("char", "aab", vocab_size=2).vocabulary.symbols, ("a", "<unk>"))
        self.assertEqual(learn("char", "aab", min_count=2).vocabulary.symbols, ("a", "<unk>"))

    def test_unknown_error(self):
        char = learn("char", "ab", unknown="error")
        self.assertEqual(char.vocab_size, 2)
        self.assertIsNone(char.unknown_id)
        with self.assertRaisesRegex(ValueError, "symbols of the vocabulary, got 'q'"):
            char.encode("abq")
        with self.assertRaisesRegex(ValueError, "x.txt: text must hold only symbols"):
            char.encode_piece(text.Piece(b"q", "x.txt"))

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "one of none, eos for tokenizer char, got 'bound"):
            learn("char", end_of_line="boundary")
        with self.assertRaisesRegex(ValueError, "drop_newlines must be off with end_of_line 'eos'"):
            learn("char", end_of_line="eos", drop_newlines=True)
        with self.assertRaisesRegex(ValueError, "single characters, got 'ab'"):
            tokenizers.CharTokenizer(vocabulary=Vocabulary(["ab", "<unk>"]))
        with self.assertRaisesRegex(ValueError, "vocabulary must hold <unk>, got none"):
            tokenizers.CharTokenizer(vocabulary=Vocabulary(["a"]))


class WordTest(parameterized.TestCase):
    def words(self, content, learnt=None, **options):
        word = learn("word", content if learnt is None else learnt, **options)
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
        word = learn("word", "a b\n")
        self.assertEqual(word.encode("a b", complete=False).tolist(), [1, 2])
        self.assertEqual(word.encode("b\na", starts_line=False).tolist(), [2, 0, 1, 0])
        self.assertEqual(word.encode("", starts_line=False).tolist(), [0])  # ends an open line
        pair = learn("word", "a b\n", end_of_line="boundary")
        self.assertEqual(pair.encode("a\nb", complete=False).tolist(), [0, 1, 0, 0, 2])
        self.assertEqual(pair.encode("a\nb\n", starts_line=False).tolist(), [1, 0, 0, 2, 0])
        # A literal mark at the end of an open line stays.
        self.assertEqual(pair.encode("a <S> ", complete=False).tolist(), [0, 1, 0])
        self.assertEqual(pair.encode("a\n<S> ", complete=False).tolist(), [0, 1, 0, 0, 0])

    @parameterized.parameters(
        ("eos", "a b\n\nc\n"), ("boundary", "a b\n\nc\n"), ("none", "a b c"), ("eos", "a\nb c")
    )
    def test_decode(self, end_of_line, content):
        word = learn("word", content, end_of_line=end_of_line)
        self.assertEqual(word.decode(word.encode(content, complete=False)), content)

    def test_long_text_equals_a_plain_loop(self):
        content = prepared.text(100_000)
        for mark, end, begin in (("eos", "<eos>", ""), ("boundary", "<S>", "<S>")):
            word = learn("word", content, end_of_line=mark)
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
        word = learn("word", "a b\n", **drop)
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
        word = learn("word", content, white_space="ascii")
        self.assertEqual(word.decode(word.encode(content)), f"a{space}b c d\n{space}\n\n")

    def test_white_space_is_saved_and_old_files_are_read(self):
        content = "a\u3000b c\xa0\n"
        folder = helpers.temp_dir(self)
        for white_space, saved in (("ascii", {"white_space": "ascii"}), ("unicode", {})):
            word = learn("word", content, white_space=white_space)
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
        start = learn("word", "a\u3000b\n", white_space="ascii").extension(
            vocab_size=None, min_count=0
        )
        start.add(start.observe(text.Piece("a\u3000b c\xa0d a\n".encode())))
        self.assertEqual(start.finish().symbols, ("<eos>", "a\u3000b", "<unk>", "c\xa0d", "a"))

    def test_unknown(self):
        train = "a b a <unk> <eos> x<eos>y\n"
        word = learn("word", train)
        self.assertEqual(word.vocabulary.symbols, ("<eos>", "a", "b", "<unk>", "x<eos>y"))
        self.assertEqual(word.encode("a q\n").tolist(), [1, 3, 0])
        self.assertEqual(learn("word", "a <UNK>\n").vocabulary.symbols, ("<eos>", "a", "<UNK>"))
        self.assertEqual(self.words("q x<eos>z\n", learnt="a"), "<unk> <unk> <eos>")
        self.assertEqual(word.encode_piece(text.Piece(b"q <unk> a\n")).unknown, 1)  # a word, too
        with self.assertRaisesRegex(ValueError, "symbols of the vocabulary, got 'q'"):
            self.words("a q", learnt="a", unknown="error")

    def test_lower_case(self):
        self.assertEqual(self.words("A İ ΣΑΣ\n", lower_case=True), "a i\u0307 σας <eos>")

    def test_nul_survives(self):
        word = learn("word", "a\x00b c\n")
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
                learn("word", **options)
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


class SentencePieceTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.piece = learn("sentencepiece")

    def test_any_text_survives(self):
        draw = random.Random(0)
        pools = ["ab \n\t\r\x00", "\u2581 ", "日本é\u0301", "<0x41>\\s<unk>"]
        for _ in range(300):
            content = "".join(
                draw.choice(draw.choice(pools))
                if draw.random() < 0.8
                else chr(draw.choice([draw.randrange(0xD800), draw.randrange(0xE000, 0x110000)]))
                for _ in range(draw.randrange(30))
            )
            self.assertEqual(self.piece.decode(self.piece.encode(content)), content)

    def test_the_unknown_piece_is_written_as_by_other_tokenizers(self):
        self.assertEqual(self.piece.decode([self.piece.unknown_id]), "<unk>")
        self.assertEqual(self.piece.symbol(self.piece.unknown_id), "<unk>")
        self.assertNotIn(self.piece.unknown_id, self.piece.encode("<unk> \u2047 \U0010ffff é"))

    @parameterized.parameters(
        "吾輩は猫である。名前はまだ無い。\nどこで生れたかとんと見当がつかぬ。",
        "ฉันรักภาษาไทย\nน้ำใจ",
        "a\tb\tc\nd\te\tf",
    )
    def test_text_without_a_space(self, content):
        learner = tokenizers.SentencePieceTokenizer.start(
            vocab_size=258 + len(set(content)), min_count=0
        )
        learner.add(learner.observe(text.Piece(f"{content}\n".encode() * 30)))
        found = learner.finish()
        for other in (content, " a  b \u2581 ", prepared.text(100)):
            self.assertEqual(found.decode(found.encode(other)), other)
        (space,) = found.encode(" ")
        self.assertEqual(found.symbol(space), " ")

    def test_pieces_are_longer_than_bytes(self):
        content = prepared.text(3000, seed=1)
        self.assertLess(len(self.piece.encode(content)), len(content) / 1.5)
        self.assertEqual(self.piece.vocab_size, 400)

    def test_training_is_reproducible(self):
        self.assertEqual(learn("sentencepiece").checksum, self.piece.checksum)

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "vocab_size must be given for tokenizer sent"):
            tokenizers.SentencePieceTokenizer.start(vocab_size=None, min_count=0)
        with self.assertRaisesRegex(ValueError, "vocab_size must suit the text, got 100: .*small"):
            learn("sentencepiece", vocab_size=100)
        with self.assertRaisesRegex(ValueError, "must suit the text, got 90000: .*<= "):
            learn("sentencepiece", vocab_size=90_000)
        with self.assertRaisesRegex(ValueError, "model must be a sentencepiece model, got"):
            tokenizers.SentencePieceTokenizer(model=b"nonsense")

    def test_pieces_that_are_not_utf8(self):
        """A damaged one that the first text does not come to, and what unknown is shown as."""
        model = self.piece.model
        pieces = map(self.piece.symbol, range(self.piece.vocab_size))
        longest = max((p for p in pieces if p.isalpha()), key=len).encode()
        for found, wrong in ((longest, b"\xe2"), (b"<unk>", b"<\xe2nk>")):
            place = model.rindex(found)
            damaged = model[:place] + wrong + model[place + len(wrong) :]
            with self.assertRaisesRegex(ValueError, r"sentencepiece, in UTF-8, got b'<?\\xe2"):
                tokenizers.SentencePieceTokenizer(model=damaged)

    def test_lossy_model(self):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(prepared.text(3000).split("\n")),
            model_writer=model,
            vocab_size=300,
            hard_vocab_limit=False,
            minloglevel=3,
        )
        with self.assertRaisesRegex(ValueError, "model must be lossless .*, got .* for"):
            tokenizers.SentencePieceTokenizer(model=model.getvalue())

    def test_sample_is_bounded_and_spread(self):
        learner = sentencepiece_lib.SamplingLearner(300, sample_bytes=100)
        for i in range(1000):
            learner.add(f"{i:010d}")
        sample = [int(part) for part in learner._sample]
        self.assertBetween(len(sample), 5, 10)
        self.assertLen(set(np.diff(sample)), 1)
        self.assertGreater(sample[-1], 800)


if __name__ == "__main__":
    absltest.main()
