"""BERT-style masked language modelling: the model, and the masking of tokens."""

import keras
import tensorflow as tf

from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax
from txl_tf.models.task_head import Head
from txl_tf.ops import attention_mask
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class MaskedLanguageModel(Head):
    """Masked language model whose output table is the embedding's (arXiv 1810.04805).

    >>> from txl_tf.ops.dropout import DropoutKey
    >>> config = txl_tf.EncoderConfig(vocab_size=257, num_layers=2, d_model=64, num_heads=2,
    ...                               head_dim=32, d_inner=128)
    >>> model = txl_tf.MaskedLanguageModel(config)
    >>> ids = np.arange(20, dtype="int32").reshape(2, 10)
    >>> key = DropoutKey(seed=tf.constant([1, 0]), rows=tf.range(2))
    >>> inputs, targets = model.mask(ids, key)
    >>> model.nll(inputs, targets).shape
    TensorShape([2, 10])

    The vocabulary is that of the data plus one last id, the mask token.

    Shapes: those of `Head`; scores are [B, T, V], targets [B, T], -1 except at masked tokens.

    Args:
      config: an EncoderConfig; a causal model sees only one side of a masked token.
    """

    def __init__(self, config, **kwargs):
        if config.is_causal:
            raise ValueError(
                "config must be an EncoderConfig, which sees both sides of a masked token, "
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
        """Id of the mask token."""
        return self.config.vocab_size - 1

    def mask(self, token_ids, key, lengths=None, rate=0.15):
        """Returns masked inputs and targets for token ids of data; see `mask_tokens`."""
        return mask_tokens(token_ids, lengths, key, mask_id=self.mask_id, rate=rate)

    def scores_of(self, states, lengths):
        del lengths
        embedding = self.backbone.embedding
        return self.softmax(states, embedding.tables, embedding.projections)


_SITES = 1 << 20  # beyond the dropout sites of any model, so that both can share a key


def mask_tokens(token_ids, lengths, key, *, mask_id, rate=0.15):
    """Masks tokens as BERT does (arXiv 1810.04805, section 3.1); returns inputs and targets.

    Of the tokens chosen, 80 % become `mask_id`, 10 % a uniformly random id below it, and 10 % stay,
    so that the model cannot trust any input token. Draws depend only on the key and the row, not
    on the rest of the batch.

    Shapes:
      token_ids: [B, T] int32, ids below `mask_id`.
      lengths: [B] int32, number of real tokens of each row; padding is never chosen. None is all.
      returns inputs [B, T] int32, and targets [B, T] int32: the id where chosen, else -1.

    Args:
      token_ids, lengths: see above.
      key: a `DropoutKey`.
      mask_id: id of the mask token: the first beyond the data's vocabulary.
      rate: probability of each token to be chosen, independently.
    """
    token_ids = tf.cast(token_ids, tf.int32)
    shape = shape_of(token_ids)
    is_chosen = dropouts.uniform(shape, key, _SITES) < rate
    real = attention_mask.real_tokens(lengths, shape[1])
    is_chosen = is_chosen if real is None else is_chosen & real
    action = dropouts.uniform(shape, key, _SITES + 1)
    random_ids = tf.cast(dropouts.uniform(shape, key, _SITES + 2) * mask_id, tf.int32)
    masked = tf.where(action < 0.8, mask_id, tf.where(action < 0.9, random_ids, token_ids))
    return tf.where(is_chosen, masked, token_ids), tf.where(is_chosen, token_ids, -1)
