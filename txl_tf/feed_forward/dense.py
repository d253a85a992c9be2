"""The position-wise net of the Transformer."""

import functools

import keras
import tensorflow as tf

from txl_tf.ops import dropout as dropouts
from txl_tf.ops.linear import product

_ACTIVATIONS = {"relu": tf.nn.relu, "gelu": tf.nn.gelu}


@keras.saving.register_keras_serializable(package="txl_tf")
class DenseFeedForward(keras.layers.Layer):
    """Two biased projections with an activation between; dropout after the activation.

    Shapes: [B, T, D] -> [B, T, D], hidden width F. The caller drops the result.

    Args:
      d_model: D.
      d_inner: F.
      activation: "relu" (the paper's) or "gelu".
      dropout: rate after the activation.
      site: the number of that place; see `ops.dropout`.
      init_std: deviation of the kernels' initialiser.
    """

    OPTIONS = ("activation",)
    ROUTES = False

    def __init__(
        self, *, d_model, d_inner, activation="relu", dropout=0.0, site=0, init_std=0.02, **kwargs
    ):
        super().__init__(**kwargs)
        if activation not in _ACTIVATIONS:
            choices = ", ".join(_ACTIVATIONS)
            raise ValueError(f"activation must be one of {choices}, got {activation!r}")
        self.d_model = d_model
        self.d_inner = d_inner
        self.activation = activation
        self.dropout = dropout
        self.site = site
        self.init_std = init_std

    def build(self, input_shape):
        self.inner_kernel = self._kernel("inner_kernel", (self.d_model, self.d_inner))
        self.inner_bias = self.add_weight((self.d_inner,), "zeros", name="inner_bias")
        self.outer_kernel = self._kernel("outer_kernel", (self.d_inner, self.d_model))
        self.outer_bias = self.add_weight((self.d_model,), "zeros", name="outer_bias")

    def _kernel(self, name, shape):
        # One initialiser a weight: a Keras initialiser draws the same values at every call.
        return self.add_weight(
            shape, keras.initializers.RandomNormal(stddev=self.init_std), name=name
        )

    def call(self, x, *, dropout_key=None):
        hidden = product(x, self.inner_kernel, self.inner_bias)  # [B, T, F]
        return product(self._activate(hidden, dropout_key), self.outer_kernel, self.outer_bias)

    def _activate(self, x, dropout_key):
        drop = functools.partial(
            dropouts.dropout, rate=self.dropout, key=dropout_key, site=self.site
        )
        if self.activation == "relu":  # the order is the same to it; the gradient keeps less
            return tf.nn.relu(drop(x))
        return drop(_ACTIVATIONS[self.activation](x))

    def get_config(self):
        own = ("d_model", "d_inner", "activation", "dropout", "site", "init_std")
        return super().get_config() | {name: getattr(self, name) for name in own}
