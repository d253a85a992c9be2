"""Tests of recipes: valid options, and rejected combinations."""

import json

from absl.testing import absltest, parameterized

import helpers
from txl_tf.data import text, tokenizers, vocabulary
from txl_tf.data.recipe import Recipe


class RecipeTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(vocab_from="valid"), "vocab_from must be one of train, all, got 'valid'"),
        (dict(document_boundary="x"), "one of file, blank_line, line, none, got 'x'"),
        (dict(invalid_utf8="x"), "invalid_utf8 must be one of error, replace, got 'x'"),
        (dict(vocab_size=0), "vocab_size must be at least 1, got 0"),
        (dict(min_count=-1), "min_count must be at least 0, got -1"),
        (dict(shuffle_sentences=-1), "shuffle_sentences must be at least 0, got -1"),
        (
            dict(shuffle_sentences=1, document_boundary="blank_line"),
            "file, line or none with shuffle_sentences, got blank_line",
        ),
        (dict(vocab="x", vocab_size=9), "must be left out with vocab, got 9 and 0"),
        (dict(vocab="x", extend_vocab="y"), "left out with extend_vocab, got 'x' and 'y'"),
    )
    def test_refuses(self, fields, message):
        with self.assertRaisesRegex(ValueError, message):
            Recipe(**fields)

    @parameterized.parameters(
        (dict(tokenizer="bpe"), "tokenizer must be one of byte, char, .*, got 'bpe'"),
        (
            dict(options=dict(lower_case=True)),
            "lower_case must be left out for tokenizer byte, which takes drop_newlines",
        ),
        (
            dict(tokenizer="sentencepiece", options=dict(unknown="unk")),
            "unknown must be left out for tokenizer sentencepiece, which takes no options",
        ),
        (dict(extend_vocab="no/such"), "no/such must hold tokenizer.json, got none"),
        (dict(vocab="no/such"), "vocab must be a file or a folder, got 'no/such', which does not"),
    )
    def test_start_refuses(self, fields, message):
        with self.assertRaisesRegex(ValueError, message):
            Recipe(**fields).start()

    def test_defaults(self):
        self.assertEqual(Recipe().start(), tokenizers.ByteTokenizer())
        learner = Recipe(tokenizer="word", vocab_size=9, min_count=2).start()
        self.assertEqual((learner.vocab_size, learner.min_count), (9, 2))
        self.assertEqual(learner.draft.end_of_line, "eos")


class VocabTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.path = f"{self.folder}/vocab.txt"

    def test_list_of_words(self):
        with open(self.path, "w") as file:
            file.write("the 9\nx\\n\n<unk>\n")
        word = Recipe(tokenizer="word", vocab=self.path).start()
        self.assertEqual(word.vocabulary.symbols, ("the", "x\\n", "<unk>", "<eos>"))
        with self.assertRaisesRegex(ValueError, "vocab must be left out for tokenizer byte"):
            Recipe(vocab=self.path).start()

    def test_repeats(self):
        with open(self.path, "w") as file:
            file.write("a\nb\na\n")
        with self.assertRaisesRegex(ValueError, "vocab.txt:3 must hold a new symbol"):
            Recipe(tokenizer="word", vocab=self.path).start()
        word = Recipe(tokenizer="word", vocab=self.path, vocab_repeats="skip").start()
        self.assertEqual(word.vocabulary.symbols, ("a", "b", "<eos>", "<unk>"))

    def test_list_of_characters_has_escapes(self):
        with open(self.path, "w") as file:
            file.write("a\n\\n\n\\s\n")
        char = Recipe(tokenizer="char", vocab=self.path).start()
        self.assertEqual(char.vocabulary.symbols, ("a", "\n", " ", "<unk>"))
        with self.assertRaisesRegex(ValueError, "vocab_repeats must be left out for .* char"):
            Recipe(tokenizer="char", vocab=self.path, vocab_repeats="skip").start()

    def test_folder(self):
        """Also by the name of the vocab.txt in it, which has escapes that a list has not."""
        symbols = vocabulary.Vocabulary(["<eos>", "<unk>", "back\\slash"])
        saved = tokenizers.WordTokenizer(vocabulary=symbols, lower_case=True)
        saved.save(str(self.folder))
        for vocab in (str(self.folder), self.path):
            self.assertEqual(Recipe(vocab=vocab).start(), saved)
            self.assertEqual(Recipe(tokenizer="word", vocab=vocab).start(), saved)
            with self.assertRaisesRegex(ValueError, "tokenizer must be word as in .*, got 'char'"):
                Recipe(tokenizer="char", vocab=vocab).start()
            with self.assertRaisesRegex(ValueError, "lower_case must be True as in .*, got False"):
                Recipe(vocab=vocab, options=dict(lower_case=False)).start()

    def test_record_distinguishes_vocabularies(self):
        records = []
        for content in ("a\n", "b\n"):
            with open(self.path, "w") as file:
                file.write(content)
            recipe = Recipe(tokenizer="word", vocab=self.path)
            records.append(recipe.record(recipe.start()))
        self.assertNotEqual(*records)
        self.assertNotIn(str(self.folder), json.dumps(records))


