"""What every tokenizer in a graph is: text to ids and back, on tensors."""

import abc

import tensorflow as tf

from txl_tf.data import tokenizers
from txl_tf.export.text_graph import checks

_BYTE_ORDER_MARK = r"\A\x{feff}"


class TextGraph(tf.Module, abc.ABC):
    """A tokenizer as TensorFlow operations: what it gives equals what the tokenizer gives.

    A module, so that what holds it can be saved: tables and models are attributes and go along.
    The tokenizer itself is not kept. Nothing here loops over rows or calls Python.

    Bad input is INVALID_ARGUMENT and says what is wrong, where and how: text that is not UTF-8
    (but for bytes, which may be anything), a symbol that the vocabulary lacks where the tokenizer's
    `unknown` is "error", an id outside the vocabulary.

    Shapes: B rows, N the longest row (0 is possible); int32, and 0 where a row is padded.

    Args:
      tokenizer: of the kind of the class.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        super().__init__(name=f"{tokenizer.kind}_text")
        self.vocab_size = tokenizer.vocab_size

    @abc.abstractmethod
    def encode(self, text, complete: bool = True):
        """The ids of texts that start a line: `Tokenizer.encode_bytes`.

        Args:
          text: [B] string.
          complete: whether the texts end here, so that a last line counts as ended.

        Returns:
          ids [B, N] and lengths [B].
        """

    def decode(self, ids, lengths):
        """`Tokenizer.decode` of each row's first ids: [B, N], [B] -> [B] string.

        Always UTF-8: where bytes are none, U+FFFD stands for them.
        """
        return self._text(self._rows(ids, lengths))

    def decode_after(self, context_ids, context_lengths, ids, lengths):
        """The text that ids add to that of the ids before them, which decides, say, about a space.

        What `text_stream.TextStream` shows in all: characters beyond as many as the context
        has.

        Shapes: [B, M], [B], [B, N], [B] -> [B] string.
        """
        context = self._rows(context_ids, context_lengths)
        content = self._text(tf.concat([context, self._rows(ids, lengths)], axis=1))
        shown = tf.strings.length(self._text(context), "UTF8_CHAR")
        size = tf.strings.length(content, "UTF8_CHAR")
        start = tf.minimum(shown, size)  # bytes of one character may first show as several
        return tf.strings.substr(content, start, size - start, "UTF8_CHAR")

    def _rows(self, ids, lengths):
        """The ragged ids of what may be padded: [B, N], [B] -> [B, N]."""
        rows = tf.RaggedTensor.from_tensor(ids, lengths)
        return checks.ids_in_range(rows, self.vocab_size)

    @abc.abstractmethod
    def _text(self, rows):
        """Valid UTF-8 of ragged ids in range: [B, N] -> [B] string."""


def read(text):
    """`text.decode` of whole files: [B] -> [B], UTF-8 or an error, without a byte-order mark."""
    return tf.strings.regex_replace(checks.utf8(text), _BYTE_ORDER_MARK, "")


def padded(rows):
    """Ragged ids [B, N] int32 as a tensor, and the lengths of its rows."""
    return rows.to_tensor(0), tf.cast(rows.row_lengths(), tf.int32)


def joined(rows, pieces):
    """The strings of ragged rows, one after the other: rows [B, N], pieces [n] -> [B]."""
    return tf.strings.reduce_join(rows.with_flat_values(pieces).to_tensor(""), axis=1)


def valid_utf8(data):
    """`bytes.decode("utf-8", "replace")` of a string tensor."""
    return tf.strings.unicode_transcode(data, "UTF-8", "UTF-8", errors="replace")
