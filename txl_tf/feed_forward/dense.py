"""The Transformer's position-wise feed-forward net."""

import functools

import keras
import tensorflow as tf

from txl_tf.configs import layer_specs
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.linear import matmul

_ACTIVATIONS = {"relu": tf.nn.relu, "gelu": tf.nn.gelu}


@keras.saving.register_keras_serializable(package="txl_tf")
class DenseFeedForward(keras.layers.Layer):
    """Two biased projections with an activation between; dropout after the activation.

    Shapes: [B, T, D] -> [B, T, D], hidden width F. The caller drops the result.

    Args:
      spec: a `configs.layer_specs.DenseNet`.
      d_model: D.
      d_inner: F.
      dropout: rate after the activation.
      site: its dropout site; see `ops.dropout`.
      init_std: standard deviation of the kernels' initializer.
    """

    ROUTES = False

    def __init__(self, spec, *, d_model, d_inner, dropout=0.0, site=0, init_std=0.02, **kwargs):
        super().__init__(**kwargs)
        self.spec = spec
        self.d_model = d_model
        self.d_inner = d_inner
        self.dropout = dropout
        self.site = site
        self.init_std = init_std

    def build(self, input_shape):
        self.inner_kernel = self._kernel("inner_kernel", (self.d_model, self.d_inner))
        self.inner_bias = self.add_weight((self.d_inner,), "zeros", name="inner_bias")
        self.outer_kernel = self._kernel("outer_kernel", (self.d_inner, self.d_model))
        self.outer_bias = self.add_weight((self.d_model,), "zeros", name="outer_bias")

    def _kernel(self, name, shape):
        # One initializer a weight: a Keras initializer draws the same values at every call.
        return self.add_weight(
            shape, keras.initializers.RandomNormal(stddev=self.init_std), name=name
        )

    def call(self, x, *, dropout_key=None):
        hidden = matmul(x, self.inner_kernel, self.inner_bias)  # [B, T, F]
        return matmul(self._activate(hidden, dropout_key), self.outer_kernel, self.outer_bias)

    def _activate(self, x, dropout_key):
        drop = functools.partial(
            dropouts.dropout, rate=self.dropout, key=dropout_key, site=self.site
        )
        if self.spec.activation == "relu":  # commutes with dropout, and the gradient keeps less
            return tf.nn.relu(drop(x))
        return drop(_ACTIVATIONS[self.spec.activation](x))

    def get_config(self):
        own = ("d_model", "d_inner", "dropout", "site", "init_std")
        fields = {name: getattr(self, name) for name in own}
        return super().get_config() | fields | {"spec": str(self.spec)}

    @classmethod
    def from_config(cls, config):
        spec = layer_specs.parse(layer_specs.FEED_FORWARD, config["spec"])
        return cls(**{**config, "spec": spec})
