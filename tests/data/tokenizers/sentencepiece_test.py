"""SentencePiece models that are lossless, and the refusal of those that are not."""

import io
import random

import numpy as np
import sentencepiece
from absl.testing import absltest, parameterized

import learnt
import prepared
from txl_tf.data import text, tokenizers
from txl_tf.data.tokenizers import sentencepiece as sentencepiece_lib


class SentencePieceTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.piece = learnt.tokenizer("sentencepiece")

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
        self.assertEqual(learnt.tokenizer("sentencepiece").checksum, self.piece.checksum)

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "vocab_size must be given for tokenizer sent"):
            tokenizers.SentencePieceTokenizer.start(vocab_size=None, min_count=0)
        with self.assertRaisesRegex(ValueError, "vocab_size must suit the text, got 100: .*small"):
            learnt.tokenizer("sentencepiece", vocab_size=100)
        with self.assertRaisesRegex(ValueError, "must suit the text, got 90000: .*<= "):
            learnt.tokenizer("sentencepiece", vocab_size=90_000)
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
