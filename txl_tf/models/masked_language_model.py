"""Words for the tokens that are hidden from it: how an encoder is trained on text alone."""

import keras

from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax
from txl_tf.models.task_head import Head
from txl_tf.ops import masking


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
        return masking.mask_tokens(token_ids, lengths, key, mask_id=self.mask_id, rate=rate)

    def scores_of(self, states, lengths):
        del lengths
        embedding = self.backbone.embedding
        return self.softmax(states, embedding.tables, embedding.projections)
