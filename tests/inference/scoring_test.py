"""Tests of txl_tf.inference.model_scorer."""

import functools
import json
import math

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.data import text as texts
from txl_tf.data import tokenizers
from txl_tf.data.batches import Batches
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.inference import evaluation, text_scorer
from txl_tf.inference.model_scorer import Scorer
from txl_tf.models.transformer_xl import TransformerXL


@functools.cache
def make_model(vocab_size=256, mem_len=16):
    config = helpers.tiny_config(vocab_size=vocab_size, mem_len=mem_len)
    return helpers.loud(TransformerXL(config), deviation=0.3)


@functools.cache
def make_scorer(mem_len=16, **options):
    return Scorer(make_model(mem_len=mem_len), ByteTokenizer(), **options)


def one_pass(model, ids):
    """The log-probability of each id but the first, in one call over all."""
    ids = np.array([ids], "int32")
    nll, _ = model.nll(ids[:, :-1], ids[:, 1:])
    return -np.asarray(nll)[0]


TEXT = "Ein paar Wörter,\nnoch mehr. " * 3


class OneTextTest(parameterized.TestCase):
    @parameterized.parameters(1, 7, 64)
    def test_segments_do_not_show(self, segment_len):
        found = make_scorer(mem_len=128, segment_len=segment_len).score(TEXT)
        ids = list(TEXT.encode())
        expected = one_pass(make_model(mem_len=128), ids)
        self.assertIsNone(found.log_probs[0])
        self.assertLen(found.log_probs, len(ids))
        atol = rounding.of_scores(make_model(mem_len=128).config, len(ids))
        np.testing.assert_allclose(found.log_probs[1:], expected, rtol=0, atol=atol)
        total = -sum(found.log_probs[1:])
        rtol = rounding.tolerance(len(ids), dtype="float64")
        self.assertAlmostEqual(found.nats, total, delta=rtol * total)
        perplexity = math.exp(-expected.mean())
        self.assertAlmostEqual(found.perplexity, perplexity, delta=atol * perplexity)

    def test_short_memory_shows(self):
        near = make_scorer(mem_len=1, segment_len=1).score(TEXT)
        far = make_scorer(mem_len=128, segment_len=1).score(TEXT)
        self.assertGreater(abs(near.nats - far.nats), 0.01)

    def test_pieces_do_not_show(self):
        scorer, data = make_scorer(segment_len=8), TEXT.encode()
        whole = scorer.score(TEXT)
        cuts = [0, 1, 2, 3, 20, 21, 60, 60, len(data)]
        pieces = [texts.Piece(data[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
        found = scorer.score_pieces(pieces)
        atol = rounding.of_scores(make_model().config, len(data))
        np.testing.assert_allclose(found.log_probs[1:], whole.log_probs[1:], rtol=0, atol=atol)
        self.assertEqual(found.tokens, whole.tokens)
        summary = scorer.score_pieces(pieces, summary=True)
        self.assertAlmostEqual(summary.nats, found.nats, delta=len(data) * atol)
        self.assertEqual((summary.tokens, summary.log_probs), (None, None))
        self.assertNotIn("tokens", summary.to_dict())

    def test_bits_of_bytes_and_characters(self):
        found = make_scorer().score(TEXT)
        size, characters = len(TEXT.encode()), len(TEXT)
        mean = found.nats / (size - 1)
        self.assertAlmostEqual(found.bits_per_byte, mean / math.log(2))
        self.assertAlmostEqual(found.bits_per_character, mean / math.log(2) * size / characters)

    def test_one_token_has_nothing_to_score(self):
        values = make_scorer().score("x").to_dict()
        self.assertEqual(
            json.loads(json.dumps(values)),
            {
                "tokens": ["x"],
                "log_probs": [None],
                "num_tokens": 1,
                "unknown": 0,
                "nats": 0.0,
                "perplexity": None,
                "bits_per_byte": None,
                "bits_per_character": None,
                "bits_unavailable": "no token was scored",
            },
        )

    def test_any_bytes_have_names(self):
        found = make_scorer().score(b"a\xff\xc3\xa9")
        self.assertEqual(found.tokens, ("a", "<0xFF>", "<0xC3>", "<0xA9>"))

    def test_progress(self):
        scorer, seen = Scorer(make_model(), ByteTokenizer(), segment_len=8), []
        scorer.progress = lambda scored, encoded: seen.append((scored, encoded))
        scorer.score("x" * 20)
        self.assertEqual(seen, [(8, 20), (16, 20), (19, 20)])


class VocabularyTest(parameterized.TestCase):
    def scorer(self, tokenizer, **options):
        return Scorer(make_model(tokenizer.vocab_size), tokenizer, **options)

    def words(self, **options):
        vocabulary = Vocabulary(["<eos>", "a", "b", "<unk>"])
        return tokenizers.WordTokenizer(vocabulary=vocabulary, **options)

    def test_unknown_words_are_counted(self):
        found = self.scorer(self.words()).score("a q b\nb")
        self.assertEqual(found.tokens, ("a", "<unk>", "b", "<eos>", "b", "<eos>"))
        self.assertEqual((found.num_tokens, found.unknown), (6, 1))
        self.assertIsNone(found.bits_per_byte)
        self.assertIsNone(found.bits_per_character)
        self.assertStartsWith(found.bits_unavailable, "1 of 6 tokens stand for symbols outside")
        self.assertGreater(found.perplexity, 1)

    @parameterized.parameters(("a b", 4), ("a \t b", 4), ("a <unk>", 8))
    def test_a_line_counts_what_its_tokens_give_back(self, line, size):
        """With the end of the line, which is a token, and one space between two words."""
        (found,) = self.scorer(self.words()).score_each([texts.Piece(line.encode())])
        self.assertEqual(found.num_tokens, 3)
        expected = found.nats / 2 / math.log(2) * 3 / size
        self.assertAlmostEqual(found.bits_per_byte, expected)
        self.assertAlmostEqual(found.bits_per_character, expected)

    def test_unknown_words_are_refused(self):
        with self.assertRaisesRegex(ValueError, "symbols of the vocabulary, got 'q'"):
            self.scorer(self.words(unknown="error")).score("a q b")

    def test_no_text(self):
        for content in ("", " \t "):
            tokenizer = self.words(end_of_line="none")
            with self.assertRaisesRegex(ValueError, "text must have at least one token, got 0"):
                self.scorer(tokenizer).score(content)

    def test_invalid_utf8(self):
        with self.assertRaisesRegex(ValueError, "text must be UTF-8, got byte 0xff at offset 2"):
            self.scorer(self.words()).score(b"a \xff b")
        found = self.scorer(self.words(), invalid_utf8="replace").score(b"a \xff b")
        self.assertEqual(found.tokens, ("a", "<unk>", "b", "<eos>"))

    def test_model_of_another_vocabulary(self):  # AC16
        scorer = Scorer(make_model(vocab_size=100), ByteTokenizer())
        message = r"token ids must lie in 0\.\.99 \(vocabulary of 100\), got 120"
        with self.assertRaisesRegex(ValueError, message):
            scorer.score("AxB")

    @parameterized.parameters("segment_len", "batch_size")
    def test_sizes(self, name):
        with self.assertRaisesRegex(ValueError, f"{name} must be at least 1, got 0"):
            make_scorer(**{name: 0})


class ManyTextsTest(parameterized.TestCase):
    LINES = ("short", "", "x", "a line that is much longer than the others", "ü" * 9, "short")

    @parameterized.parameters((1, 8), (4, 8), (16, 4))
    def test_each_is_as_alone(self, batch_size, segment_len):
        scorer = make_scorer(batch_size=batch_size, segment_len=segment_len)
        content = "\n".join(self.LINES).encode()
        found = list(scorer.score_each(text_scorer.lines([texts.Piece(content)])))
        self.assertLen(found, len(self.LINES))
        for line, each in zip(self.LINES, found, strict=True):
            if not line:
                self.assertEqual((each.tokens, each.log_probs, each.nats), ((), (), 0.0))
                self.assertIsNone(each.bits_per_byte)
                continue
            alone = scorer.score(line)
            self.assertEqual(each.tokens, alone.tokens)
            atol = rounding.of_scores(make_model().config, 64)
            np.testing.assert_allclose(each.log_probs[1:], alone.log_probs[1:], rtol=0, atol=atol)
            self.assertAlmostEqual(each.nats, alone.nats, delta=each.num_tokens * atol)

    def test_more_lines_than_a_window(self):
        scorer = make_scorer(batch_size=1)
        content = "\n".join("abc"[: i % 3 + 1] for i in range(50)).encode()
        found = list(scorer.score_each(text_scorer.lines([texts.Piece(content)]), summary=True))
        self.assertEqual([each.num_tokens for each in found], [i % 3 + 1 for i in range(50)])
        self.assertIsNone(found[0].tokens)

    def test_lines_of_pieces(self):
        pieces = [texts.Piece(data, "f") for data in (b"ab\nc", b"", b"d\n\ne\r\n", b"f")]
        found = [(line.data, line.offset) for line in text_scorer.lines(pieces)]
        expected = [(b"ab", 0), (b"cd", 3), (b"", 6), (b"e\r", 7), (b"f", 10)]
        self.assertEqual(found, expected)
        self.assertEmpty(list(text_scorer.lines([])))

    def test_a_long_line_comes_in_pieces(self):
        pieces = [texts.Piece(data, "f") for data in (b"a\nbcd", b"e", b"fgh", b"\ni", b"jkl\nm")]
        found = [
            (p.data, p.offset, p.starts_line, p.complete) for p in text_scorer.lines(pieces, 3)
        ]
        expected = [
            (b"a", 0, True, True),
            (b"bcde", 2, True, False),
            (b"fgh", 6, False, True),
            (b"ijkl", 10, True, True),
            (b"m", 15, True, True),
        ]
        self.assertEqual(found, expected)
        *_, long, last = text_scorer.lines(pieces[:2], 3)
        self.assertEqual((long.data, long.complete), (b"bcde", False))
        self.assertEqual((last.data, last.starts_line, last.complete), (b"", False, True))

    def test_a_long_line_is_scored_as_a_text(self):
        """Among short ones, and for a tokenizer that ends lines; blank ones have no tokens."""
        vocabulary = Vocabulary(["<eos>", "a", "b", "<unk>"])
        words = tokenizers.WordTokenizer(vocabulary=vocabulary)
        scorer = Scorer(make_model(4), words, batch_size=2, segment_len=4)
        content = "a b\n" + "a b b " * 9 + "\nb\n" + " " * 40 + "\n" + "b a " * 9
        pieces = list(texts.Reader(texts.Source.from_text("t", content)).pieces(16))
        for summary in (False, True):
            found = list(scorer.score_each(text_scorer.lines(pieces, 20), summary=summary))
            self.assertLen(found, 5)
            for line, each in zip(content.split("\n"), found, strict=True):
                (alone,) = scorer.score_each([texts.Piece(line.encode())], summary=summary)
                atol = rounding.of_scores(make_model(4).config, 40)
                self.assertAlmostEqual(each.nats, alone.nats, delta=each.num_tokens * atol)
                self.assertEqual((each.num_tokens, each.tokens), (alone.num_tokens, alone.tokens))
                if alone.nats:
                    self.assertAlmostEqual(each.bits_per_byte, alone.bits_per_byte, delta=2 * atol)


class EqualsEvaluateTest(parameterized.TestCase):
    @parameterized.parameters(
        ("byte", {}),
        ("char", {"options": {"end_of_line": "eos"}}),
        ("word", {"options": {"lower_case": True}, "vocab_size": 40}),
        ("word", {"options": {"end_of_line": "boundary", "blank_lines": "drop"}}),
    )
    def test_text_scored_is_the_split_evaluated(self, kind, options):
        folder = self.create_tempdir().full_path
        text = "One two  three\r\n\n" + trained.TEXT.rstrip("\n")
        data_dir = trained.prepare_data(folder, kind, text=text, **options)
        loaded = model_dirs.load(trained.describe(folder, data_dir))
        batches = Batches(data_dir, "valid", batch_size=1, segment_len=8, mode="eval")
        expected = evaluation.evaluate(loaded.model, batches)
        found = Scorer(loaded.model, loaded.tokenizer, segment_len=8).score(text)
        self.assertEqual(found.num_tokens, expected.scored + 1)
        atol = rounding.of_scores(loaded.model.config)  # of nats, and means of some of them
        self.assertAlmostEqual(found.nats / expected.nats, 1.0, delta=atol)
        self.assertAlmostEqual(found.bits_per_byte, expected.bits_per_byte, delta=2 * atol)
        per_character = found.bits_per_character
        self.assertAlmostEqual(per_character, expected.bits_per_character, delta=2 * atol)
        self.assertAlmostEqual(found.perplexity / expected.perplexity, 1.0, delta=atol)


if __name__ == "__main__":
    absltest.main()
