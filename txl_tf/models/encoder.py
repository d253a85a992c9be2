"""The encoder: a stack of blocks in which a token sees those before and behind it."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.configs.model import EncoderConfig
from txl_tf.configs.validation import from_dict
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.position_kinds import POSITIONS
from txl_tf.models import block_stack, named_inputs
from txl_tf.ops import attention_mask, relative_position
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class Encoder(keras.Model):
    """What Transformer-XL's blocks make of a text that is read whole.

        states = encoder(token_ids, lengths=lengths)
        states = encoder.predict({"token_ids": token_ids, "lengths": lengths})

    Positions are relative as in Transformer-XL (arXiv 1901.02860), with distances below 0 to later
    tokens, or absolute; attention of each layer is that of its spec, at the cost of that.

    Shapes:
      token_ids: [B, T] int32.
      lengths: [B] int32, how many tokens of each row are real; the rest is right padding, which
        none sees, and whose own states mean nothing. None is all.
      global_tokens: [B, T] bool, which tokens see all and are seen by all, where layers have
        attention with such. None is none.
      dropout_key: a `DropoutKey`, for masks that follow from run, step and row; None draws from
        the model's own seed generator. Only read in training.
      returns [B, T, D], the output of the last layer.

    Args:
      config: the architecture.

    Raises:
      ValueError: the config is of another model; global tokens where no layer has such; called
        eagerly, ids outside the vocabulary. Inside a tf.function ids are not checked: XLA clamps a
        wrong id. Check them on the host.
    """

    def __init__(self, config: EncoderConfig, **kwargs):
        if not isinstance(config, EncoderConfig):
            raise ValueError(f"config must be an EncoderConfig, got a {type(config).__name__}")
        super().__init__(**kwargs)
        self.config = config
        self._position = POSITIONS[config.position]
        self.seed_generator = keras.random.SeedGenerator()
        self.embedding = AdaptiveEmbedding(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            d_embed=config.d_model,
            init_std=config.init_std,
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.biases = block_stack.make_biases(config, self.dtype_policy)
        self.blocks = block_stack.make_blocks(config, self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        block_stack.build((self.embedding, self.biases, *self.blocks), self.config.d_model)

    @named_inputs.takes_dict
    def call(self, token_ids, lengths=None, global_tokens=None, dropout_key=None, training=False):
        config = self.config
        block_stack.check_inputs(
            config.vocab_size, token_ids, lengths=lengths, global_tokens=global_tokens
        )
        if global_tokens is not None:
            config.check_global_tokens()
        token_ids = tf.cast(token_ids, tf.int32)
        batch, num_tokens = shape_of(token_ids)
        key = block_stack.dropout_key(dropout_key, self.seed_generator, batch) if training else None
        x = self.embedding(token_ids)
        if self._position.at_embedding:
            places = self._clamped(tf.cast(tf.range(num_tokens), tf.float32))
            x += tf.cast(relative_position.sinusoids(places, config.d_model), x.dtype)
        x = dropouts.dropout(x, config.dropout, key, block_stack.EMBEDDING_SITE)
        visibility = attention_mask.AttentionMask(
            remembered=tf.zeros([batch], tf.int32),
            lookahead=None,
            lengths=None if lengths is None else tf.cast(lengths, tf.int32),
            global_tokens=None if global_tokens is None else tf.cast(global_tokens, tf.bool),
        )
        nothing = x[:, :0]
        states, _ = block_stack.run(
            self.blocks,
            self.biases,
            x,
            [block.keys_values(nothing) for block in self.blocks],
            self._encodings(num_tokens, key),
            visibility=visibility,
            dropout_key=key,
            lengths=visibility.lengths,
        )
        return dropouts.dropout(states[-1], config.dropout, key, block_stack.FINAL_SITE)

    def _encodings(self, num_tokens, dropout_key):
        """What each layer makes of the distances T - 1, ..., 0, ..., 1 - T: [H, R, K'], or None."""
        if not self._position.of_sinusoids:
            return [None] * len(self.blocks)
        distances = tf.cast(tf.range(num_tokens - 1, -num_tokens, -1), tf.float32)
        distances = self._clamped(distances)
        encodings = relative_position.sinusoids(distances, self.config.d_model)  # [2T - 1, D]
        encodings = dropouts.dropout(  # once for all layers and rows
            tf.cast(encodings, self.compute_dtype),
            self.config.dropout,
            dropout_key,
            block_stack.POSITIONS_SITE,
            by_row=False,
        )
        return [block.encodings(encodings, num_later=num_tokens - 1) for block in self.blocks]

    def _clamped(self, places):
        limit = self.config.clamp_len
        return places if limit is None else tf.clip_by_value(places, -float(limit), float(limit))

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}

    @classmethod
    def from_config(cls, config):
        return cls(from_dict(EncoderConfig, config.pop("config")), **config)
