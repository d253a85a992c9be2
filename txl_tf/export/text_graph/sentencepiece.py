"""SentencePiece in a graph, by tensorflow_text, which no other tokenizer needs.

Loading such an export requires the ops of tensorflow_text: its import in Python, its op library in
a server.
"""

import tensorflow as tf

from txl_tf.data import tokenizers
from txl_tf.export.text_graph import graph

_SPACE = "\u2581"  # sentencepiece's space
_NOTHING, _LINE_END, _SPACE_BYTES = range(3)  # separator before a part


class SentencePieceGraph(graph.TextGraph):
    """`SentencePieceTokenizer` in a graph.

    As there, text is split at line ends and at U+2581, which the library would read as a space: the
    parts are encoded, and the ids of the separators inserted.
    """

    def __init__(self, tokenizer: tokenizers.SentencePieceTokenizer):
        import tensorflow_text  # only needed here

        super().__init__(tokenizer)
        self.tokenizer = tensorflow_text.SentencepieceTokenizer(tokenizer.model, tf.int32)
        between = [[], tokenizer.encode("\n").tolist(), tokenizer.encode(_SPACE).tolist()]
        self.between = tf.ragged.constant(between, tf.int32)

    def encode(self, text, complete: bool = True):
        del complete  # line ends are ordinary symbols
        lines = tf.strings.split(graph.read(text), sep="\n")
        parts = tf.strings.split(lines, sep=_SPACE)  # [B, lines, parts], at least one in each
        line_splits = parts.values.row_splits
        row_splits = tf.gather(line_splits, parts.row_splits)
        ids = self.tokenizer.tokenize(parts.flat_values)  # [parts of all rows, pieces]
        before = tf.fill([tf.size(parts.flat_values)], _SPACE_BYTES)
        for starts, separator in ((line_splits, _LINE_END), (row_splits, _NOTHING)):
            indices = starts[:-1, tf.newaxis]
            before = tf.tensor_scatter_nd_update(
                before, indices, tf.fill([tf.size(indices)], separator)
            )
        ids = tf.concat([tf.gather(self.between, before), ids], axis=1)
        splits = tf.gather(ids.row_splits, row_splits)
        return graph.padded(tf.RaggedTensor.from_row_splits(ids.flat_values, splits))  # [B, N]

    def _text(self, rows):
        return graph.valid_utf8(self.tokenizer.detokenize(rows))
