"""One optimizer step, compiled: written for one replica, run on all."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf.configs.run import Config
from txl_tf.data.batches import Batch
from txl_tf.models.memory import Memory
from txl_tf.ops.dropout import DropoutKey
from txl_tf.training import update
from txl_tf.training.distribution import Distribution
from txl_tf.training.optimizer import LossScale

_IGNORED = -1  # a target that is no token


class Metrics(NamedTuple):
    """What a step did, as scalars; over all replicas."""

    loss: Any  # mean over the real tokens, in nats, without auxiliary losses
    tokens: Any  # how many were real
    learning_rate: Any
    gradient_norm: Any  # before clipping
    skipped: Any  # 1.0 where a number was not finite, and nothing was changed
    dropped: Any = -1.0  # share of tokens that found their expert full; -1 without experts
    expert_entropy: Any = -1.0  # of the experts' shares in a group, over the greatest; -1 without
    auxiliary: Any = 0.0  # losses besides `loss`
    weight_bound: Any = 0.0  # a size that no weight exceeds after the update


def make_train_step(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    distribution: Distribution,
    config: Config,
    loss_scale: LossScale | None = None,
) -> Callable[[Batch, Memory], tuple[Metrics, Memory]]:
    """Returns step(batch, memory) -> (metrics, memory), one tf.function of static shapes.

    The loss is the sum of nats over the real tokens of all replicas, divided by their number, so
    that padding and the cut into replicas or parts change nothing, but where experts share their
    room among rows; the clip acts on the gradient of all of them. With `accumulate_steps` a replica
    works its rows off in parts of equal size; each row keeps its own memory and its own dropout.
    Ids are not checked here: XLA cannot.

    See `update.apply` for steps that change nothing. One that is skipped leaves the memory that it
    found, too; one without a real target reads on. `loss_scale`, for float16, multiplies the loss,
    not what is told; the clip acts on the gradients that are left.

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

    For devices that wait for Python between steps, such as a TPU. Each step is that of
    `make_train_step`. Shapes: metrics [N] each, the rest as there.
    """
    strategy = distribution.strategy
    replica_step = _ReplicaStep(model, optimizer, distribution, config, loss_scale)

    @tf.function(
        jit_compile=distribution.jit(config.train.jit) and distribution.jit_whole, autograph=False
    )
    def loop(batches, memory):
        num_steps = len(batches)
        # Through `run` the memory has the form that steps give it, on one replica of several too.
        stacked, memory = strategy.run(_stacked, args=(batches, memory))
        arrays = Metrics(*(tf.TensorArray(tf.float32, num_steps) for _ in Metrics._fields))

        def one(index, stacked, memory):
            return replica_step(tf.nest.map_structure(lambda x: x[index], stacked), memory)

        def body(index, arrays, memory):
            metrics, memory = _on_all(strategy, one, index, stacked, memory)
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
    """(metrics, memory) of `step` on all replicas, which agree on the metrics."""
    metrics, memory = strategy.run(step, args=args)
    first = [strategy.experimental_local_results(value)[0] for value in metrics]
    return Metrics(*first), memory


def _stacked(batches, memory):
    """Batches as one with a first axis, and the memory as it is."""
    stacked = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
    return stacked, tf.nest.map_structure(tf.identity, memory)


class _ReplicaStep:
    """What one replica does with its rows."""

    def __init__(self, model, optimizer, distribution, config, loss_scale):
        if distribution.jit(config.train.jit) and distribution.jit_parts:
            self._sums = tf.function(self._sums, jit_compile=True, autograph=False)
        self._model = model
        self._optimizer = optimizer
        self._num_replicas = distribution.num_replicas
        self._config = config
        self._loss_scale = loss_scale
        self._num_parts = config.train.accumulate_steps

    def __call__(self, batch, memory):
        model, optimizer = self._model, self._optimizer
        context = tf.distribute.get_replica_context()
        num_rows = batch.ids.shape[0]
        rows = context.replica_id_in_sync_group * num_rows + tf.range(num_rows)  # [B]
        memory = model.reset(memory, tf.fill([num_rows], batch.restart))
        num_real = tf.math.count_nonzero(batch.targets != _IGNORED, dtype=tf.float32)
        num_real = context.all_reduce("SUM", num_real)
        inputs = _Inputs(batch.ids, batch.targets, batch.document_start, rows)
        sums, new_memory = self._sums(inputs, memory, tf.maximum(num_real, 1.0))
        nats, auxiliary, use, gradients = context.all_reduce("SUM", sums)
        if self._loss_scale is not None:
            gradients = [gradient / self._loss_scale.factor for gradient in gradients]
        rate = tf.identity(optimizer.learning_rate)  # before `apply` counts the step
        done = update.apply(
            optimizer,
            gradients,
            model.trainable_variables,
            losses=(nats, auxiliary),
            num_real=num_real,
            clip_norm=self._config.train.clip_norm,
            num_replicas=self._num_replicas,
        )
        if self._loss_scale is not None:
            self._loss_scale.update(done.good)
        memory = tf.nest.map_structure(lambda x, y: tf.where(done.good, x, y), new_memory, memory)
        skipped = 1.0 - tf.cast(done.good, tf.float32)
        use = use[0], use[1]
        told = nats, num_real, rate, done.gradient_norm, skipped, *use, auxiliary, done.weight_bound
        return Metrics(*told), memory

    def _sums(self, inputs, memory, num_real):
        """([nats, auxiliary, use, gradients], new memory) of all rows, at once or in parts."""

        def of_part(part, memory):
            return self._gradients(part, memory, num_real)

        if self._num_parts == 1:
            return of_part(inputs, memory)
        gradients = [tf.zeros(v.shape) for v in self._model.trainable_variables]
        zeros = [tf.zeros([]), tf.zeros([]), tf.zeros([2]), gradients]
        return _in_parts(of_part, self._num_parts, inputs, memory, zeros)

    def _gradients(self, inputs, memory, num_real):
        """As `_sums`, of some rows; losses are their share of the mean, and so is the use."""
        model, config = self._model, self._config
        starts = inputs.document_start if config.data.reset_memory_at_documents else None
        seed = tf.stack([config.train.seed, tf.cast(self._optimizer.iterations, tf.int32)])
        with tf.GradientTape() as tape:
            nll, memory = model.nll(
                inputs.ids,
                inputs.targets,
                mems=memory,
                document_start=starts,
                dropout_key=DropoutKey(seed, inputs.rows),
                training=True,
            )  # [B, T]
            nats = tf.reduce_sum(nll) / num_real
            share = 1.0 / (self._num_parts * self._num_replicas)
            auxiliary = tf.add_n([tf.zeros([]), *model.losses]) * share
            loss = nats + auxiliary
            if self._loss_scale is not None:
                loss *= self._loss_scale.factor
        gradients = tape.gradient(
            loss,
            model.trainable_variables,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        routing = model.routing()
        use = share * (tf.fill([2], -1.0) if routing is None else routing)
        # The gradient of a table may come as rows that repeat: its norm is that of their sums.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return [nats, auxiliary, use, gradients], memory


class _Inputs(NamedTuple):
    """What a replica, or a part of it, reads; row by row."""

    ids: Any  # [B, T]
    targets: Any  # [B, T]
    document_start: Any  # [B, T]
    rows: Any  # [B] global row numbers


def _in_parts(function, num_parts, inputs, memory, zeros):
    """Calls `function` on one part of the rows after the other.

    function(inputs, memory) returns (sums, memory): sums add up over the parts, starting from
    `zeros`; the parts' memories are joined again. One loop, so that neither the compile time nor
    the memory needed grows with the number of parts.
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
