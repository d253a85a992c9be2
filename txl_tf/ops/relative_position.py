"""Relative positions: sinusoids, and the relative shift (paper, appendix B)."""

import tensorflow as tf

from txl_tf.ops import linear
from txl_tf.ops.shapes import larger, shape_of, smaller


def distances(num_keys):
    """Returns the distances from the newest token to each key: S - 1, ..., 1, 0.

    Shapes: returns [S] float32.
    """
    return tf.cast(tf.range(num_keys - 1, -1, -1, dtype=tf.int32), tf.float32)


def clamped(distances, limit):
    """Returns distances of at most `limit` in either direction; None is no limit."""
    return distances if limit is None else tf.clip_by_value(distances, -float(limit), float(limit))


def sinusoids(positions, width):
    """Returns sinusoidal encodings: all sines, then all cosines; not interleaved.

    Shapes: positions [...] float32 -> [..., width] float32; width is even.
    """
    exponents = tf.range(0, width, 2, dtype=tf.float32) / width  # [width / 2]
    angles = positions[..., tf.newaxis] / 10000.0**exponents  # [..., width / 2]
    return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


def scores_by_key(queries, encodings, num_keys, num_later=0):
    """Returns position scores by key: each query times the encoding of its distance to the key.

    One matmul gives the scores by distance: column c is that of the c-th distance, whatever the
    query. Query i is S - T + i positions after key 0, so its row is shifted left by T - 1 - i:

        T = 2, S = R = 3    distance 2 1 0        key 0 1 2
        query 0                      a b c   ->       b c .
        query 1                      d e f   ->       d e f

    The cell with a dot is in the future: mask it. With columns of zeros between the rows, the shift
    is one slice of a flat array.

    Shapes:
      queries: [B, H, T, K].
      encodings: [H, R, K], of descending distances, the last `num_later` negative; keys beyond the
        table get 0.
      num_keys: S; memory, then the T tokens of the segment.
      num_later: number of negative distances (later keys): 0 or at least T - 1; in the latter
        case the other distances are exactly S - 1, ..., 0.
      returns [B, H, T, S] float32.
    """
    b, h, t, _ = shape_of(queries)
    width = shape_of(encodings)[1] - num_later
    if isinstance(width, int) and isinstance(num_keys, int) and width > num_keys:
        encodings, width = encodings[:, width - num_keys :], num_keys  # no key is farther
    if not isinstance(num_later, int) or num_later:
        scores = linear.matmul_per_head(queries, encodings)  # [B, H, T, R]
        return tf.cast(_relative_shift(scores, t - 1, num_keys)[..., :num_keys], tf.float32)
    if queries.shape[2] == 1:
        # One query needs no shift, and one matmul serves the whole batch.
        rows = tf.transpose(queries[:, :, 0], [1, 0, 2])  # [H, B, K]
        scores = tf.matmul(rows, encodings, transpose_b=True)  # [H, B, R]
        scores = tf.transpose(scores, [1, 0, 2])[:, :, tf.newaxis]
    else:
        has_all = isinstance(num_keys, int) and width == num_keys
        num_zeros = 1 if has_all else t  # columns
        padded = tf.pad(encodings, [[0, 0], [0, num_zeros], [0, 0]])
        scores = linear.matmul_per_head(queries, padded)  # [B, H, T, R + num_zeros]
        width += num_zeros - 1
        scores = _relative_shift(scores, t - 1 if has_all else 0)  # of the newest keys
    return _fit_columns(scores, width, num_keys)


def num_negative_distances(encodings):
    """Returns the number of negative distances (later keys). [H, 2 N + 1, K] -> N."""
    return (shape_of(encodings)[1] - 1) // 2


def resized(encodings, num_later, earlier, later):
    """Crops or zero-pads encodings to the distances earlier - 1, ..., 0, ..., -later.

    Shapes: encodings [H, R, K], the last `num_later` of negative distances; returns
    [H, earlier + later, K].
    """
    num_earlier = shape_of(encodings)[1] - num_later
    start, end = larger(num_earlier - earlier, 0), num_earlier + smaller(num_later, later)
    encodings = encodings[:, start:end]
    missing = [larger(earlier - num_earlier, 0), larger(later - num_later, 0)]
    complete = all(isinstance(n, int) and n == 0 for n in missing)
    return encodings if complete else tf.pad(encodings, [[0, 0], missing, [0, 0]])


def scores_in_blocks(queries, encodings, block, num_keys):
    """Returns position scores by key, as `scores_by_key`, with separate keys for each query block.

    Shapes:
      queries: [B, H, n * b, K], n blocks of b.
      encodings: [H, W + b - 1, K], of all distances between a block's queries and keys, descending
        by 1 from that of its last query and its first key.
      block: b.
      num_keys: W, keys of a block.
      returns [B, H, n * b, W] float32.
    """
    b, h, t, _ = shape_of(queries)
    scores = linear.matmul_per_head(queries, encodings)  # [B, H, n * b, W + b - 1]
    scores = tf.reshape(scores, [b, h * (t // block), block, -1])  # rows shift within a block
    scores = _relative_shift(scores, block - 1, num_keys)[..., :num_keys]
    return tf.cast(tf.reshape(scores, [b, h, t, num_keys]), tf.float32)


def _relative_shift(scores, first, num_keys=None):
    """Shifts row i left by `first` - i, by one reshape (paper, appendix B).

    Columns past the end of a row hold the start of the next. Shapes: scores [B, H, T, R] ->
    [B, H, T, R - 1], zero-padded where that is less than `num_keys`.
    """
    b, h, t, columns = shape_of(scores)
    if num_keys is not None:
        missing = larger(num_keys + 1 - columns, 0)
        if not isinstance(missing, int) or missing:
            scores = tf.pad(scores, [[0, 0], [0, 0], [0, 0], [0, missing]])
            columns += missing
    # Read as rows of one column less, each row of the flat array begins one column later.
    flat = tf.reshape(scores, [b, h, t * columns])
    flat = tf.slice(flat, [0, 0, first], [-1, -1, t * (columns - 1)])
    return tf.reshape(flat, [b, h, t, columns - 1])


def _fit_columns(scores, width, num_keys):
    """Crops or zero-pads scores of the newest `width` keys to `num_keys`, in float32."""
    scores = tf.cast(scores, tf.float32)  # before it grows
    missing, surplus = larger(num_keys - width, 0), larger(width - num_keys, 0)
    # Skips no-ops where sizes are static: even their gradients cost.
    scores = scores if isinstance(surplus, int) and surplus == 0 else scores[..., surplus:]
    complete = isinstance(missing, int) and missing == 0
    return scores if complete else tf.pad(scores, [[0, 0], [0, 0], [0, 0], [missing, 0]])
