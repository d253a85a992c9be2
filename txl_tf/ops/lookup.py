"""Rows of a table."""

import tensorflow as tf


@tf.custom_gradient
def rows_of(table, ids):
    """`tf.gather` with a dense gradient.

    A tied table gets a dense gradient from the softmax as well. A sparse one beside it would make
    TensorFlow concatenate both, as if every word had been looked up, and sum by row afterwards.

    Shapes: table [n, e], ids [...] int32 -> [..., e].
    """
    count, width = table.shape

    def gradient(upstream):
        flat = tf.reshape(upstream, [-1, width])
        return tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), count), None

    return tf.gather(table, ids), gradient
