"""The laws that all tokenizers keep."""

import dataclasses
import json
import pickle

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import learnt
import prepared
from txl_tf.data import text, tokenizers

ODD = "a b\r\nc\td \u00a0e\x00f\n\n👨‍👩‍👧 e\u0301 <eos> \ufeff\u2028\u3000\u2581x \\n 日本\n"


class TokenizerTest(parameterized.TestCase):
    def test_every_kind_is_covered(self):
        self.assertEqual(set(tokenizers.TOKENIZERS), {"byte", "char", "word", "sentencepiece"})

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_save_and_load(self, kind):
        tokenizer = learnt.tokenizer(kind, ODD)
        folder = helpers.temp_dir(self)
        tokenizer.save(str(folder))
        loaded = tokenizers.load(folder)
        self.assertEqual(loaded, tokenizer)
        self.assertEqual(loaded.checksum, tokenizer.checksum)
        np.testing.assert_array_equal(loaded.encode(ODD), tokenizer.encode(ODD))

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_goes_to_other_processes(self, kind):
        tokenizer = learnt.tokenizer(kind, ODD)
        tokenizer.encode(ODD)  # fills its caches
        copied = pickle.loads(pickle.dumps(tokenizer))
        np.testing.assert_array_equal(copied.encode(ODD), tokenizer.encode(ODD))

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_ids_are_int32_and_in_range(self, kind):
        tokenizer = learnt.tokenizer(kind, ODD)
        for content in (ODD, "never seen: \u0416", ""):
            ids = tokenizer.encode(content)
            self.assertEqual((ids.dtype, ids.ndim), (np.int32, 1))
            self.assertTrue(((ids >= 0) & (ids < tokenizer.vocab_size)).all())
        self.assertEmpty(tokenizer.encode(""))

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_pieces_give_the_ids_of_the_whole(self, kind):
        content = prepared.text(5000)
        tokenizer = learnt.tokenizer(kind, content)
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
        tokenizer = learnt.tokenizer(kind, content, **options)
        found = tokenizer.encode_piece(text.Piece(content.encode()))
        back = tokenizer.decode(found.ids)
        self.assertEqual(found.size, (len(found.ids), len(back.encode()), len(back), 0))

    def test_a_replaced_byte_counts_as_what_it_was(self):
        for kind in ("char", "word"):
            found = learnt.tokenizer(kind, "a \ufffd\n").encode_piece(
                text.Piece(b"a \xff\n"), "replace"
            )
            self.assertEqual((found.bytes, found.characters), (4, 4))

    @parameterized.parameters("byte", "char", "sentencepiece")
    def test_lossless(self, kind):
        tokenizer = learnt.tokenizer(kind, ODD)
        self.assertEqual(tokenizer.decode(tokenizer.encode(ODD)), ODD)
        data = ODD.encode()
        self.assertEqual(tokenizer.decode_bytes(tokenizer.encode_bytes(data)), data)

    @parameterized.parameters(*tokenizers.TOKENIZERS)
    def test_symbols_and_bounds(self, kind):
        tokenizer = learnt.tokenizer(kind, ODD)
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
        word = learnt.tokenizer("word", "a b c")
        others = [
            learnt.tokenizer("word", "a c b"),
            learnt.tokenizer("char", "abc"),
            dataclasses.replace(word, lower_case=True),
            dataclasses.replace(word, white_space="ascii"),
            learnt.tokenizer("byte"),
            learnt.tokenizer("byte", drop_newlines=True),
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


if __name__ == "__main__":
    absltest.main()
