"""Base class of tokenizers in graphs: text to ids and back, on tensors."""

import abc

import tensorflow as tf

from txl_tf.data import tokenizers
from txl_tf.export.text_graph import checks

_BYTE_ORDER_MARK = r"\A\x{feff}"


class TextGraph(tf.Module, abc.ABC):
    """A tokenizer as TensorFlow ops, with the same results as the tokenizer.

    A module, so that it is saved with its owner: tables and models are attributes. The tokenizer
    itself is not kept. Nothing here loops over rows or calls Python.

    Invalid input is INVALID_ARGUMENT with a message: text that is not UTF-8 (except for bytes), a
    symbol outside the vocabulary if the tokenizer's `unknown` is "error", an id outside the
    vocabulary.

    Shapes: B rows, N the longest row (may be 0); ids are int32, 0 for padding.

    Args:
      tokenizer: of the class's kind.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        super().__init__(name=f"{tokenizer.kind}_text")
        self.vocab_size = tokenizer.vocab_size

    @abc.abstractmethod
    def encode(self, text, complete: bool = True):
        """Returns the ids of texts at the start of a line, as `Tokenizer.encode_bytes`.

        Args:
          text: [B] string.
          complete: whether the texts end here, so that their last lines are ended.

        Returns:
          ids [B, N] and lengths [B].
        """

    def decode(self, ids, lengths):
        """Returns `Tokenizer.decode` of each row's first ids: [B, N], [B] -> [B] string.

        Always UTF-8: invalid bytes become U+FFFD.
        """
        return self._text(self._rows(ids, lengths))

    def decode_after(self, context_ids, context_lengths, ids, lengths):
        """Returns the text that ids add to their context, which affects, for example, spaces.

        Equals the concatenated output of `text_stream.TextStream`: the characters beyond
        the number that the context has.

        Shapes: [B, M], [B], [B, N], [B] -> [B] string.
        """
        context = self._rows(context_ids, context_lengths)
        content = self._text(tf.concat([context, self._rows(ids, lengths)], axis=1))
        shown = tf.strings.length(self._text(context), "UTF8_CHAR")
        size = tf.strings.length(content, "UTF8_CHAR")
        start = tf.minimum(shown, size)  # bytes of one character may first decode as several
        return tf.strings.substr(content, start, size - start, "UTF8_CHAR")

    def _rows(self, ids, lengths):
        """Returns the ragged ids of padded rows: [B, N], [B] -> [B, N]."""
        rows = tf.RaggedTensor.from_tensor(ids, lengths)
        return checks.ids_in_range(rows, self.vocab_size)

    @abc.abstractmethod
    def _text(self, rows):
        """Returns the valid UTF-8 text of ragged ids in range: [B, N] -> [B] string."""


def read(text):
    """Decodes whole files as `text.decode`: [B] -> [B], UTF-8 without a byte-order mark."""
    return tf.strings.regex_replace(checks.utf8(text), _BYTE_ORDER_MARK, "")


def padded(rows):
    """Returns ragged ids [B, N] int32 as a padded tensor, and row lengths."""
    return rows.to_tensor(0), tf.cast(rows.row_lengths(), tf.int32)


def joined(rows, pieces):
    """Joins the strings of ragged rows: rows [B, N], pieces [n] -> [B]."""
    return tf.strings.reduce_join(rows.with_flat_values(pieces).to_tensor(""), axis=1)


def valid_utf8(data):
    """Applies `bytes.decode("utf-8", "replace")` to a string tensor."""
    return tf.strings.unicode_transcode(data, "UTF-8", "UTF-8", errors="replace")
