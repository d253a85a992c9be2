"""What a stream of text carries from segment to segment: values in, values out, no variables."""

from typing import Any, NamedTuple

import tensorflow as tf


class Memory(NamedTuple):
    """The newest M inputs of every layer, and how many of them are real.

    Slots beyond `length` are masked, so "no memory", "initial memory" and "empty memory" are one
    thing, and to forget a row is to set its length to 0.
    """

    states: tuple[Any, ...]  # L tensors [B, M, D]: each the input of its layer, newest last
    length: Any  # [B] int32: how many of the newest slots are valid


def initial(batch_size, num_layers, mem_len, d_model, dtype, attend_to_zeros=False):
    """A memory of nothing; with `attend_to_zeros`, of M zero states that count as real."""
    states = tuple(tf.zeros([batch_size, mem_len, d_model], dtype) for _ in range(num_layers))
    return Memory(states, tf.fill([batch_size], mem_len if attend_to_zeros else 0))


def remember(past, new, lengths=None):
    """The newest M of past and new, cut off from the gradient.

    Shapes:
      past: [B, M, D].
      new: [B, T, D].
      lengths: [B] int32, how many of the T are real (the first ones); None is all.
      returns [B, M, D].
    """
    slots = past.shape[1]
    joined = tf.concat([past, new], axis=1)  # [B, M + T, D]
    if lengths is None:
        newest = joined[:, tf.shape(new)[1] :]  # not [-M:], which keeps all when M is 0
    else:
        kept = lengths[:, tf.newaxis] + tf.range(slots)  # [B, M]
        newest = tf.gather(joined, kept, batch_dims=1)
    newest = tf.ensure_shape(newest, [None, slots, past.shape[2]])
    return tf.stop_gradient(newest)


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
    states = tuple(
        tf.where(rows[:, tf.newaxis, tf.newaxis], new, old)
        for new, old in zip(fresh.states, mems.states, strict=True)
    )
    return Memory(states, tf.where(rows, fresh.length, mems.length))


def reorder(mems, rows):
    """Row i of the result is row rows[i] of `mems`: a beam's memory follows it. rows [B'] int32."""
    return tf.nest.map_structure(lambda x: tf.gather(x, rows, axis=0), mems)
