"""What all heads share: a backbone below, scores above, the loss between scores and targets."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.configs import backbones
from txl_tf.configs.validation import from_dict
from txl_tf.models import block_stack, named_inputs, scoring_model
from txl_tf.models.backbones import BACKBONES
from txl_tf.ops.shapes import shape_of


class Head(scoring_model.ScoringModel):
    """A backbone whose states a subclass makes scores of, in `scores_of`.

        scores = head(token_ids, lengths=lengths)
        nats = head.nll(token_ids, targets, lengths=lengths)
        head.fit({"token_ids": token_ids, "lengths": lengths}, targets)  # also predict, evaluate

    Shapes:
      token_ids: [B, T] int32. T is static with a causal backbone, also inside a graph.
      lengths: [B] int32, at least 1: how many tokens of each row are real; the rest is right
        padding, which changes nothing but where bigbird's last block is, and in training how much
        room switch has. None is all.
      global_tokens: [B, T] bool, see `Encoder`; None with a causal backbone.
      dropout_key: as of the backbone.
      returns scores [B, ..., N] float32, logits.

    Args:
      config: of the backbone: an EncoderConfig, or a TransformerXLConfig, which is causal.
      segment_len: tokens that a causal backbone reads at once; None with an encoder.
    """

    def __init__(self, config, *, segment_len=None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.segment_len = segment_len
        self._reader = BACKBONES[backbones.name_of(config)](config, segment_len, self.dtype_policy)
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
        """Scores, from the backbone's states. [B, T, D], [B] -> [B, ..., N] float32."""
        raise NotImplementedError

    def nll(self, token_ids, targets, lengths=None, **kwargs):
        """Nats of each target, 0.0 where it is -1 or beyond lengths; float32, shaped as targets.

        Further arguments are those of a call.

        Raises:
          ValueError: called eagerly with a target that has no score, -1 excepted.
        """
        scores = self(token_ids, lengths=lengths, **kwargs)
        block_stack.check_ids("targets", targets, scores.shape[-1], ignored=-1)
        return scoring_model.nats_of(scores, scoring_model.within(targets, lengths))

    def auxiliary_loss(self):
        """The sum over the layers that route tokens of their losses in the last call, a scalar.

        Where a text is read in several segments, it is their mean; a loss that `compile` was given
        gets their sum. 0 where nothing is routed.
        """
        losses = self.losses
        routers = sum(block.feed_forward.ROUTES for block in self.backbone.blocks)
        return tf.add_n(losses) * (routers / len(losses)) if losses else tf.zeros([])

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
    """An affine map to the scores of labels, in float32 under any policy. [..., D] -> [..., N]."""
    return keras.layers.Dense(
        num_labels,
        kernel_initializer=keras.initializers.RandomNormal(stddev=config.init_std),
        dtype="float32",
        name="label_scores",
    )