class ExtendVocabTest(parameterized.TestCase):
    """New symbols come last, the most frequent first; all else stays, <unk> too."""

    def setUp(self):
        super().setUp()
        self.folder = str(helpers.temp_dir(self))

    def save(self, kind, symbols, **options):
        vocab = vocabulary.Vocabulary(symbols.split())
        known = tokenizers.kind(kind)(vocabulary=vocab, **options)
        known.save(self.folder)
        return known

    def extend(self, content, **fields):
        """The tokenizer of the folder, extended by a text."""
        start = Recipe(extend_vocab=self.folder, **fields).start()
        start.add(start.observe(text.Piece(content.encode())))
        return start.finish()

    def test_characters(self):
        known = self.save("char", "a b <unk>")
        grown = self.extend("cab dada\n")
        self.assertEqual(grown.vocabulary.symbols, ("a", "b", "<unk>", "d", "c", " ", "\n"))
        self.assertEqual(grown.unknown_id, known.unknown_id)
        self.assertEqual(grown.encode("bad!").tolist(), [1, 0, 3, 2])
        self.assertEqual(self.extend("abba").vocabulary, known.vocabulary)

    def test_words_with_all_options(self):
        self.save("word", "<S> the <unk>", end_of_line="boundary", lower_case=True)
        grown = self.extend("The cat\nthe dog <unk> dog\n")
        self.assertEqual(grown.vocabulary.symbols, ("<S>", "the", "<unk>", "dog", "cat"))
        self.assertEqual((grown.end_of_line, grown.lower_case), ("boundary", True))

    def test_limits(self):
        self.save("word", "<eos> <unk> once")
        grown = self.extend("a a a b b c", min_count=2)
        self.assertEqual(grown.vocabulary.symbols, ("<eos>", "<unk>", "once", "a", "b"))
        self.assertEqual(self.extend("a a a b b c", vocab_size=4).symbols[3:], ("a",))
        self.assertEqual(self.extend("a a a b b c", vocab_size=3).symbols[3:], ())
        with self.assertRaisesRegex(ValueError, "at least the 3 of extend_vocab, got 2"):
            self.extend("a", vocab_size=2)

    def test_the_unknown_keeps_its_spelling(self):
        known = self.save("word", "<eos> <UNK>")
        grown = self.extend("a <unk>")
        self.assertEqual(grown.vocabulary.symbols, ("<eos>", "<UNK>", "a"))
        self.assertEqual(grown.unknown_id, known.unknown_id)

    def test_bytes_are_all_known(self):
        known = tokenizers.ByteTokenizer(drop_newlines=True)
        known.save(self.folder)
        self.assertEqual(Recipe(extend_vocab=self.folder).start(), known)
        for limit in (dict(vocab_size=300), dict(min_count=2)):
            with self.assertRaisesRegex(ValueError, "for tokenizer byte, which encodes all text"):
                Recipe(extend_vocab=self.folder, **limit).start()

    def test_other_options_are_refused(self):
        self.save("word", "<eos> <unk>")
        with self.assertRaisesRegex(ValueError, "tokenizer must be word as in .*, got 'char'"):
            self.extend("a", tokenizer="char")
        with self.assertRaisesRegex(ValueError, "lower_case must be False as in .*, got True"):
            self.extend("a", options=dict(lower_case=True))

    def test_record_holds_the_vocabulary_and_no_path(self):
        records = []
        for symbols in ("<eos> <unk>", "<eos> <unk> a"):
            self.save("word", symbols)
            recipe = Recipe(extend_vocab=self.folder)
            records.append(recipe.record(recipe.start()))
        self.assertNotEqual(*records)
        self.assertNotIn(self.folder, json.dumps(records))
        self.assertNotIn("extend_vocab", Recipe().record(Recipe().start()))  # as before there was


if __name__ == "__main__":
    absltest.main()
