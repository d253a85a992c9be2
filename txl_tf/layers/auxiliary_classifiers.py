"""Classifiers that train a deep model by more predictions than those it is used for."""

import itertools

import keras
import tensorflow as tf

from txl_tf.ops import cross_entropy

_FURTHER_WEIGHT = 0.5  # of the loss of targets after the next token


@keras.saving.register_keras_serializable(package="txl_tf")
class AuxiliaryClassifiers(keras.layers.Layer):
    """The auxiliary losses of Al-Rfou et al. 2018 (arXiv 1808.04444), added to the layer's losses.

    Each layer of a model but the last predicts the next token as well, through a classifier of its
    own; with several targets, each layer, the last included, also predicts the tokens after the
    next one, each through a further classifier and with a weight of 0.5. The losses of layer l of L
    end after a fraction l / (2 L) of training, those of the last layer never.

    Each loss is a mean over its targets. Those of the end of a segment have no further tokens
    there, and are left out.

    Shapes:
      states: L of [B, T, D], the outputs of the layers.
      targets: [B, T] int32, the next tokens, -1 where ignored.
      progress: [B] float32, the fraction of training that is done, the same in all rows.
      returns the sum of the losses in nats, [].

    Args:
      num_layers: L.
      vocab_size: V.
      num_targets: number of tokens that a position predicts.
    """

    def __init__(self, *, num_layers, vocab_size, num_targets, **kwargs):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.vocab_size = vocab_size
        self.num_targets = num_targets
        self.predictions = predictions(num_layers, num_targets)

    def build(self, input_shape):
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.kernels, self.biases = [], []
        for layer, ahead in self.predictions:
            name, shape = f"{layer}_{ahead}", (input_shape[0][-1], self.vocab_size)
            self.kernels.append(self.add_weight(shape, normal, name=f"kernel_{name}"))
            bias = self.add_weight((self.vocab_size,), "zeros", name=f"bias_{name}", autocast=False)
            self.biases.append(bias)

    def call(self, states, targets, progress):
        losses = []
        classifiers = zip(self.predictions, self.kernels, self.biases, strict=True)
        for (layer, ahead), kernel, bias in classifiers:
            nats = _mean_nats(states[layer - 1], kernel, bias, _shifted(targets, ahead))
            weight = _FURTHER_WEIGHT if ahead else 1.0
            if layer < self.num_layers:
                is_on = progress[0] < layer / (2 * self.num_layers)
                weight = tf.where(is_on, weight, 0.0)
            losses.append(weight * nats)
        loss = tf.add_n(losses)
        self.add_loss(loss)
        return loss

    def get_config(self):
        own = ("num_layers", "vocab_size", "num_targets")
        return super().get_config() | {name: getattr(self, name) for name in own}


def predictions(num_layers: int, num_targets: int) -> list[tuple[int, int]]:
    """Returns (layer from 1, tokens after the next one) of each auxiliary classifier."""
    every = itertools.product(range(1, num_layers + 1), range(num_targets))
    return [prediction for prediction in every if prediction != (num_layers, 0)]  # the model's own


def _shifted(targets, ahead):
    """Returns the targets `ahead` tokens later, -1 beyond the end. [B, T] -> the same."""
    added = min(ahead, targets.shape[1])
    return tf.pad(targets[:, ahead:], [[0, 0], [0, added]], constant_values=-1)


def _mean_nats(states, kernel, bias, targets):
    rows = tf.reshape(states, [-1, states.shape[-1]])
    flat = tf.reshape(targets, [-1])
    logits = tf.cast(tf.matmul(rows, tf.cast(kernel, rows.dtype)), tf.float32) + bias
    nats = tf.reduce_sum(cross_entropy.cross_entropy(logits, flat))
    return tf.math.divide_no_nan(nats, tf.cast(tf.math.count_nonzero(flat != -1), tf.float32))
