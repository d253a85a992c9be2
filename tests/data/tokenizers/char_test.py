"""Characters as ids, by hand-made tables."""

from absl.testing import absltest, parameterized

import learnt
import prepared
from txl_tf.data import text, tokenizers
from txl_tf.data.vocabulary import Vocabulary


class CharTest(parameterized.TestCase):
    def test_order_and_unknown(self):
        char = learnt.tokenizer("char", "bab\n", "ca")
        self.assertEqual(char.vocabulary.symbols, ("b", "a", "\n", "c", "<unk>"))
        self.assertEqual(char.encode("caf\n").tolist(), [3, 1, 4, 2])
        self.assertEqual(char.decode([3, 4]), "c\ufffd")
        self.assertIsNone(char.end_id)

    def test_count_equals_a_plain_loop(self):
        content = prepared.text(3000) + "\r\n\x00e\u0301 👨‍👩‍👧\n"
        counts = {}
        for symbol in content:
            counts[symbol] = counts.get(symbol, 0) + 1
        self.assertEqual(
            list(learnt.tokenizer("char").count(content).items()), list(counts.items())
        )

    def test_end_of_line(self):
        char = learnt.tokenizer("char", "ab\n", end_of_line="eos")
        self.assertEqual(char.vocabulary.symbols, ("<eos>", "a", "b", "<unk>"))
        self.assertEqual(char.encode("ab").tolist(), [1, 2, 0])
        self.assertEqual(char.encode("ab", complete=False).tolist(), [1, 2])
        self.assertEqual(char.encode("a\n\nb\n").tolist(), [1, 0, 0, 2, 0])
        self.assertEqual(char.decode([1, 0]), "a\n")
        self.assertEqual(char.end_id, 0)
        self.assertEqual(char.encode("<eos>").tolist(), [3] * 5 + [0])  # letters, no mark

    def test_options(self):
        self.assertEqual(learnt.tokenizer("char", "ab\n\nA", drop_newlines=True).vocab_size, 4)
        lower = learnt.tokenizer("char", "aAİ", lower_case=True)  # İ becomes two code points
        self.assertEqual(lower.vocabulary.symbols, ("a", "i", "\u0307", "<unk>"))
        self.assertEqual(lower.encode("A").tolist(), [0])
        self.assertEqual(
            learnt.tokenizer("char", "aab", vocab_size=2).vocabulary.symbols, ("a", "<unk>")
        )
        self.assertEqual(
            learnt.tokenizer("char", "aab", min_count=2).vocabulary.symbols, ("a", "<unk>")
        )

    def test_unknown_error(self):
        char = learnt.tokenizer("char", "ab", unknown="error")
        self.assertEqual(char.vocab_size, 2)
        self.assertIsNone(char.unknown_id)
        with self.assertRaisesRegex(ValueError, "symbols of the vocabulary, got 'q'"):
            char.encode("abq")
        with self.assertRaisesRegex(ValueError, "x.txt: text must hold only symbols"):
            char.encode_piece(text.Piece(b"q", "x.txt"))

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "one of none, eos for tokenizer char, got 'bound"):
            learnt.tokenizer("char", end_of_line="boundary")
        with self.assertRaisesRegex(ValueError, "drop_newlines must be off with end_of_line 'eos'"):
            learnt.tokenizer("char", end_of_line="eos", drop_newlines=True)
        with self.assertRaisesRegex(ValueError, "single characters, got 'ab'"):
            tokenizers.CharTokenizer(vocabulary=Vocabulary(["ab", "<unk>"]))
        with self.assertRaisesRegex(ValueError, "vocabulary must hold <unk>, got none"):
            tokenizers.CharTokenizer(vocabulary=Vocabulary(["a"]))


if __name__ == "__main__":
    absltest.main()
