"""Star-Transformer: an encoder whose tokens form a ring around a relay."""

import keras
import tensorflow as tf

from txl_tf.configs.model import StarTransformerConfig
from txl_tf.configs.validation import check
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.star_layer import StarLayer
from txl_tf.models import block_stack, named_inputs, pooling
from txl_tf.models.configured_model import ConfiguredModel
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class StarTransformer(ConfiguredModel):
    """Star-Transformer (arXiv 1902.09113), for texts that are read whole, at a linear cost.

    >>> config = txl_tf.StarTransformerConfig(vocab_size=256, num_layers=2, d_model=64, num_heads=2)
    >>> ids = np.arange(20, dtype="int32").reshape(2, 10)
    >>> states, relay = txl_tf.StarTransformer(config)(ids, lengths=np.array([10, 7]))
    >>> states.shape, relay.shape
    (TensorShape([2, 10, 64]), TensorShape([2, 64]))

    Each token attends to its neighbours, to its embedding and to a relay, which attends to all
    tokens; see `layers.star_layer`. Task heads read the mean of each token's state and the relay,
    so that pooling "max" is the paper's vector of a text.

    Shapes:
      token_ids: [B, T] int32.
      lengths: [B] int32, number of real tokens of each row, at least 1; the rest is right padding.
        None is all.
      dropout_key: a `DropoutKey`, for masks determined by run, step and row; None draws from the
        model's own seed generator. Only read in training.
      returns states of the tokens [B, T, D], 0 at padding, and of the relay [B, D].

    Args:
      config: the architecture.

    Raises:
      ValueError: the config is of another model; a text is longer than the table of positions;
        called eagerly, ids outside the vocabulary, as for `Encoder`.
    """

    CONFIG = StarTransformerConfig

    def __init__(self, config: StarTransformerConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.seed_generator = keras.random.SeedGenerator()
        self.embedding = AdaptiveEmbedding(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            d_embed=config.d_model,
            init_std=config.init_std,
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.star_layers = [
            StarLayer(
                d_model=config.d_model,
                num_heads=config.num_heads,
                head_dim=config.head_dim,
                cyclic=config.cyclic,
                layer_norm_epsilon=config.layer_norm_epsilon,
                dtype=self.dtype_policy,
                name=f"layer_{index}",
            )
            for index in range(config.num_layers)
        ]
        self.build()

    def build(self, input_shape=None):
        config = self.config
        block_stack.build((self.embedding, *self.star_layers), config.d_model)
        if config.num_positions is not None:
            self.positions = self.add_weight(
                (config.num_positions, config.d_model),
                keras.initializers.RandomNormal(stddev=config.init_std * config.d_model**0.5),
                name="positions",
            )

    @named_inputs.takes_dict
    def call(self, token_ids, lengths=None, dropout_key=None, training=False):
        config = self.config
        block_stack.check_inputs(config.vocab_size, token_ids, lengths=lengths)
        token_ids = tf.cast(token_ids, tf.int32)
        batch, num_tokens = shape_of(token_ids)
        lengths = tf.fill([batch], num_tokens) if lengths is None else tf.cast(lengths, tf.int32)
        key = block_stack.dropout_key(dropout_key, self.seed_generator, batch) if training else None
        x = self.embedding(token_ids)
        if config.num_positions is not None:
            if isinstance(num_tokens, int):
                limit = config.num_positions
                check(num_tokens <= limit, "token_ids", f"have at most {limit} columns", num_tokens)
            x += tf.cast(self.positions[:num_tokens], x.dtype)
        states = anchors = dropouts.dropout(x, config.dropout, key, block_stack.EMBEDDING_SITE)
        counted = lengths if config.cyclic else tf.fill([batch], num_tokens)
        relay = tf.cast(pooling.mean(anchors, counted), anchors.dtype)
        for layer in self.star_layers:
            states, relay = layer(states, anchors, relay, lengths)
        return states, relay
