"""Words for the tokens that are hidden from it: how an encoder is trained on text alone."""

import keras
import tensorflow as tf

from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax
from txl_tf.models.task_head import Head
from txl_tf.ops import attention_mask
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class MaskedLanguageModel(Head):
    """Scores of all words for each token, by the tables of the embedding (arXiv 1810.04805).

        inputs, targets = model.mask(token_ids, key)
        nats = model.nll(inputs, targets, lengths=lengths)

    The vocabulary is that of the data and one id more, the last, which stands for a hidden token.

    Shapes: those of `Head`; scores are [B, T, V], targets [B, T], -1 but for hidden tokens.

    Args:
      config: an EncoderConfig; a causal model would have to guess from one side.
    """

    def __init__(self, config, **kwargs):
        if config.is_causal:
            raise ValueError(
                "config must be an EncoderConfig, whose tokens see both sides of a hidden one, "
                f"got a {type(config).__name__}"
            )
        super().__init__(config, **kwargs)
        self.softmax = AdaptiveSoftmax(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            d_embed=config.d_model,
            init_std=config.init_std,
            dtype=self.dtype_policy,
            name="softmax",
        )
        self.build()

    def build(self, input_shape=None):
        if not self.softmax.built:
            self.softmax.build((None, None, self.config.d_model))

    @property
    def mask_id(self):
        """The id that stands for a hidden token."""
        return self.config.vocab_size - 1

    def mask(self, token_ids, key, lengths=None, rate=0.15):
        """Inputs and targets for token ids of data; see `ops.masking.mask_tokens`."""
        return mask_tokens(token_ids, lengths, key, mask_id=self.mask_id, rate=rate)

    def scores_of(self, states, lengths):
        del lengths
        embedding = self.backbone.embedding
        return self.softmax(states, embedding.tables, embedding.projections)


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
