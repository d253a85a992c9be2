"""Byte tokenizer in a graph."""

import tensorflow as tf

from txl_tf.data import tokenizers
from txl_tf.export.text_graph import graph


class ByteGraph(graph.TextGraph):
    """`ByteTokenizer` in a graph: any bytes are valid; a byte-order mark is three of them."""

    def __init__(self, tokenizer: tokenizers.ByteTokenizer):
        super().__init__(tokenizer)
        self.drop_newlines = tokenizer.drop_newlines
        self.symbols = tf.constant([bytes([value]) for value in range(256)])

    def encode(self, text, complete: bool = True):
        del complete  # bytes have no lines
        if self.drop_newlines:
            text = tf.strings.regex_replace(text, "\n", "")
        lengths = tf.strings.length(text)
        longest = tf.reduce_max(tf.concat([lengths, [0]], 0))  # 0 without rows
        width = tf.maximum(longest, 1)  # decode_raw requires 1
        values = tf.io.decode_raw(text, tf.uint8, fixed_length=width)[:, :longest]
        return tf.cast(values, tf.int32), lengths

    def _text(self, rows):
        return graph.valid_utf8(graph.joined(rows, tf.gather(self.symbols, rows.flat_values)))
