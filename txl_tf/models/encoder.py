"""Bidirectional encoder: a block stack in which a token attends to earlier and later tokens."""

import keras
import tensorflow as tf

from txl_tf.configs.model import EncoderConfig
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.position_kinds import POSITIONS
from txl_tf.models import block_stack, named_inputs
from txl_tf.models.configured_model import ConfiguredModel
from txl_tf.ops import attention_mask, relative_position
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class Encoder(ConfiguredModel):
    """Bidirectional stack of Transformer-XL's blocks, for texts that are read whole.

    >>> config = txl_tf.EncoderConfig(vocab_size=256, num_layers=2, d_model=64, num_heads=2,
    ...                               head_dim=32, d_inner=128)
    >>> encoder = txl_tf.Encoder(config)
    >>> ids = np.arange(20, dtype="int32").reshape(2, 10)
    >>> encoder(ids, lengths=np.array([10, 7])).shape
    TensorShape([2, 10, 64])

    Positions are relative as in Transformer-XL (arXiv 1901.02860), with negative distances to later
    tokens, or absolute; each layer has the attention of its spec, at its cost.

    Shapes:
      token_ids: [B, T] int32.
      lengths: [B] int32, number of real tokens of each row; the rest is right padding, which is
        masked and whose own outputs are undefined. None is all.
      global_tokens: [B, T] bool, tokens that see all and are seen by all, for layers with global
        attention. None is none.
      dropout_key: a `DropoutKey`, for masks determined by run, step and row; None draws from the
        model's own seed generator. Only read in training.
      returns [B, T, D], the output of the last layer.

    Args:
      config: the architecture.

    Raises:
      ValueError: the config is of another model; global tokens without a layer that supports them;
        called eagerly, ids outside the vocabulary. Inside a tf.function ids are not checked: XLA
        clamps an invalid id. Check them on the host.
    """

    CONFIG = EncoderConfig

    def __init__(self, config: EncoderConfig, **kwargs):
        super().__init__(config, **kwargs)
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
            positions = tf.cast(tf.range(num_tokens), tf.float32)
            positions = relative_position.clamped(positions, config.clamp_len)
            x += tf.cast(relative_position.sinusoids(positions, config.d_model), x.dtype)
        x = dropouts.dropout(x, config.dropout, key, block_stack.EMBEDDING_SITE)
        visibility = attention_mask.AttentionMask(
            remembered=tf.zeros([batch], tf.int32),
            lookahead=None,
            lengths=None if lengths is None else tf.cast(lengths, tf.int32),
            global_tokens=None if global_tokens is None else tf.cast(global_tokens, tf.bool),
        )
        empty = x[:, :0]
        states, _ = block_stack.run(
            self.blocks,
            self.biases,
            x,
            [block.keys_values(empty) for block in self.blocks],
            self._encodings(num_tokens, key),
            visibility=visibility,
            dropout_key=key,
            lengths=visibility.lengths,
        )
        return dropouts.dropout(states[-1], config.dropout, key, block_stack.FINAL_SITE)

    def _encodings(self, num_tokens, dropout_key):
        """Returns each layer's encodings of distances T - 1, ..., 1 - T: [H, R, K'], or None."""
        if not self._position.of_sinusoids:
            return [None] * len(self.blocks)
        return block_stack.sinusoid_encodings(
            self.config, self.blocks, num_tokens, num_tokens - 1, self.compute_dtype, dropout_key
        )
