"""Checks in graphs: each raises INVALID_ARGUMENT with a message."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from txl_tf.export.text_graph import positions

_SHOWN = 40  # maximum characters of a symbol in a message
_BYTES = [f"0x{value:02x}" for value in range(256)]


def unless(wrong, message: Callable[[], Sequence], value):
    """Returns `value`, or fails with the joined parts of `message` if `wrong`.

    `value` comes from the branch taken, so whatever depends on it waits for the check; messages are
    computed only on failure.
    """

    def fail():
        parts = [tf.strings.as_string(part) for part in message()]
        content = tf.strings.join(parts, " ")
        with tf.control_dependencies([tf.debugging.Assert(False, [content])]):
            return tf.identity(value)

    return tf.cond(wrong, fail, lambda: tf.identity(value))


def utf8(text):
    """Returns `text` [B], or fails with row, offset and byte."""
    # NUL marks invalid bytes only: valid text is unchanged, and NUL itself is valid.
    marked = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", replacement_char=0)

    def message():
        row = tf.argmax(marked != text)
        data = tf.io.decode_raw(text[row], tf.uint8)
        kept = tf.io.decode_raw(marked[row], tf.uint8)
        size = tf.minimum(tf.size(data), tf.size(kept))
        offset = tf.argmax(data[:size] != kept[:size])
        byte = tf.gather(_BYTES, tf.cast(data[offset], tf.int32))
        return ["text must be UTF-8, got byte", byte, "at offset", offset, "of row", row]

    return unless(tf.reduce_any(marked != text), message, text)


def known(ids, symbol: Callable):
    """Returns ragged `ids` [B, N], or fails with the first symbol whose id is -1.

    `symbol` returns the symbol at a flat index.
    """
    flat = ids.flat_values

    def message():
        index = tf.argmax(flat < 0)
        shown = tf.strings.substr(symbol(index), 0, _SHOWN, "UTF8_CHAR")
        quoted = tf.strings.join(["`", shown, "`"])  # other quotes are escaped as \'
        row = positions.row_ids(ids)[index]
        return ["text must hold only symbols of the vocabulary, got", quoted, "in row", row]

    return ids.with_flat_values(unless(tf.reduce_any(flat < 0), message, flat))


def ids_in_range(ids, vocab_size: int):
    """Returns ragged `ids` [B, N], or fails with the first outside 0..vocab_size-1."""
    flat = ids.flat_values
    wrong = (flat < 0) | (flat >= vocab_size)
    rule = f"ids must lie in 0..{vocab_size - 1} (vocabulary of {vocab_size}), got"
    return ids.with_flat_values(
        unless(tf.reduce_any(wrong), lambda: [rule, flat[tf.argmax(wrong)]], flat)
    )
