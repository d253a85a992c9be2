"""Targets and masks of permutation language modelling, drawn without state."""

import itertools
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of

_SITES = 2 << 20  # beyond the dropout sites of any model, so that both can share a key
_LENGTHS, _OFFSETS, _ORDER = range(_SITES, _SITES + 3)


class Permutation(NamedTuple):
    """Targets of a segment, and who may see whom; see `permute`."""

    positions: Any  # [B, P] int32, ascending, all distinct
    targets: Any  # [B, P] int32: the tokens there, -1 in padding
    visible: Any  # [B, T, T] bool: whether token i may see token j of the segment


def permute(token_ids, key, *, num_predict, lengths=None, max_span=5, block=None, reuse_len=None):
    """Draws spans of tokens to predict, and the order in which they are (arXiv 1906.08237).

    A token that is not a target is seen by all, and sees all such tokens. A target sees these and
    the targets before it in a random order. Spans have 1 to `max_span` tokens, with probabilities
    in proportion to 1 / n; each lies anywhere in a context T / P times as long, and contexts follow
    each other:

        T = 12, P = 4     context  |- - - - - -|- - -|- - -|
                          span        x x        x       x

    Draws depend only on the key and the row, so they resume exactly and are the same on any number
    of replicas. All shapes are static; the function also runs in `tf.data.Dataset.map`.

    Shapes: token_ids [B, T] int32, lengths [B] int32 or None -> a `Permutation` of [B, P].

    Args:
      token_ids: T is static.
      key: a `DropoutKey`.
      num_predict: P, at most T.
      lengths: number of real tokens of each row; the rest is padding. None is all.
      max_span: maximum number of tokens of a span.
      block: targets are in random order within blocks of this length, and blocks in natural order;
        None is one block.
      reuse_len: number of first tokens that see nothing of the rest, as they enter the memory of
        segments that overlap; blocks start anew after them. None is none.
    """
    batch, num_tokens = shape_of(token_ids)
    if not 1 <= num_predict <= num_tokens:
        raise ValueError(
            f"num_predict must be from 1 to the {num_tokens} tokens of a segment, got {num_predict}"
        )
    positions = _span_positions(batch, num_tokens, num_predict, max_span, key)
    targets = tf.gather(token_ids, positions, axis=1, batch_dims=1)
    if lengths is not None:
        targets = tf.where(positions < lengths[:, tf.newaxis], targets, -1)
    is_target = tf.reduce_any(positions[..., tf.newaxis] == tf.range(num_tokens), axis=1)  # [B, T]
    earlier = _earlier(batch, num_tokens, block or num_tokens, reuse_len or 0, key)
    visible = ~is_target[:, tf.newaxis] | (is_target[..., tf.newaxis] & earlier)
    if reuse_len is not None:
        is_reused = tf.range(num_tokens) < reuse_len
        visible &= ~is_reused[:, tf.newaxis] | is_reused
    return Permutation(positions, targets, visible)


def _span_positions(batch, num_tokens, num_predict, max_span, key):
    """Returns the positions of the targets, [B, P] int32."""
    weights = list(itertools.accumulate(1 / n for n in range(1, max_span + 1)))
    thresholds = [weight / weights[-1] for weight in weights[:-1]]
    draw = dropouts.uniform([batch, num_predict], key, _LENGTHS)
    sizes = 1 + tf.reduce_sum(tf.cast(draw[..., tf.newaxis] >= thresholds, tf.int32), axis=-1)
    ends = tf.minimum(tf.cumsum(sizes, axis=1), num_predict)  # [B, P]: the last spans are empty
    starts = tf.pad(ends[:, :-1], [[0, 0], [1, 0]])
    context_start = starts * num_tokens // num_predict
    room = ends * num_tokens // num_predict - context_start - (ends - starts)
    draw = dropouts.uniform([batch, num_predict], key, _OFFSETS)
    offset = tf.cast(draw * tf.cast(room + 1, tf.float32), tf.int32)
    shift = context_start + tf.minimum(offset, room) - starts  # from target number to position
    target = tf.range(num_predict)
    is_before = ends[:, tf.newaxis] <= target[:, tf.newaxis]  # [B, P, spans]
    span = tf.reduce_sum(tf.cast(is_before, tf.int32), axis=-1)  # [B, P]
    return target + tf.gather(shift, span, axis=1, batch_dims=1)


def _earlier(batch, num_tokens, block, reuse_len, key):
    """Returns whether token j precedes token i in the order, [B, T, T] bool."""
    index = tf.range(num_tokens)
    later_block = num_tokens + (index - reuse_len) // block
    blocks = tf.where(index < reuse_len, index // block, later_block)
    draw = dropouts.uniform([batch, num_tokens], key, _ORDER)
    mine, other = draw[..., tf.newaxis], draw[:, tf.newaxis]
    precedes = (other < mine) | ((other == mine) & (index < index[:, tf.newaxis]))
    is_same_block = blocks == blocks[:, tf.newaxis]
    return (blocks < blocks[:, tf.newaxis]) | (is_same_block & precedes)
