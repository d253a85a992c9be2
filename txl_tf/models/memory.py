"""What a stream of text carries from segment to segment: values in, values out, no variables."""

from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.ops.shapes import shape_of


class Memory(NamedTuple):
    """The newest M inputs of every layer, and how many of them are real.

    Slots beyond `length` are masked, so "no memory", "initial memory" and "empty memory" are one
    thing, and to forget a row is to set its length to 0.
    """

    states: tuple[Any, ...]  # L tensors [B, M, D]: each the input of its layer, newest last
    length: Any  # [B] int32: how many of the newest slots are valid


class KeyValues(NamedTuple):
    """What layers make of a `Memory`, kept in its place: the same results for fixed weights.

    Nothing of a token that has been read is projected again. For inference: no gradient flows into
    the weights that made it.
    """

    keys: tuple[Any, ...]  # L tensors [B, H, M, K], newest last
    values: tuple[Any, ...]  # L tensors [B, H, M, K]
    length: Any  # [B] int32: how many of the newest slots are valid


class Ring(NamedTuple):
    """`KeyValues` for a loop that reads token by token, each in the place of the oldest.

    Nothing moves. All rows go round together: one that stands still, as it then does to the end, is
    written to all the same, but falls behind, and what it wrote since does not count.
    """

    keys: tuple[Any, ...]  # L tensors [B, H, R, K], R > M
    values: tuple[Any, ...]  # L tensors [B, H, R, K]
    length: Any  # [B] int32: how many of a row's newest are valid
    place: Any  # scalar int32: where the next token goes; older ones stand before it, cyclically
    behind: Any  # [B] int32: for how many rounds a row has stood still


def ring_of(key_values, spare):
    """The ring of a memory of M slots, R = M + spare; rows may fall behind by `spare`."""

    def grow(x):
        return tf.pad(x, [[0, 0], [0, 0], [0, spare], [0, 0]])

    keys, values, length = key_values
    place = tf.constant(keys[0].shape[2])
    keys, values = (tuple(grow(x) for x in xs) for xs in (keys, values))
    return Ring(keys, values, length, place, tf.zeros_like(length))


def in_order(ring, slots):
    """The `KeyValues` of a ring for a memory of `slots`, newest last."""
    size = ring.keys[0].shape[2]
    newest = ring.place - 1 - ring.behind[:, tf.newaxis]
    places = (newest + tf.range(1 - slots, 1)) % size  # [B, M]

    def order(x):
        return tf.gather(x, places, axis=2, batch_dims=1)

    keys, values = (tuple(order(x) for x in xs) for xs in (ring.keys, ring.values))
    return KeyValues(keys, values, ring.length)


def as_memory(mems):
    """Returns `mems` as a `Memory`: a functional model that Keras has loaded passes lists."""
    states, length = mems
    return Memory(tuple(states), length)


def initial(batch_size, num_layers, mem_len, d_model, dtype, attend_to_zeros=False):
    """A memory of nothing; with `attend_to_zeros`, of M zero states that count as real."""
    states = tuple(tf.zeros([batch_size, mem_len, d_model], dtype) for _ in range(num_layers))
    return Memory(states, tf.fill([batch_size], mem_len if attend_to_zeros else 0))


def remember(past, new, lengths=None):
    """The newest M of past and new, cut off from the gradient.

    Shapes: past [B, M, D], new [B, T, D], lengths as in `newest` -> [B, M, D].
    """
    joined = tf.concat([past, new], axis=1)  # [B, M + T, D]
    return tf.stop_gradient(newest(joined, past.shape[1], axis=1, lengths=lengths))


def newest(joined, slots, axis, lengths=None):
    """The last M real entries along `axis` of a memory of M slots with a segment behind it.

    Shapes:
      joined: [B, ..., M + T, ...], M + T on `axis`.
      lengths: [B] int32, how many of the T are real (the first ones); None is all.
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
        places = lengths[:, tf.newaxis] + tf.range(slots)  # [B, M]
        kept = tf.gather(joined, places, axis=axis, batch_dims=1)
    return tf.ensure_shape(kept, shape)


def remembered_after(remembered, slots, num_tokens, lengths=None, document_start=None):
    """How many slots are valid once a segment has been read.

    Shapes: remembered [B]; lengths [B] or None; document_start [B, T] bool or None -> [B] int32.
    """
    real = tf.fill(tf.shape(remembered), num_tokens) if lengths is None else lengths  # [B]
    total = remembered + real
    if document_start is not None:
        place = tf.range(num_tokens)  # [T]
        begun = document_start & (place < real[:, tf.newaxis])
        last = tf.reduce_max(tf.where(begun, place, -1), axis=1)  # [B], -1 where none began
        total = tf.where(last >= 0, real - last, total)
    return tf.minimum(total, slots)


def reset(mems, rows, fresh):
    """`mems` with the rows where `rows` ([B] bool) is true as they are in `fresh`."""

    def choose(new, old):
        return tf.where(tf.reshape(rows, [-1] + [1] * (len(old.shape) - 1)), new, old)

    return tf.nest.map_structure(choose, fresh, mems)


def reorder(mems, rows):
    """Row i of the result is row rows[i] of `mems`: a beam's memory follows it. rows [B'] int32."""
    return tf.nest.map_structure(lambda x: tf.gather(x, rows, axis=0), mems)
