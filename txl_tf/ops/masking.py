"""Which tokens a masked language model has to find, and what it sees in their place."""

import tensorflow as tf

from txl_tf.ops import attention_mask
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of

_SITES = 1 << 20  # far from those of any model's dropout, so that both may have the same key


def mask_tokens(token_ids, lengths, key, *, mask_id, rate=0.15):
    """Hides some tokens as BERT does (arXiv 1810.04805, section 3.1): inputs and targets.

    Of the tokens chosen, 80 % become `mask_id`, 10 % any id below it, drawn evenly, and 10 %
    stay, so that no token can be taken for granted. What follows from the key and the row does not
    depend on the rest of the batch.

    Shapes:
      token_ids: [B, T] int32, ids below `mask_id`.
      lengths: [B] int32, how many of each row are real; pads are never chosen. None is all.
      returns inputs [B, T] int32, and targets [B, T] int32: the id where chosen, else -1.

    Args:
      token_ids, lengths: see above.
      key: a `DropoutKey`.
      mask_id: the id that stands for a hidden token: the first that the data does not have.
      rate: the share of tokens chosen, each on its own.
    """
    token_ids = tf.cast(token_ids, tf.int32)
    shape = shape_of(token_ids)
    is_chosen = dropouts.uniform(shape, key, _SITES) < rate
    real = attention_mask.real_tokens(lengths, shape[1])
    is_chosen = is_chosen if real is None else is_chosen & real
    how = dropouts.uniform(shape, key, _SITES + 1)
    drawn = tf.cast(dropouts.uniform(shape, key, _SITES + 2) * mask_id, tf.int32)
    seen = tf.where(how < 0.8, mask_id, tf.where(how < 0.9, drawn, token_ids))
    return tf.where(is_chosen, seen, token_ids), tf.where(is_chosen, token_ids, -1)
