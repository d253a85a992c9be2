"""Relative positions: sinusoids, and the shift from distances to keys (paper, appendix B)."""

import tensorflow as tf

from txl_tf.ops.shapes import larger, shape_of


def distances(num_keys):
    """Distances from the newest token to each key, farthest first: S - 1, ..., 1, 0.

    Shapes: returns [S] float32.
    """
    return tf.cast(tf.range(num_keys - 1, -1, -1, dtype=tf.int32), tf.float32)


def sinusoids(places, width):
    """The sines of `places` at falling frequencies, then the cosines; not interleaved.

    Shapes: places [...] float32 -> [..., width] float32; width is even.
    """
    exponents = tf.range(0, width, 2, dtype=tf.float32) / width  # [width / 2]
    angles = places[..., tf.newaxis] / 10000.0**exponents  # [..., width / 2]
    return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


def scores_by_key(queries, encodings, num_keys):
    """Scores of queries with the encoding of their distance to each key.

    One product gives the scores by distance: column c is that of distance R - 1 - c, whatever the
    query. Query i stands S - T + i places after key 0, so its row has to slide to where that
    distance is its own:

        T = 2, S = R = 3    distance 2 1 0        key 0 1 2
        query 0                      a b c   ->       b c .
        query 1                      d e f   ->       d e f

    The cell marked with a dot lies in the future: mask it. Columns of zeros between the rows make
    the slide one cut of a flat array.

    Shapes:
      queries: [B, H, T, K].
      encodings: [H, R, K], of distances R - 1, ..., 1, 0; what is farther scores 0.
      num_keys: S; memory, then the T tokens of the segment.
      returns [B, H, T, S] float32.
    """
    b, h, t, _ = shape_of(queries)
    width = shape_of(encodings)[1]
    if isinstance(width, int) and isinstance(num_keys, int) and width > num_keys:
        encodings, width = encodings[:, width - num_keys :], num_keys  # no key is as far
    if queries.shape[2] == 1:
        # Nothing has to slide, and all rows meet the encodings in one product.
        rows = tf.transpose(queries[:, :, 0], [1, 0, 2])  # [H, B, K]
        scores = tf.matmul(rows, encodings, transpose_b=True)  # [H, B, R]
        scores = tf.transpose(scores, [1, 0, 2])[:, :, tf.newaxis]
    else:
        has_all = isinstance(num_keys, int) and width == num_keys
        spare = 1 if has_all else t  # columns of zeros
        padded = tf.pad(encodings, [[0, 0], [0, spare], [0, 0]])
        scores = tf.matmul(queries, padded, transpose_b=True)  # [B, H, T, R + spare]
        width += spare - 1
        flat = tf.reshape(scores, [b, h, t * (width + 1)])
        flat = tf.slice(flat, [0, 0, t - 1 if has_all else 0], [-1, -1, t * width])
        scores = tf.reshape(flat, [b, h, t, width])  # of the newest keys
    return _newest(scores, width, num_keys)


def _newest(scores, width, num_keys):
    """Scores of the newest `width` keys as those of `num_keys`, 0 for those before; float32."""
    scores = tf.cast(scores, tf.float32)  # before it grows
    more, fewer = larger(num_keys - width, 0), larger(width - num_keys, 0)
    # Where sizes are known, no step is made that changes nothing: its gradient would cost.
    scores = scores if isinstance(fewer, int) and fewer == 0 else scores[..., fewer:]
    is_whole = isinstance(more, int) and more == 0
    return scores if is_whole else tf.pad(scores, [[0, 0], [0, 0], [0, 0], [more, 0]])
