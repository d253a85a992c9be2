"""How positions get into a model, by kind: the `position` of its config."""

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
    """Looks up how far each token stands before the end of its segment.

    The last row is that of the newest token; the first serves all that stand too far away.

    Shapes: places [B or 1, T] float32, 0 for the newest -> [B or 1, T, D].
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

    def call(self, places):
        last = self.num_positions - 1
        rows = last - tf.minimum(tf.cast(places, tf.int32), last)
        return tf.cast(tf.gather(tf.convert_to_tensor(self.table), rows), self.compute_dtype)

    def get_config(self):
        own = ("num_positions", "d_model", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in own}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """A kind.

    Attributes:
      attention: the layer whose scores see the distances, or nothing of them.
      biases: whether scores have the biases u and v, which layers may share.
      of_sinusoids: whether attention's encodings are made of the distances' sinusoids; else of the
        distances themselves.
      at_embedding: whether sinusoids of the places are added to the embedding.
      at_layers: whether rows of learned tables are added to the input of each layer.
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
