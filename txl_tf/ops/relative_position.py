"""Relative positions: sinusoids, and the shift from distances to keys (paper, appendix B)."""

import tensorflow as tf

from txl_tf.ops import linear
from txl_tf.ops.shapes import larger, shape_of, smaller


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


def scores_by_key(queries, encodings, num_keys, num_later=0):
    """Scores of queries with the encoding of their distance to each key.

    One product gives the scores by distance: column c is that of the c-th distance, whatever the
    query. Query i stands S - T + i places after key 0, so its row has to slide to where that
    distance is its own:

        T = 2, S = R = 3    distance 2 1 0        key 0 1 2
        query 0                      a b c   ->       b c .
        query 1                      d e f   ->       d e f

    The cell marked with a dot lies in the future: mask it. Columns of zeros between the rows make
    the slide one cut of a flat array.

    Shapes:
      queries: [B, H, T, K].
      encodings: [H, R, K], of falling distances, the last `num_later` below 0; what is farther
        scores 0.
      num_keys: S; memory, then the T tokens of the segment.
      num_later: how many distances to later tokens there are: 0 or at least T - 1, and then of all
        others there is none that no key has, and none missing.
      returns [B, H, T, S] float32.
    """
    b, h, t, _ = shape_of(queries)
    width = shape_of(encodings)[1] - num_later
    if isinstance(width, int) and isinstance(num_keys, int) and width > num_keys:
        encodings, width = encodings[:, width - num_keys :], num_keys  # no key is as far
    if not isinstance(num_later, int) or num_later:
        scores = linear.matmul_per_head(queries, encodings)  # [B, H, T, R]
        return tf.cast(_relative_shift(scores, t - 1, num_keys)[..., :num_keys], tf.float32)
    if queries.shape[2] == 1:
        # Nothing has to slide, and all rows meet the encodings in one product.
        rows = tf.transpose(queries[:, :, 0], [1, 0, 2])  # [H, B, K]
        scores = tf.matmul(rows, encodings, transpose_b=True)  # [H, B, R]
        scores = tf.transpose(scores, [1, 0, 2])[:, :, tf.newaxis]
    else:
        has_all = isinstance(num_keys, int) and width == num_keys
        spare = 1 if has_all else t  # columns of zeros
        padded = tf.pad(encodings, [[0, 0], [0, spare], [0, 0]])
        scores = linear.matmul_per_head(queries, padded)  # [B, H, T, R + spare]
        width += spare - 1
        scores = _relative_shift(scores, t - 1 if has_all else 0)  # of the newest keys
    return _newest(scores, width, num_keys)


def num_negative_distances(encodings):
    """How many distances of a two-sided table lie below 0. [H, 2 N + 1, K] -> N."""
    return (shape_of(encodings)[1] - 1) // 2


def resized(encodings, num_later, earlier, later):
    """Encodings of the distances earlier - 1, ..., 0, ..., -later: others go, missing ones are 0.

    Shapes: encodings [H, R, K], the last `num_later` of distances below 0; returns
    [H, earlier + later, K].
    """
    found = shape_of(encodings)[1] - num_later
    encodings = encodings[:, larger(found - earlier, 0) : found + smaller(num_later, later)]
    missing = [larger(earlier - found, 0), larger(later - num_later, 0)]
    is_whole = all(isinstance(n, int) and n == 0 for n in missing)
    return encodings if is_whole else tf.pad(encodings, [[0, 0], missing, [0, 0]])


def scores_in_blocks(queries, encodings, block, num_keys):
    """As `scores_by_key`, where each block of queries has keys of its own.

    Shapes:
      queries: [B, H, n * b, K], n blocks of b.
      encodings: [H, W + b - 1, K], of all distances that a block's queries and keys have, falling
        by 1 from that of its last query and its first key.
      block: b.
      num_keys: W, keys of a block.
      returns [B, H, n * b, W] float32.
    """
    b, h, t, _ = shape_of(queries)
    scores = linear.matmul_per_head(queries, encodings)  # [B, H, n * b, W + b - 1]
    scores = tf.reshape(scores, [b, h * (t // block), block, -1])  # a row slides in its block
    scores = _relative_shift(scores, block - 1, num_keys)[..., :num_keys]
    return tf.cast(tf.reshape(scores, [b, h, t, num_keys]), tf.float32)


def _relative_shift(scores, first, num_keys=None):
    """Row i begins at column `first` - i of its own; what lies before is the end of the row above.

    Shapes: scores [B, H, T, R] -> [B, H, T, R - 1], or wider where that is less than `num_keys`.
    """
    b, h, t, columns = shape_of(scores)
    if num_keys is not None:
        missing = larger(num_keys + 1 - columns, 0)
        if not isinstance(missing, int) or missing:
            scores = tf.pad(scores, [[0, 0], [0, 0], [0, 0], [0, missing]])
            columns += missing
    # In a flat array, rows that are one shorter each begin one later.
    flat = tf.reshape(scores, [b, h, t * columns])
    flat = tf.slice(flat, [0, 0, first], [-1, -1, t * (columns - 1)])
    return tf.reshape(flat, [b, h, t, columns - 1])


def _newest(scores, width, num_keys):
    """Scores of the newest `width` keys as those of `num_keys`, 0 for those before; float32."""
    scores = tf.cast(scores, tf.float32)  # before it grows
    more, fewer = larger(num_keys - width, 0), larger(width - num_keys, 0)
    # Where sizes are known, no step is made that changes nothing: its gradient would cost.
    scores = scores if isinstance(fewer, int) and fewer == 0 else scores[..., fewer:]
    is_whole = isinstance(more, int) and more == 0
    return scores if is_whole else tf.pad(scores, [[0, 0], [0, 0], [0, 0], [more, 0]])
