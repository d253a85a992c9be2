"""Memory of a text stream, carried from segment to segment: values in and out, no variables."""

from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.ops.shapes import shape_of


class Memory(NamedTuple):
    """The last M inputs of every layer, and the number of valid ones.

    Slots beyond `length` are masked, so "no memory", "initial memory" and "empty memory" are the
    same, and setting a row's length to 0 forgets it.

    >>> model = txl_tf.TransformerXL(txl_tf.preset("tiny").model)
    >>> _, mems = model(np.zeros([2, 5], "int32"))
    >>> model.reset(mems, np.array([True, False])).length.numpy()
    array([0, 5], dtype=int32)
    """

    states: tuple[Any, ...]  # L tensors [B, M, D]: each the input of its layer, newest last
    length: Any  # [B] int32: number of valid slots, the newest ones


class KeyValues(NamedTuple):
    """Keys and values of a `Memory`, cached instead of it: equal results for fixed weights.

    For inference: tokens are projected once, and no gradient flows into the projections.
    """

    keys: tuple[Any, ...]  # L tensors [B, H, M, K], newest last
    values: tuple[Any, ...]  # L tensors [B, H, M, K]
    length: Any  # [B] int32: number of valid slots, the newest ones


class Ring(NamedTuple):
    """Ring buffer of `KeyValues`, overwritten in place, for a loop that reads token by token.

    All rows share one write position; a finished row keeps being written, and `stale` counts the
    entries to ignore.
    """

    keys: tuple[Any, ...]  # L tensors [B, H, R, K], R > M
    values: tuple[Any, ...]  # L tensors [B, H, R, K]
    length: Any  # [B] int32: number of valid entries of a row, the newest before the stale ones
    write_index: Any  # scalar int32: index of the next token; older ones precede it, cyclically
    stale: Any  # [B] int32: number of newest entries to ignore, written since the row finished


def to_ring(key_values, spare):
    """Returns the ring buffer of a memory of M slots, R = M + spare; `stale` is at most `spare`."""

    def grow(x):
        return tf.pad(x, [[0, 0], [0, 0], [0, spare], [0, 0]])

    keys, values, length = key_values
    write_index = tf.constant(keys[0].shape[2])
    keys, values = (tuple(grow(x) for x in xs) for xs in (keys, values))
    return Ring(keys, values, length, write_index, tf.zeros_like(length))


def from_ring(ring, slots):
    """Returns the `KeyValues` of a ring buffer for a memory of `slots`, newest last."""
    size = ring.keys[0].shape[2]
    newest = ring.write_index - 1 - ring.stale[:, tf.newaxis]
    indices = (newest + tf.range(1 - slots, 1)) % size  # [B, M]

    def order(x):
        return tf.gather(x, indices, axis=2, batch_dims=1)

    keys, values = (tuple(order(x) for x in xs) for xs in (ring.keys, ring.values))
    return KeyValues(keys, values, ring.length)


def as_memory(mems):
    """Returns `mems` as a `Memory`: functional models loaded by Keras pass lists."""
    states, length = mems
    return Memory(tuple(states), length)


def initial(batch_size, num_layers, mem_len, d_model, dtype, attend_to_zeros=False):
    """Returns an empty memory; with `attend_to_zeros`, one of M valid zero states."""
    states = tuple(tf.zeros([batch_size, mem_len, d_model], dtype) for _ in range(num_layers))
    return Memory(states, tf.fill([batch_size], mem_len if attend_to_zeros else 0))


def remember(past, new, lengths=None):
    """Appends new states and keeps the last M, under stop_gradient.

    Shapes: past [B, M, D], new [B, T, D], lengths as in `newest` -> [B, M, D].
    """
    joined = tf.concat([past, new], axis=1)  # [B, M + T, D]
    return tf.stop_gradient(newest(joined, past.shape[1], axis=1, lengths=lengths))


def newest(joined, slots, axis, lengths=None):
    """Returns the last M real entries along `axis` of M memory slots followed by a segment.

    Shapes:
      joined: [B, ..., M + T, ...], M + T on `axis`.
      lengths: [B] int32, number of real tokens among the T, the first ones; None is all.
      returns the same with M on `axis`.
    """
    shape = joined.shape.as_list()
    shape[axis] = slots
    if lengths is None:
        start = [0] * len(shape)
        start[axis] = shape_of(joined)[axis] - slots
        size = [-1] * len(shape)
        size[axis] = slots
        kept = tf.slice(joined, start, size)
    else:
        indices = lengths[:, tf.newaxis] + tf.range(slots)  # [B, M]
        kept = tf.gather(joined, indices, axis=axis, batch_dims=1)
    return tf.ensure_shape(kept, shape)


def remembered_after(remembered, slots, num_tokens, lengths=None, document_start=None):
    """Returns the number of valid slots after a segment.

    Shapes: remembered [B]; lengths [B] or None; document_start [B, T] bool or None -> [B] int32.
    """
    real = tf.fill(tf.shape(remembered), num_tokens) if lengths is None else lengths  # [B]
    total = remembered + real
    if document_start is not None:
        position = tf.range(num_tokens)  # [T]
        starts = document_start & (position < real[:, tf.newaxis])
        last = tf.reduce_max(tf.where(starts, position, -1), axis=1)  # [B], -1 for no start
        total = tf.where(last >= 0, real - last, total)
    return tf.minimum(total, slots)


def reset(mems, rows, fresh):
    """Returns `mems` with the rows where `rows` ([B] bool) is true replaced by those of `fresh`."""

    def choose(new, old):
        return tf.where(tf.reshape(rows, [-1] + [1] * (len(old.shape) - 1)), new, old)

    return tf.nest.map_structure(choose, fresh, mems)


def reorder(mems, rows):
    """Gathers rows of `mems`, as beam search does with its hypotheses. rows [B'] int32."""
    return tf.nest.map_structure(lambda x: tf.gather(x, rows, axis=0), mems)
