"""What an export refuses, and in which words: INVALID_ARGUMENT, wherever the graph is run."""

import tensorflow as tf

from txl_tf.export.text_graph.checks import unless


def no_row(wrong, values, rule: str):
    """`values`, or an error with the rule and the first of them that is `wrong`."""
    return unless(tf.reduce_any(wrong), lambda: [f"{rule}, got", _first(wrong, values)], values)


def _first(wrong, values):
    """The first of `values` that is wrong."""
    return tf.reshape(values, [-1])[tf.argmax(tf.reshape(wrong, [-1]))]


def at_least(values, low: int, name: str):
    """`values`, or an error that names the first below `low`."""
    return no_row(values < low, values, f"{name} must be at least {low}")


def at_most(values, high: int, name: str):
    """`values`, or an error that names the first above `high`."""
    return no_row(values > high, values, f"{name} must be at most {high}")


def within(values, high, name: str):
    """`values`, or an error that names the first below 0 or above `high`, a scalar."""
    wrong = (values < 0) | (values > high)

    def message():
        return [f"{name} must lie between 0 and", high, "but got", _first(wrong, values)]

    return unless(tf.reduce_any(wrong), message, values)


def same_rows(x, rows, name: str):
    """`x`, or an error if it has not as many rows as the ids."""
    found = tf.shape(x)[0]
    rule = f"{name} must have as many rows as input_ids:"
    return unless(found != rows, lambda: [rule, rows, "but got", found], x)


def shaped(x, spec, name: str):
    """`x`, or an error that names its shape, as when the state is another model's."""
    expected = spec.shape.as_list()
    found = tf.shape(x)
    same = tf.reduce_all(found[1:] == tf.constant(expected[1:], tf.int32))

    def message():
        sizes = tf.strings.reduce_join(tf.strings.as_string(found), separator=", ")
        told = ", ".join("rows" if size is None else str(size) for size in expected)
        return [
            f"{name} must be the state of this model, with shape [{told}], but has shape",
            sizes,
        ]

    return tf.ensure_shape(unless(~same, message, x), expected)
