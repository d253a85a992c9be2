"""Kinds of positions, as named by `position` of a config: relative, or absolute."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.layers.multi_head_attention import (
    Attention,
    LearnedRelativeAttention,
    RelativeAttention,
)


@keras.saving.register_keras_serializable(package="txl_tf")
class PositionTable(keras.layers.Layer):
    """Learned position embeddings, indexed by the distance to the end of the segment.

    The last row is distance 0; the first is all distances from `num_positions` - 1 on.

    Shapes: positions [B or 1, T] float32, 0 for the newest token -> [B or 1, T, D].
    """

    def __init__(self, num_positions, d_model, init_std=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_positions = num_positions
        self.d_model = d_model
        self.init_std = init_std

    def build(self, input_shape=None):
        normal = keras.initializers.RandomNormal(stddev=self.init_std)
        shape = (self.num_positions, self.d_model)
        self.table = self.add_weight(shape, normal, name="table", autocast=False)

    def call(self, positions):
        last = self.num_positions - 1
        rows = last - tf.minimum(tf.cast(positions, tf.int32), last)
        return tf.cast(tf.gather(tf.convert_to_tensor(self.table), rows), self.compute_dtype)

    def get_config(self):
        own = ("num_positions", "d_model", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in own}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """A kind of positions.

    Attributes:
      attention: the attention layer, with or without position scores.
      biases: whether scores have the biases u and v, which layers may share.
      of_sinusoids: whether attention's encodings are projected sinusoids; else they are looked up.
      at_embedding: whether sinusoids are added to the embedding.
      at_layers: whether learned position embeddings are added to the input of each layer.
    """

    attention: type[Attention]
    biases: bool = False
    of_sinusoids: bool = False
    at_embedding: bool = False
    at_layers: bool = False


POSITIONS = {
    "xl": Position(attention=RelativeAttention, biases=True, of_sinusoids=True),
    "shaw": Position(attention=LearnedRelativeAttention),
    "absolute": Position(attention=Attention, at_embedding=True),
    "absolute_per_layer": Position(attention=Attention, at_layers=True),
}
