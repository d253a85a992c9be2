"""What a graph refuses, and in which words."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from txl_tf.export.text_graph import places

_SHOWN = 40  # characters of a symbol that a message shows
_BYTES = [f"0x{value:02x}" for value in range(256)]


def unless(wrong, message: Callable[[], Sequence], value):
    """`value`, or INVALID_ARGUMENT with the parts of `message` if `wrong`.

    The value comes out of the branch that was taken, so whatever needs it waits for the check; and
    a message costs nothing where it is not needed.
    """

    def refuse():
        parts = [tf.strings.as_string(part) for part in message()]
        content = tf.strings.join(parts, " ")
        with tf.control_dependencies([tf.debugging.Assert(False, [content])]):
            return tf.identity(value)

    return tf.cond(wrong, refuse, lambda: tf.identity(value))


def utf8(text):
    """`text` [B], or an error that names row, offset and byte."""
    # Bytes of valid text never become NUL, and those that are not valid are never NUL before.
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
    """Ragged `ids` [B, N], or an error that names the first symbol whose id is -1.

    `symbol` tells it from its place among those of all rows.
    """
    flat = ids.flat_values

    def message():
        place = tf.argmax(flat < 0)
        shown = tf.strings.substr(symbol(place), 0, _SHOWN, "UTF8_CHAR")
        quoted = tf.strings.join(["`", shown, "`"])  # other quotes would show as \'
        row = places.row_ids(ids)[place]
        return ["text must hold only symbols of the vocabulary, got", quoted, "in row", row]

    return ids.with_flat_values(unless(tf.reduce_any(flat < 0), message, flat))


def ids_in_range(ids, vocab_size: int):
    """Ragged `ids` [B, N], or an error that names the first outside 0..vocab_size-1."""
    flat = ids.flat_values
    wrong = (flat < 0) | (flat >= vocab_size)
    rule = f"ids must lie in 0..{vocab_size - 1} (vocabulary of {vocab_size}), got"
    return ids.with_flat_values(
        unless(tf.reduce_any(wrong), lambda: [rule, flat[tf.argmax(wrong)]], flat)
    )
