"""Input checks of a serving graph: each raises INVALID_ARGUMENT with a message."""

import tensorflow as tf

from txl_tf.export.text_graph.checks import unless


def no_row(wrong, values, rule: str):
    """Returns `values`, or fails with the rule and the first `wrong` value."""
    return unless(tf.reduce_any(wrong), lambda: [f"{rule}, got", _first(wrong, values)], values)


def _first(wrong, values):
    """Returns the first of `values` that is wrong."""
    return tf.reshape(values, [-1])[tf.argmax(tf.reshape(wrong, [-1]))]


def at_least(values, low: int, name: str):
    """Returns `values`, or fails with the first below `low`."""
    return no_row(values < low, values, f"{name} must be at least {low}")


def at_most(values, high: int, name: str):
    """Returns `values`, or fails with the first above `high`."""
    return no_row(values > high, values, f"{name} must be at most {high}")


def within(values, high, name: str):
    """Returns `values`, or fails with the first outside 0..`high`, a scalar."""
    wrong = (values < 0) | (values > high)

    def message():
        return [f"{name} must lie between 0 and", high, "but got", _first(wrong, values)]

    return unless(tf.reduce_any(wrong), message, values)


def same_rows(x, rows, name: str):
    """Returns `x`, or fails if its number of rows is not `rows`."""
    actual = tf.shape(x)[0]
    rule = f"{name} must have as many rows as input_ids:"
    return unless(actual != rows, lambda: [rule, rows, "but got", actual], x)


def shaped(x, spec, name: str):
    """Returns `x`, or fails with its shape, for example for another model's state."""
    expected = spec.shape.as_list()
    actual = tf.shape(x)
    same = tf.reduce_all(actual[1:] == tf.constant(expected[1:], tf.int32))

    def message():
        sizes = tf.strings.reduce_join(tf.strings.as_string(actual), separator=", ")
        wanted = ", ".join("rows" if size is None else str(size) for size in expected)
        return [
            f"{name} must be the state of this model, with shape [{wanted}], but has shape",
            sizes,
        ]

    return tf.ensure_shape(unless(~same, message, x), expected)
