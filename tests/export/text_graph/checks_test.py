"""Tests of the input that a tokenizer in a graph rejects, and its messages."""

import functools

import tensorflow as tf
from absl.testing import absltest, parameterized

import learnt
import text_graphs
from txl_tf.export import text_graph

example = functools.cache(text_graphs.example)


class RefusalTest(parameterized.TestCase):
    def refused(self, function, *arguments):
        """The message, from a graph, as a server would give it."""
        with self.assertRaises(tf.errors.InvalidArgumentError) as caught:
            tf.function(function)(*(tf.constant(argument) for argument in arguments))
        return str(caught.exception)

    @parameterized.product(
        kind=("char", "word", "sentencepiece"),
        case=(
            ([b"a \xff b\n"], "0xff at offset 2 of row 0"),
            ([b"a", b"\xc3\xa9\xe2\x82"], "0xe2 at offset 2 of row 1"),
            ([b"\x00\xed\xa0\x80", b"\xff"], "0xed at offset 1 of row 0"),
            ([b"\xef\xbb\xbf\xc0\x80"], "0xc0 at offset 3 of row 0"),
            ([b"\xe2\xe2\x82\xac"], "0xe2 at offset 0 of row 0"),
            ([b"", "\ufffd\U0010ffff".encode() + b"\xf4\x90\x80\x80"], "0xf4 at offset 7 of row 1"),
        ),
    )
    def test_text_that_is_not_utf8(self, kind, case):
        _, graph = example(kind, **text_graphs.GRID[kind][0])
        data, expected = case
        self.assertIn(
            f"[text must be UTF-8, got byte {expected}]", self.refused(graph.encode, data)
        )
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, expected):
            graph.encode(data)

    def test_unknown_symbol(self):
        rule = "text must hold only symbols of the vocabulary, got"
        char = text_graph.from_tokenizer(learnt.tokenizer("char", "ab", unknown="error"))
        word = text_graph.from_tokenizer(learnt.tokenizer("word", "ab\n", unknown="error"))
        for graph, contents, expected in (
            (char, ["ab", "", "aq", "z"], "`q` in row 2"),
            (char, ["日"], "`日` in row 0"),
            (char, ["a\n"], r"`\n` in row 0"),
            (word, ["ab", "ab q\n", "z"], "`q` in row 1"),
            (word, ["", "ab", "é" * 1000], f"`{'é' * 40}` in row 2"),
        ):
            self.assertIn(f"[{rule} {expected}]", self.refused(graph.encode, contents))

    @parameterized.parameters(*((kind, rows[0]) for kind, rows in text_graphs.GRID.items()))
    def test_ids_outside_the_vocabulary(self, kind, options):
        tokenizer, graph = example(kind, **options)
        size = tokenizer.vocab_size
        for wrong in (size, -1):
            expected = f"[ids must lie in 0..{size - 1} (vocabulary of {size}), got {wrong}]"
            bad, good = [[0, wrong]], [[0, 0]]
            self.assertIn(expected, self.refused(graph.decode, bad, [2]))
            self.assertIn(expected, self.refused(graph.decode_after, good, [2], bad, [2]))
            self.assertIn(expected, self.refused(graph.decode_after, bad, [2], good, [2]))
            graph.decode(bad, [1])  # padding may be anything

    def test_a_function_whose_result_is_not_used(self):
        _, graph = example("char", **text_graphs.GRID["char"][0])

        @tf.function
        def count_rows(data):
            graph.encode(data)
            return tf.size(data)

        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "must be UTF-8"):
            count_rows(tf.constant([b"\xff"]))


if __name__ == "__main__":
    absltest.main()
