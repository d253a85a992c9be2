"""A learned vector for each place of a segment."""

import keras
import tensorflow as tf


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
