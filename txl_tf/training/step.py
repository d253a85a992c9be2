"""One compiled optimizer step, written for one replica and run on all."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf.configs.run import Config
from txl_tf.data.batches import Batch
from txl_tf.models import objectives
from txl_tf.models.memory import Memory
from txl_tf.models.objectives import Examples
from txl_tf.ops.dropout import DropoutKey
from txl_tf.training import update
from txl_tf.training.distribution import Distribution
from txl_tf.training.optimizer import LossScale

_IGNORED = -1  # target of padding


class Metrics(NamedTuple):
    """Metrics of a step over all replicas, scalars."""

    loss: Any  # mean over the real tokens, in nats, without auxiliary losses
    tokens: Any  # number of real tokens
    learning_rate: Any
    gradient_norm: Any  # before clipping
    skipped: Any  # 1.0 if the update was skipped because of NaN or infinity
    dropped: Any = -1.0  # fraction of tokens over an expert's capacity; -1 without experts
    expert_entropy: Any = -1.0  # of the load of experts, over its maximum; -1 without
    auxiliary: Any = 0.0  # losses besides `loss`
    weight_bound: Any = 0.0  # upper bound of all weights after the update


def make_train_step(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    distribution: Distribution,
    config: Config,
    loss_scale: LossScale | None = None,
) -> Callable[[Batch, Memory], tuple[Metrics, Memory]]:
    """Returns step(batch, memory) -> (metrics, memory), one tf.function of static shapes.

    The loss is the sum of nats over the real tokens of all replicas, divided by their number, so
    padding and the split into replicas or parts do not change it, except that experts share their
    capacity among rows; with `scored_fraction` tokens before the last of a segment do not count.
    Clipping is by the global gradient. With `accumulate_steps` a replica processes its rows in
    equal parts; each row keeps its own memory and its own dropout. Ids are not checked here: XLA
    cannot.

    See `update.apply` for skipped updates. After NaN or infinity the memory stays as well;
    without a real target it moves on. `loss_scale`, for float16, multiplies the loss but not the
    metrics; clipping is by the unscaled gradients.

    Shapes: batch.ids [B, T], memory as `model.initial_mems(B)`, B the rows of one replica.
    """
    replica_step = _ReplicaStep(model, optimizer, distribution, config, loss_scale)

    @tf.function(
        jit_compile=distribution.jit(config.train.jit) and distribution.jit_whole, autograph=False
    )
    def step(batch, memory):
        return _on_all(distribution.strategy, replica_step, batch, memory)

    return step


def make_train_loop(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    distribution: Distribution,
    config: Config,
    loss_scale: LossScale | None = None,
) -> Callable[[tuple[Batch, ...], Memory], tuple[Metrics, Memory]]:
    """Returns loop(batches, memory) -> (metrics, memory): the steps of N batches in one call.

    For devices that wait for Python between steps, such as a TPU. Each step equals that of
    `make_train_step`. Shapes: metrics [N] each, the rest as there.
    """
    strategy = distribution.strategy
    replica_step = _ReplicaStep(model, optimizer, distribution, config, loss_scale)

    @tf.function(
        jit_compile=distribution.jit(config.train.jit) and distribution.jit_whole, autograph=False
    )
    def loop(batches, memory):
        num_steps = len(batches)
        # `run` gives the memory the structure that steps return, also on one of several replicas.
        stacked, memory = strategy.run(_stacked, args=(batches, memory))
        arrays = Metrics(*(tf.TensorArray(tf.float32, num_steps) for _ in Metrics._fields))

        def replica_step_at(index, stacked, memory):
            return replica_step(tf.nest.map_structure(lambda x: x[index], stacked), memory)

        def body(index, arrays, memory):
            metrics, memory = _on_all(strategy, replica_step_at, index, stacked, memory)
            written = (a.write(index, m) for a, m in zip(arrays, metrics, strict=True))
            return index + 1, Metrics(*written), memory

        _, arrays, memory = tf.while_loop(
            lambda index, *_: index < num_steps,
            body,
            (tf.constant(0), arrays, memory),
            maximum_iterations=num_steps,
        )
        return Metrics(*(array.stack() for array in arrays)), memory

    return loop


def _on_all(strategy, step, *args):
    """Returns (metrics, memory) of `step` run on all replicas; metrics are equal on all."""
    metrics, memory = strategy.run(step, args=args)
    first = [strategy.experimental_local_results(value)[0] for value in metrics]
    return Metrics(*first), memory


def _stacked(batches, memory):
    """Returns the batches stacked along a new first axis, and a copy of the memory."""
    stacked = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
    return stacked, tf.nest.map_structure(tf.identity, memory)


class _ReplicaStep:
    """The step of one replica on its rows."""

    def __init__(self, model, optimizer, distribution, config, loss_scale):
        if distribution.jit(config.train.jit) and distribution.jit_parts:
            self._sums = tf.function(self._sums, jit_compile=True, autograph=False)
        self._model = model
        self._optimizer = optimizer
        self._num_replicas = distribution.num_replicas
        self._config = config
        self._objective = objectives.make(config.train.objective_spec)
        self._loss_scale = loss_scale
        self._num_parts = config.train.accumulate_steps

    def __call__(self, batch, memory):
        model, optimizer, config = self._model, self._optimizer, self._config
        context = tf.distribute.get_replica_context()
        num_rows = batch.ids.shape[0]
        rows = context.replica_id_in_sync_group * num_rows + tf.range(num_rows)  # [B]
        memory = model.reset(memory, tf.fill([num_rows], batch.restart))
        targets = _scored(batch.targets, config.train.scored_fraction)
        starts = batch.document_start if config.data.reset_memory_at_documents else None
        progress = tf.cast(optimizer.iterations, tf.float32) / config.train.train_steps
        key = self._dropout_key(rows)
        examples = self._objective.examples(batch.ids, targets, starts, key, progress)
        num_real = tf.math.count_nonzero(examples.targets != _IGNORED, dtype=tf.float32)
        num_real = context.all_reduce("SUM", num_real)
        inputs = _Inputs(examples, rows)
        sums, new_memory = self._sums(inputs, memory, tf.maximum(num_real, 1.0))
        nats, auxiliary, routing, cluster_sums, gradients = context.all_reduce("SUM", sums)
        if self._loss_scale is not None:
            gradients = [gradient / self._loss_scale.factor for gradient in gradients]
        rate = tf.identity(optimizer.learning_rate)  # before `apply` counts the step
        result = update.apply(
            optimizer,
            gradients,
            model.trainable_variables,
            losses=(nats, auxiliary),
            num_real=num_real,
            clip_norm=config.train.clip_norm,
            num_replicas=self._num_replicas,
        )
        model.move_centroids(cluster_sums, result.applied)
        if self._loss_scale is not None:
            self._loss_scale.update(result.good)
        memory = tf.nest.map_structure(lambda x, y: tf.where(result.good, x, y), new_memory, memory)
        skipped = 1.0 - tf.cast(result.good, tf.float32)
        return Metrics(
            nats,
            num_real,
            rate,
            result.gradient_norm,
            skipped,
            dropped=routing[0],
            expert_entropy=routing[1],
            auxiliary=auxiliary,
            weight_bound=result.weight_bound,
        ), memory

    def _dropout_key(self, rows):
        """Returns the key of this step's draws for some rows, [B]."""
        seed = [self._config.train.seed, tf.cast(self._optimizer.iterations, tf.int32)]
        return DropoutKey(tf.stack(seed), rows)

    def _sums(self, inputs, memory, num_real):
        """Returns (sums, new memory), summed over all parts.

        The sums are [nats, auxiliary, routing, cluster_sums, gradients].
        """

        def part_sums(part, memory):
            return self._gradients(part, memory, num_real)

        if self._num_parts == 1:
            return part_sums(inputs, memory)
        model = self._model
        gradients = [tf.zeros(v.shape) for v in model.trainable_variables]
        cluster_sums = [tf.zeros(core.sums_shape) for core in model.routing_cores]
        zeros = [tf.zeros([]), tf.zeros([]), tf.zeros([2]), cluster_sums, gradients]
        return _in_parts(part_sums, self._num_parts, inputs, memory, zeros)

    def _gradients(self, inputs, memory, num_real):
        """Returns `_sums` of some rows; losses and routing are their share of the global mean."""
        model = self._model
        with tf.GradientTape() as tape:
            nll, memory = model.nll(
                **inputs.examples.inputs,
                targets=inputs.examples.targets,
                mems=memory,
                dropout_key=self._dropout_key(inputs.rows),
                training=True,
            )  # [B, N]
            nats = tf.reduce_sum(nll) / num_real
            share = 1.0 / (self._num_parts * self._num_replicas)
            auxiliary = tf.add_n([tf.zeros([]), *model.losses]) * share
            loss = nats + auxiliary
            if self._loss_scale is not None:
                loss *= self._loss_scale.factor
        # As TensorFlow's variables: a Keras variable that is not read has no zero gradient.
        gradients = tape.gradient(
            loss,
            [variable.value for variable in model.trainable_variables],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        routing = model.routing()
        routing = share * (tf.fill([2], -1.0) if routing is None else routing)
        # Densify embedding gradients: IndexedSlices may repeat rows, whose sum the norm is of.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [nats, auxiliary, routing, model.cluster_sums(), gradients], memory


def _scored(targets, fraction):
    """Returns the targets, [B, T], with those before the last `fraction` of a segment ignored."""
    length = targets.shape[1]
    first = length - max(round(fraction * length), 1)
    return tf.where(tf.range(length) < first, _IGNORED, targets) if first else targets


class _Inputs(NamedTuple):
    """Inputs of a replica, or of a part of its rows."""

    examples: Examples
    rows: Any  # [B] global row numbers


def _in_parts(function, num_parts, inputs, memory, zeros):
    """Calls `function` on the parts of the rows, one after the other.

    function(inputs, memory) returns (sums, memory): sums are added over the parts, starting from
    `zeros`; the memories are concatenated. A loop, so that compile time and working memory do not
    grow with the number of parts.
    """

    def cut(x):  # [B, ...] -> [parts, B / parts, ...]
        return tf.reshape(x, [num_parts, x.shape[0] // num_parts, *x.shape[1:]])

    inputs, memory = tf.nest.map_structure(cut, (inputs, memory))
    arrays = [
        tf.TensorArray(leaf.dtype, num_parts, element_shape=leaf.shape[1:])
        for leaf in tf.nest.flatten(memory)
    ]

    def body(index, sums, arrays):
        part = tf.nest.map_structure(lambda x: x[index], (inputs, memory))
        more, part_memory = function(*part)
        leaves = tf.nest.flatten(part_memory)
        arrays = [a.write(index, leaf) for a, leaf in zip(arrays, leaves, strict=True)]
        return index + 1, tf.nest.map_structure(tf.add, sums, more), arrays

    _, sums, arrays = tf.while_loop(
        lambda index, *_: index < num_parts, body, (0, zeros, arrays), maximum_iterations=num_parts
    )
    joined = [
        tf.reshape(array.stack(), [-1, *leaf.shape[2:]])
        for array, leaf in zip(arrays, tf.nest.flatten(memory), strict=True)
    ]
    return sums, tf.nest.pack_sequence_as(memory, joined)
