"""Positions within ragged rows, for all rows at once and without a loop."""

import tensorflow as tf


def last_before(facts):
    """Returns the index of the last true value before each: [n] bool -> [n] int64, -1 if none.

    For example F T F T F -> -1 -1 1 1 3.
    """
    true = tf.concat([[-1], tf.where(facts)[:, 0]], axis=0)
    return tf.gather(true, tf.cumsum(tf.cast(facts, tf.int64), exclusive=True))


def first_after(facts):
    """Returns the index of the first true value after each: [n] bool -> [n] int64, n if none.

    For example F T F T F -> 1 3 3 5 5.
    """
    return tf.size(facts, tf.int64) - 1 - last_before(facts[::-1])[::-1]


def row_ids(rows):
    """Returns the row of each value of ragged rows: [B, N] -> [n] int64.

    `RaggedTensor.value_rowids` needs memory for B times the longest row.
    """
    values = tf.range(tf.size(rows.flat_values, tf.int64))
    return tf.searchsorted(rows.row_splits, values, side="right", out_type=tf.int64) - 1
