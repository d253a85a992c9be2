"""Classifiers of texts and of tokens."""

import numbers

import keras

from txl_tf.configs import backbones, validation
from txl_tf.models.pooling import POOLING
from txl_tf.models.task_head import Head, label_layer


class _LabelHead(Head):
    """Base class of heads that score labels."""

    def __init__(self, config, num_labels, *, segment_len=None, **kwargs):
        is_count = isinstance(num_labels, numbers.Integral) and num_labels >= 2
        validation.check(is_count, "num_labels", "be a whole number of at least 2", num_labels)
        super().__init__(config, segment_len=segment_len, **kwargs)
        self.num_labels = num_labels
        self.label_scores = label_layer(config, num_labels)
        self.build()

    def build(self, input_shape=None):
        self.label_scores.build((None, self.config.d_model))

    def get_config(self):
        return super().get_config() | {"num_labels": self.num_labels}


@keras.saving.register_keras_serializable(package="txl_tf")
class SequenceClassifier(_LabelHead):
    """Classifier of texts, from the pooled states of their tokens.

    >>> config = txl_tf.EncoderConfig(vocab_size=256, num_layers=2, d_model=64, num_heads=2,
    ...                               head_dim=32, d_inner=128)
    >>> classifier = txl_tf.SequenceClassifier(config, num_labels=3, pooling="max")
    >>> ids = np.arange(20, dtype="int32").reshape(2, 10)
    >>> classifier(ids, lengths=np.array([10, 7])).shape
    TensorShape([2, 3])

    A causal backbone reads a long text in segments with a memory; the states of all segments are
    pooled, so each contributes to the result and gets a gradient.

    Shapes: those of `Head`; scores are [B, num_labels], targets [B].

    Args:
      config, segment_len: see `Head`.
      num_labels: number of labels, at least 2.
      pooling: "mean" or "max" over the real tokens, the state of the "first", or of the "last"
        real one. The first token of a causal backbone has seen nothing of the text.
    """

    def __init__(self, config, num_labels, pooling="mean", *, segment_len=None, **kwargs):
        super().__init__(config, num_labels, segment_len=segment_len, **kwargs)
        backbones.check_pooling(pooling, config.is_causal)
        self.pooling = pooling

    def scores_of(self, states, lengths):
        return self.label_scores(POOLING[self.pooling](states, lengths))

    def get_config(self):
        return super().get_config() | {"pooling": self.pooling}


@keras.saving.register_keras_serializable(package="txl_tf")
class TokenClassifier(_LabelHead):
    """Classifier of tokens; with a causal backbone, from the text up to each token.

    >>> config = txl_tf.preset("tiny").model
    >>> classifier = txl_tf.TokenClassifier(config, num_labels=5, segment_len=32)
    >>> classifier(np.arange(20, dtype="int32").reshape(2, 10)).shape
    TensorShape([2, 10, 5])

    Shapes: those of `Head`; scores are [B, T, num_labels], targets [B, T], -1 where ignored;
    targets beyond lengths are ignored.

    Args:
      config, segment_len: see `Head`.
      num_labels: number of labels, at least 2.
    """

    def scores_of(self, states, lengths):
        del lengths
        return self.label_scores(states)
