"""Character tokenizer in a graph."""

import tensorflow as tf

from txl_tf.data import tokenizers
from txl_tf.data.tokenizers import counted as counted_tokenizer
from txl_tf.export.text_graph import checks, counted, graph

_NO_CODE = -1


class CharGraph(counted.CountedGraph):
    """`CharTokenizer` in a graph."""

    def __init__(self, tokenizer: tokenizers.CharTokenizer):
        super().__init__(tokenizer)
        self.drop_newlines = tokenizer.drop_newlines
        known = {_NO_CODE: self.fallback}  # a table must not be empty
        known |= {ord(s): i for s, i in tokenizer.vocabulary.ids.items() if len(s) == 1}
        if self.marks:
            known[ord("\n")] = tokenizer.vocabulary.ids[counted_tokenizer.END_OF_LINE]
        self.ids = self.table(tf.constant(list(known), tf.int32), list(known.values()))
        self.shown = tf.constant([tokenizer.decode_bytes([i]) for i in range(self.vocab_size)])

    def encode(self, text, complete: bool = True):
        text = self.normalise(text, complete)
        if self.drop_newlines:
            text = tf.strings.regex_replace(text, "\n", "")
        codes = tf.strings.unicode_decode(self.ended(text, complete), "UTF-8")
        ids = tf.ragged.map_flat_values(self.ids.lookup, codes)  # [B, N]
        if self.refuses_unknown:
            ids = checks.known(ids, lambda index: _character(codes.flat_values[index]))
        return graph.padded(ids)

    def _text(self, rows):
        return graph.joined(rows, tf.gather(self.shown, rows.flat_values))


def _character(code):
    return tf.strings.unicode_encode([code], "UTF-8")
