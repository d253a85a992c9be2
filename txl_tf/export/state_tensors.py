"""State of a model as flat named tensors, batch first, for export signatures."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.configs.choices import STATE_DTYPES
from txl_tf.models.memory import KeyValues, Memory

LENGTH = "mem_length"


class Wire(abc.ABC):
    """Base class: one tensor [B, L, ...] for each kind of layer state, and mem_length [B].

    Args:
      model: a TransformerXL.
      dtype: of the float tensors; float16 halves their size and rounds.
      batch_size: B if static, or None.

    Attributes:
      mem_len: M.
      specs: TensorSpec of each tensor by name, in order.
    """

    def __init__(self, model, dtype: str = "float32", batch_size: int | None = None):
        if dtype not in STATE_DTYPES:
            raise ValueError(f"state_dtype must be one of {', '.join(STATE_DTYPES)}, got {dtype!r}")
        self.mem_len = model.config.mem_len
        self._inside = model.compute_dtype
        self.specs: dict[str, tf.TensorSpec] = {
            name: tf.TensorSpec([batch_size, *shape], dtype, name)
            for name, shape in self._shapes(model.config).items()
        }
        self.specs[LENGTH] = tf.TensorSpec([batch_size], tf.int32, LENGTH)

    @staticmethod
    @abc.abstractmethod
    def _shapes(config) -> dict[str, list[int]]:
        """Returns the shape of one row of each tensor, by name."""

    @staticmethod
    @abc.abstractmethod
    def _layers(state) -> Sequence[Any]:
        """Returns the layer states in the order of `_shapes`, L tensors each."""

    @staticmethod
    @abc.abstractmethod
    def _state(layers: Sequence[Any], length) -> Any:
        """Returns the state of such layer states; inverse of `_layers`."""

    def pack(self, state) -> dict[str, Any]:
        """Returns the tensors of a state."""
        packed = {LENGTH: state.length}
        for name, layers in zip(self.specs, self._layers(state), strict=False):
            packed[name] = tf.cast(tf.stack(layers, axis=1), self.specs[name].dtype)
        return packed

    def unpack(self, tensors: Mapping[str, Any]) -> Any:
        """Returns the state of tensors; inverse of `pack`."""
        layers = [
            tuple(tf.unstack(tf.cast(tensors[name], self._inside), axis=1))
            for name in self.specs
            if name != LENGTH
        ]
        return self._state(layers, tensors[LENGTH])


class KeyValueWire(Wire):
    """Tensors of `KeyValues`: keys and values, [B, L, H, M, K] each."""

    @staticmethod
    def _shapes(config) -> dict[str, list[int]]:
        shape = [config.num_layers, config.num_heads, config.mem_len, config.head_dim]
        return {"keys": shape, "values": shape}

    @staticmethod
    def _layers(state) -> Sequence[Any]:
        return state.keys, state.values

    @staticmethod
    def _state(layers: Sequence[Any], length) -> KeyValues:
        keys, values = layers
        return KeyValues(keys, values, length)


class HiddenWire(Wire):
    """Tensors of `Memory`: mems, [B, L, M, D]."""

    @staticmethod
    def _shapes(config) -> dict[str, list[int]]:
        return {"mems": [config.num_layers, config.mem_len, config.d_model]}

    @staticmethod
    def _layers(state) -> Sequence[Any]:
        return (state.states,)

    @staticmethod
    def _state(layers: Sequence[Any], length) -> Memory:
        (states,) = layers
        return Memory(states, length)


def function(call, **specs: tf.TensorSpec):
    """Returns the concrete function of `call` for these tensor specs, passed by name."""
    return tf.function(lambda **tensors: call(**tensors), autograph=False).get_concrete_function(
        **specs
    )


WIRES: dict[str, type[Wire]] = {"kv": KeyValueWire, "hidden": HiddenWire}
