"""Relative positions: sinusoids, and the shift from distances to keys (paper, appendix B)."""

import tensorflow as tf

from txl_tf.ops.shapes import shape_of


def distances(num_keys, clamp_len=None):
    """Distances from the newest token to each key, farthest first: S - 1, ..., 1, 0.

    Shapes: returns [S] float32; none above `clamp_len`.
    """
    falling = tf.range(num_keys - 1, -1, -1, dtype=tf.int32)
    if clamp_len is not None:
        falling = tf.minimum(falling, clamp_len)
    return tf.cast(falling, tf.float32)


def sinusoids(places, width):
    """The sines of `places` at falling frequencies, then the cosines; not interleaved.

    Shapes: places [...] float32 -> [..., width] float32; width is even.
    """
    exponents = tf.range(0, width, 2, dtype=tf.float32) / width  # [width / 2]
    angles = places[..., tf.newaxis] / 10000.0**exponents  # [..., width / 2]
    return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


def relative_shift(scores):
    """Turns scores by distance into scores by key.

    Column c of the input is the score at distance S - 1 - c, whatever the query. Query i stands
    S - T + i places after key 0, so its row has to slide T - 1 - i columns to the left:

        T = 2, S = 3    distance 2 1 0        key 0 1 2
        query 0                  a b c   ->       b c .
        query 1                  d e f   ->       d e f

    The cell marked with a dot lies in the future and holds another row's score: mask it.

    Shapes: scores [B, H, T, S] -> [B, H, T, S].
    """
    b, h, t, s = shape_of(scores)
    padded = tf.pad(scores, [[0, 0], [0, 0], [0, 0], [1, 0]])  # [B, H, T, S + 1]
    turned = tf.reshape(padded, [b, h, s + 1, t])[:, :, 1:]  # [B, H, S, T]
    return tf.reshape(turned, [b, h, t, s])
