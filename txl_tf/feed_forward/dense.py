"""The Transformer's position-wise feed-forward net."""

import functools

import keras
import tensorflow as tf

from txl_tf.feed_forward.base import FeedForward
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.linear import matmul

_ACTIVATIONS = {
    "relu": tf.nn.relu,
    "gelu": tf.nn.gelu,
    "gelu_tanh": functools.partial(tf.nn.gelu, approximate=True),
}


@keras.saving.register_keras_serializable(package="txl_tf")
class DenseFeedForward(FeedForward):
    """Two biased projections with an activation between; dropout after the activation.

    Shapes, arguments: those of `FeedForward`; `init_std` is that of the kernels.
    """

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
