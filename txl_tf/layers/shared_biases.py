"""The biases u and v where all layers share them."""

import keras


@keras.saving.register_keras_serializable(package="txl_tf")
class SharedBiases(keras.layers.Layer):
    """The pair u, v that all layers share when biases are tied: `content`, `position` [H, K]."""

    def __init__(self, num_heads, head_dim, init_std=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.init_std = init_std

    def build(self, input_shape=None):
        shape = (self.num_heads, self.head_dim)
        self.content = self._weight("content", shape)
        self.position = self._weight("position", shape)

    def _weight(self, name, shape):
        return self.add_weight(
            shape, keras.initializers.RandomNormal(stddev=self.init_std), name=name
        )

    def get_config(self):
        own = dict(num_heads=self.num_heads, head_dim=self.head_dim, init_std=self.init_std)
        return super().get_config() | own
