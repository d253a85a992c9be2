"""Bytes as ids."""

from absl.testing import absltest

import learnt
from txl_tf.data import text


class ByteTest(absltest.TestCase):
    def test_all_values(self):
        byte = learnt.tokenizer("byte")
        data = bytes(range(256))
        self.assertEqual(byte.encode_bytes(data).tolist(), list(range(256)))
        self.assertEqual(byte.decode_bytes(range(256)), data)
        self.assertEqual(byte.encode_bytes(b"ab\nc").tolist(), [97, 98, 10, 99])
        self.assertEqual([byte.symbol(i) for i in (97, 10, 200)], ["a", "\n", "<0xC8>"])
        self.assertEqual(byte.encode_bytes("\ufeffa".encode()).tolist(), [0xEF, 0xBB, 0xBF, 97])

    def test_characters_of_text(self):
        encoding = learnt.tokenizer("byte").encode_piece(text.Piece("é日😀\n".encode()))
        self.assertEqual((encoding.bytes, encoding.characters), (10, 4))

    def test_drop_newlines(self):
        encoding = learnt.tokenizer("byte", drop_newlines=True).encode_piece(
            text.Piece(b"a\n\nb\n")
        )
        self.assertEqual((encoding.ids.tolist(), encoding.bytes), ([97, 98], 2))

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "always has 256 ids, got 300 and 0"):
            learnt.tokenizer("byte", vocab_size=300)


if __name__ == "__main__":
    absltest.main()
