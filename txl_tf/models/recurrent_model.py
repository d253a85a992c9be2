"""Base class of models with a memory carried from segment to segment."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from txl_tf.models import memory, scoring_model
from txl_tf.models.configured_model import ConfiguredModel
from txl_tf.ops.shapes import shape_of

_UNCHANGED: Any = object()


class RecurrentModel(ConfiguredModel, scoring_model.ScoringModel):
    """Base class of models with a memory of layer inputs: it goes in and comes out of each call.

    Subclasses create the layers that `LAYERS` names in `make_layers`, `blocks` among them, and
    return scores and the new memory.

    Args:
      config: the architecture, of class `CONFIG`.
      rematerialize: whether training keeps only the input of each layer, and recomputes the rest
        for the gradient.
      weights_of: another model of the class whose layers this one shares; see `with_lengths`.
    """

    LAYERS: tuple[str, ...]

    def __init__(self, config, *, rematerialize=False, weights_of=None, **kwargs):
        if weights_of is not None:
            kwargs.setdefault("dtype", weights_of.dtype_policy)
        super().__init__(config, **kwargs)
        self.rematerialize = rematerialize
        self.seed_generator = keras.random.SeedGenerator()
        if weights_of is None:
            self.make_layers()
        else:
            for name in self.LAYERS:
                setattr(self, name, getattr(weights_of, name))
        self.build()

    def make_layers(self):
        """Creates the layers."""
        raise NotImplementedError

    def initial_mems(self, batch_size):
        """Returns the memory of a stream at its start.

        With `config.attend_to_initial_zeros` its zeros are valid and take attention mass.
        """
        config = self.config
        return memory.initial(
            batch_size,
            config.num_layers,
            config.mem_len,
            config.d_model,
            self.compute_dtype,
            config.attend_to_initial_zeros,
        )

    def reset(self, mems, rows):
        """Returns `mems` with the rows where `rows` ([B] bool) is true reset to `initial_mems`."""
        rows = tf.convert_to_tensor(rows, tf.bool)
        mems = memory.as_memory(mems)
        return memory.reset(mems, rows, self.initial_mems(shape_of(mems.length)[0]))

    def with_lengths(self, mem_len=_UNCHANGED, clamp_len=_UNCHANGED, attention_span=_UNCHANGED):
        """Returns a model with the same weights and other lengths, for evaluation.

        Lengths not given stay. A memory does not fit a model of another `mem_len`.
        """
        given = dict(mem_len=mem_len, clamp_len=clamp_len, attention_span=attention_span)
        changes = {name: value for name, value in given.items() if value is not _UNCHANGED}
        return type(self)(dataclasses.replace(self.config, **changes), weights_of=self)

    def checked_mems(self, mems, batch):
        """Returns `mems` as a `Memory`.

        Raises:
          ValueError: its sizes are not those of the model and the batch.
        """
        config, mems = self.config, memory.as_memory(mems)
        if len(mems.states) != config.num_layers:
            raise ValueError(
                f"mems must hold a state for each of {config.num_layers} layers, "
                f"got {len(mems.states)}"
            )
        for part in (*mems.states, mems.length):
            known = isinstance(batch, int) and part.shape[0] is not None
            if known and part.shape[0] != batch:
                raise ValueError(
                    f"mems must have the batch size of token_ids, {batch}, got {part.shape[0]}; "
                    "start from initial_mems"
                )
        for state in mems.states:
            if state.shape[1] != config.mem_len or state.shape[2] != config.d_model:
                raise ValueError(
                    f"mems must have mem_len {config.mem_len} and width {config.d_model}, got "
                    f"mem_len {state.shape[1]} and width {state.shape[2]}; start from initial_mems"
                )
        return mems

    def recalled(self, mems, batch):
        """Returns the memory that a call starts from, and what its layers read of it.

        Shapes: mems as in a call, or None -> a `Memory`; its L states [B, M, D], without gradient;
        and the same again, [B, 0, D] where the memory is empty: its slots would be masked, and the
        blocks need not compute them.
        """
        is_empty = mems is None and not self.config.attend_to_initial_zeros
        mems = self.initial_mems(batch) if mems is None else self.checked_mems(mems, batch)
        past = [tf.stop_gradient(tf.cast(s, self.compute_dtype)) for s in mems.states]
        return mems, past, [s[:, :0] for s in past] if is_empty else past

    @property
    def routing_cores(self):
        """Attention cores that route tokens to clusters, first layer to last."""
        cores = [block.attention.attend for block in self.blocks]
        return [core for core in cores if core.ROUTES]

    def cluster_sums(self):
        """Returns the `cluster_sums` of the last call in training, of each of `routing_cores`.

        Shapes: [H, C, K + 1] float32 each, see `RoutingAttention`. Inside a graph, of this graph.
        """
        return [block.cluster_sums for block in self.blocks if block.attention.attend.ROUTES]

    def move_centroids(self, cluster_sums, good=True):
        """Updates the centroids of routing attention, once for an optimizer step.

        Args:
          cluster_sums: of all rows of the step, as `cluster_sums()`.
          good: boolean scalar, whether to update them.
        """
        for core, sums in zip(self.routing_cores, cluster_sums, strict=True):
            core.move_centroids(sums, good)

    def train_step(self, data):
        metrics = super().train_step(data)
        sums = self.cluster_sums()
        if sums:
            context = tf.distribute.get_replica_context()
            sums = context.all_reduce("SUM", sums)
            finite = [tf.reduce_all(tf.math.is_finite(x)) for x in sums]
            self.move_centroids(sums, tf.reduce_all(finite))
        return metrics

    def scores_in(self, outputs):
        scores, _ = outputs
        return scores
