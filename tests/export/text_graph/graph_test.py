"""A tokenizer in a graph gives what the tokenizer gives."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import learnt
import text_graphs
from txl_tf.data import text, tokenizers
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.export import text_graph

example = functools.cache(text_graphs.example)


class EqualityTest(parameterized.TestCase):
    def test_every_kind_is_covered(self):
        self.assertEqual(text_graph.GRAPHS.keys(), tokenizers.TOKENIZERS.keys())
        self.assertEqual(text_graphs.GRID.keys(), tokenizers.TOKENIZERS.keys())
        for kind, rows in text_graphs.GRID.items():
            options = set(tokenizers.kind(kind).option_names())
            self.assertEqual(set().union(*rows), options)

    @parameterized.parameters(*text_graphs.ROWS)
    def test_ids_and_their_text(self, kind, options):
        tokenizer, graph = example(kind, **options)
        data = [content.encode() for content in [*text_graphs.AWKWARD, *text_graphs.random_texts()]]
        for complete in (True, False):
            ids, lengths = graph.encode(data, complete)
            self.assertEqual((ids.dtype, lengths.dtype), (tf.int32, tf.int32))
            self.assertEqual(ids.shape[1], max(lengths))
            for row, length in zip(ids.numpy(), lengths.numpy(), strict=True):
                self.assertFalse(row[length:].any())
            expected = [tokenizer.encode_bytes(d, complete=complete).tolist() for d in data]
            for one, found, right in zip(
                data, text_graphs.rows_of(ids, lengths), expected, strict=True
            ):
                self.assertEqual(found, right, one)
            texts = graph.decode(ids, lengths).numpy().tolist()
            self.assertEqual(texts, [tokenizer.decode_bytes(row) for row in expected])

    @parameterized.parameters(*text_graphs.ROWS)
    def test_text_of_any_ids(self, kind, options):
        from txl_tf.text_stream import TextStream

        tokenizer, graph = example(kind, **options)
        context, new = (
            text_graphs.random_ids(tokenizer, 300, width, seed=width) for width in (9, 12)
        )
        texts = graph.decode(*new).numpy().tolist()
        self.assertEqual(
            texts, [tokenizer.decode(row).encode() for row in text_graphs.rows_of(*new)]
        )
        after = graph.decode_after(*context, *new).numpy().tolist()
        for before, row, found in zip(
            text_graphs.rows_of(*context), text_graphs.rows_of(*new), after, strict=True
        ):
            stream = TextStream(tokenizer.decode, before)
            self.assertEqual(found.decode(), stream.add(row) + stream.finish(), (before, row))

    @parameterized.parameters(*((kind, rows[-1]) for kind, rows in text_graphs.GRID.items()))
    def test_any_number_of_rows_in_a_function(self, kind, options):
        _, graph = example(kind, **options)
        ids_spec = tf.TensorSpec([None, None], tf.int32)
        lengths_spec = tf.TensorSpec([None], tf.int32)
        encode = tf.function(graph.encode, input_signature=[tf.TensorSpec([None], tf.string)])
        decode = tf.function(graph.decode, input_signature=[ids_spec, lengths_spec])
        after = tf.function(graph.decode_after, input_signature=[ids_spec, lengths_spec] * 2)
        for data in ([], [""], ["", ""], ["a b\n", "a"]):
            data = tf.constant(data, tf.string, [len(data)])
            encoded = encode(data)
            self.assertEqual(encoded[0].shape[0], len(data))
            eager = graph.encode(data)
            np.testing.assert_array_equal(encoded[0], eager[0])
            np.testing.assert_array_equal(decode(*encoded), graph.decode(*eager))
            expected = graph.decode_after(*eager, *eager)
            np.testing.assert_array_equal(after(*encoded, *encoded), expected)

    @parameterized.parameters(
        *((kind, rows[-1]) for kind, rows in text_graphs.GRID.items() if kind != "byte")
    )
    def test_long_texts(self, kind, options):
        """Up to a megabyte: what takes the square of the time would not end."""
        options = {name: "unk" if name == "unknown" else options[name] for name in options}
        tokenizer, graph = example(kind, **options)
        for content in ("a", "a ", " ", " \n", "a \u3000\t", "\u2581", "AΣ\u0301", "<S> "):
            data = (content * 200_000).encode()
            ids, _ = graph.encode([data])
            np.testing.assert_array_equal(ids[0], tokenizer.encode_bytes(data))

    def test_every_byte(self):
        _, graph = example("byte", drop_newlines=True)
        data = [bytes(range(256)), b"\xff\n\xfe", b"\xef\xbb\xbfa"]
        expected = [[*range(10), *range(11, 256)], [255, 254], [0xEF, 0xBB, 0xBF, 97]]
        self.assertEqual(text_graphs.rows_of(*graph.encode(data)), expected)

    def test_every_code_point(self):
        points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
        content = "".join(points)
        char = learnt.tokenizer("char", content[:5000])
        found = text_graphs.rows_of(*text_graph.from_tokenizer(char).encode([content]))
        self.assertEqual(found, [char.encode(content).tolist()])
        content = "".join(f"a{point}b c " for point in points[:0x10000])
        for white_space in text.WHITE_SPACES:
            word = learnt.tokenizer("word", "a b c\n", end_of_line="none", white_space=white_space)
            found = text_graphs.rows_of(*text_graph.from_tokenizer(word).encode([content]))
            self.assertEqual(found, [word.encode(content).tolist()])

    def test_smallest_vocabularies(self):
        for kind, end_of_line, symbols in (
            ("char", "none", ["<unk>"]),
            ("char", "none", ["<UNK>"]),
            ("word", "eos", ["<eos>", "<unk>"]),
        ):
            tokenizer = tokenizers.kind(kind)(
                vocabulary=Vocabulary(symbols), end_of_line=end_of_line
            )
            graph = text_graph.from_tokenizer(tokenizer)
            ids, lengths = graph.encode(["a\nb", ""])
            self.assertEqual(
                text_graphs.rows_of(ids, lengths), [tokenizer.encode("a\nb").tolist(), []]
            )
            expected = [tokenizer.decode(row).encode() for row in text_graphs.rows_of(ids, lengths)]
            self.assertEqual(graph.decode(ids, lengths).numpy().tolist(), expected)

    def test_words_and_spaces(self):
        """A hand-made table, as a check of the checks above."""
        word = learnt.tokenizer("word", "a b\n")
        graph = text_graph.from_tokenizer(word)  # <eos> a b
        for context, new, expected in (
            ([1], [2], " b"),
            ([1, 0], [2], "b"),
            ([], [1, 2], "a b"),
            ([1], [0, 1], "\na"),
            ([1, 2], [], ""),
        ):
            sizes = [len(context)], [len(new)]
            context, new = (np.array(ids, np.int32)[None] for ids in (context, new))
            found = graph.decode_after(context, sizes[0], new, sizes[1])
            self.assertEqual(found.numpy().tolist(), [expected.encode()])
        ids, lengths = graph.encode(["a b\n\nq", "b"])
        self.assertEqual(ids.numpy().tolist(), [[1, 2, 0, 0, 3, 0], [2, 0, 0, 0, 0, 0]])
        self.assertEqual(lengths.numpy().tolist(), [6, 2])


if __name__ == "__main__":
    absltest.main()
