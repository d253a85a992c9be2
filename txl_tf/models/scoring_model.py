"""Base class of models that score targets: losses and metrics in `fit` and `evaluate`."""

import inspect
from collections.abc import Mapping

import keras
import tensorflow as tf

from txl_tf.ops import attention_mask, cross_entropy
from txl_tf.ops.shapes import shape_of


class ScoringModel(keras.Model):
    """Base class of models whose outputs are scores of targets; a target of -1 is ignored.

    Targets of tokens beyond `lengths`, if among the inputs, are ignored as well. In `fit` and
    `evaluate` ignored targets are excluded from the loss, the model's own or that of `compile`, and
    from `metrics` and `weighted_metrics`: Keras losses get a mask, and Keras metrics sample weights
    of 0. A metric whose `update_state` has no `sample_weight` gets targets as they are, with -1.

    The model's own loss is the mean nats of the real targets of all replicas, by their sample
    weights, plus auxiliary losses. A loss given to `compile` is a mean over the real targets of a
    replica, as Keras computes it with masks.
    """

    def scores_in(self, outputs):
        """Returns the scores among the outputs of a call, [B, ..., N] float32."""
        return outputs

    def lengths_in(self, inputs):
        """Returns the lengths beyond which targets are ignored, [B], or None."""
        return inputs.get("lengths")

    def _lengths(self, inputs):
        return self.lengths_in(inputs) if isinstance(inputs, Mapping) else None

    def auxiliary_loss(self):
        """Returns the sum of the losses that layers added in the last call, a scalar."""
        return tf.add_n(self.losses) if self.losses else tf.zeros([])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        scores = self.scores_in(y_pred)
        y = _targets(y, self._lengths(x), scores)
        weights = None if sample_weight is None else target_weights(y, sample_weight)
        if self._compile_loss is not None:
            masked = tf.identity(scores)
            masked._keras_mask = y >= 0
            return super().compute_loss(x, _labels(y), masked, weights, training)
        real = target_weights(y) if weights is None else weights
        nats = tf.reduce_sum(nats_of(scores, tf.maximum(y, -1)) * real)
        total, replicas = _over_replicas(tf.reduce_sum(real))
        return tf.math.divide_no_nan(nats, total) + self.auxiliary_loss() / replicas

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        compiled = self._compile_metrics
        if compiled is not None:
            scores = self.scores_in(y_pred)
            y = _targets(y, self._lengths(x), scores)
            labels = _labels(y)
            if not compiled.built:
                compiled.build(labels, scores)
            for lists, weights in (
                (compiled._flat_metrics, target_weights(y)),
                (compiled._flat_weighted_metrics, target_weights(y, sample_weight)),
            ):
                for metric in (m for each in lists if each for m in each.metrics):
                    if "sample_weight" in inspect.signature(metric.update_state).parameters:
                        metric.update_state(labels, scores, sample_weight=weights)
                    else:
                        metric.update_state(y, scores)
        return self.get_metrics_result()


def within(targets, lengths):
    """Returns targets of tokens with -1 beyond lengths; those of whole texts are unchanged.

    Shapes: targets [B, T] or [B], lengths [B] int or None -> as targets, int32.
    """
    targets = tf.cast(targets, tf.int32)  # unsigned integers cannot hold -1
    if lengths is None or len(targets.shape) < 2:
        return targets
    real = attention_mask.real_tokens(tf.cast(lengths, tf.int32), shape_of(targets)[1])
    return tf.where(real, targets, -1)


def nats_of(scores, targets):
    """Returns the loss of each target in nats, 0.0 where the target is -1.

    Shapes: scores [..., N] float32, targets [...] int -> [...] float32.
    """
    targets = tf.cast(targets, tf.int32)
    rows = tf.reshape(scores, [-1, scores.shape[-1]])
    nats = cross_entropy.cross_entropy(rows, tf.reshape(targets, [-1]))
    return tf.reshape(nats, tf.shape(targets))


def target_weights(targets, sample_weight=None):
    """Returns the weight of each target, 0 where it is -1; `sample_weight` is by row or target.

    Shapes: targets [B, ...] int, sample_weight [B] or [B, ...], or None -> [B, ...] float32.
    """
    real = tf.cast(targets >= 0, tf.float32)
    if sample_weight is None:
        return real
    weight = tf.cast(sample_weight, tf.float32)
    missing = len(real.shape) - len(weight.shape)
    weight = tf.reshape(weight, [*shape_of(weight), *[1] * missing])
    return tf.math.multiply_no_nan(tf.broadcast_to(weight, tf.shape(real)), real)


def _labels(targets):
    """Returns targets with -1 replaced by 0, which every Keras loss and metric accepts."""
    return tf.maximum(targets, 0)


def _targets(targets, lengths, scores):
    """Returns targets as int32, -1 beyond `lengths`, if given.

    Raises:
      ValueError: targets are not one id for each row of scores, for example one-hot.
    """
    shape, actual = list(scores.shape[:-1]), tf.TensorShape(targets.shape)
    if not any(actual.is_compatible_with(expected) for expected in (shape, [*shape, 1])):
        raise ValueError(
            f"targets must be ids of shape {shape}, got {list(actual)}; take the argmax of one-hot "
            "targets"
        )
    return within(targets, lengths)


def _over_replicas(total):
    """Returns the sum of a scalar over all replicas, and the number of replicas as a float.

    Each replica divides its loss by that sum: Keras sums the gradients of replicas.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return total, 1.0
    replicas = float(context.num_replicas_in_sync)
    return context.all_reduce(tf.distribute.ReduceOp.SUM, total), replicas
