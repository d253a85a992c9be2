"""Base class of task heads: backbone, logits, cross-entropy."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.configs import backbones
from txl_tf.configs.validation import from_dict
from txl_tf.models import block_stack, named_inputs, scoring_model
from txl_tf.models.backbones import BACKBONES
from txl_tf.ops.shapes import shape_of


class Head(scoring_model.ScoringModel):
    """Base class of task heads: a backbone, whose states subclasses score in `scores_of`.

        scores = head(token_ids, lengths=lengths)
        nats = head.nll(token_ids, targets, lengths=lengths)
        head.fit({"token_ids": token_ids, "lengths": lengths}, targets)  # also predict, evaluate

    Shapes:
      token_ids: [B, T] int32. T is static with a causal backbone, also inside a graph.
      lengths: [B] int32, number of real tokens of each row, at least 1; the rest is right padding,
        which affects only the position of bigbird's last block and, in training, the capacity of
        switch. None is all.
      global_tokens: [B, T] bool, see `Encoder`; None with other backbones.
      dropout_key: see the backbone.
      returns logits [B, ..., N] float32.

    Args:
      config: of the backbone: an EncoderConfig, an XLNetConfig, a StarTransformerConfig, or a
        TransformerXLConfig, which is causal.
      segment_len: number of tokens that a causal backbone reads at once; None with another.
    """

    def __init__(self, config, *, segment_len=None, **kwargs):
        super().__init__(**kwargs)
        name = backbones.name_of(config)
        backbones.check_attention(config)
        self.config = config
        self.segment_len = segment_len
        self._reader = BACKBONES[name](config, segment_len, self.dtype_policy)
        self.backbone = self._reader.model
        self.seed_generator = keras.random.SeedGenerator()

    @named_inputs.takes_dict
    def call(self, token_ids, lengths=None, global_tokens=None, dropout_key=None, training=False):
        vocab_size = self.config.vocab_size
        block_stack.check_inputs(
            vocab_size, token_ids, lengths=lengths, global_tokens=global_tokens
        )
        token_ids = tf.cast(token_ids, tf.int32)
        batch, num_tokens = shape_of(token_ids)
        lengths = tf.fill([batch], num_tokens) if lengths is None else tf.cast(lengths, tf.int32)
        key = block_stack.dropout_key(dropout_key, self.seed_generator, batch) if training else None
        states = self._reader.read(token_ids, lengths, global_tokens, key)
        return self.scores_of(states, lengths)

    def scores_of(self, states, lengths):
        """Returns scores from the backbone's states. [B, T, D], [B] -> [B, ..., N] float32."""
        raise NotImplementedError

    def nll(self, token_ids, targets, lengths=None, **kwargs):
        """Returns the loss of each target in nats, 0.0 where it is -1 or beyond lengths.

        Further arguments are those of a call. Shapes: as targets, float32.

        Raises:
          ValueError: called eagerly with a target without a score, except -1.
        """
        scores = self(token_ids, lengths=lengths, **kwargs)
        block_stack.check_ids("targets", targets, scores.shape[-1], ignored=-1)
        return scoring_model.nats_of(scores, scoring_model.within(targets, lengths))

    def auxiliary_loss(self):
        """Returns the sum of the routing layers' losses of the last call, a scalar.

        The mean over the segments of a text; a loss given to `compile` gets their sum. 0 without
        routing layers.
        """
        losses = self.losses
        if not losses:
            return tf.zeros([])
        routers = sum(block.feed_forward.ROUTES for block in self.backbone.blocks)
        return tf.add_n(losses) * (routers / len(losses))

    def get_config(self):
        own = {
            "backbone": backbones.name_of(self.config),
            "config": dataclasses.asdict(self.config),
            "segment_len": self.segment_len,
        }
        return super().get_config() | own

    @classmethod
    def from_config(cls, config):
        kind = backbones.BACKBONES[config.pop("backbone")]
        return cls(from_dict(kind, config.pop("config")), **config)


def label_layer(config, num_labels):
    """Returns a Dense layer to the logits of labels, in float32 under any policy."""
    return keras.layers.Dense(
        num_labels,
        kernel_initializer=keras.initializers.RandomNormal(stddev=config.init_std),
        dtype="float32",
        name="label_scores",
    )
