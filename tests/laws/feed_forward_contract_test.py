"""Laws for every row of FEED_FORWARD, and the dense net against NumPy in float64."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
import spec_layers
from txl_tf.feed_forward import FEED_FORWARD
from txl_tf.ops.dropout import DropoutKey

SPECS = {"dense": "dense", "switch": "switch(experts=3)"}


def make(spec, **kwargs):
    net = spec_layers.net(spec, d_model=4, d_inner=6, init_std=0.5, **kwargs)
    net.build((None, None, 4))
    for weight in net.trainable_variables:
        weight.assign(np.random.default_rng(weight.shape[0]).normal(size=weight.shape))
    return net


X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
# Sums over D, over the experts' chances and over F, of products of three numbers of about 1.
ATOL = rounding.tolerance(4 + 3 + 6, scale=4.0)


class FeedForwardContractTest(parameterized.TestCase):
    def test_every_net_is_covered(self):
        self.assertEqual(SPECS.keys(), FEED_FORWARD.keys())

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_tokens_are_independent(self, spec):
        net, changed = make(spec), X.copy()
        changed[:, 1] += 1.0
        before, after = np.array(net(X)), np.array(net(changed))
        np.testing.assert_allclose(after[:, [0, 2]], before[:, [0, 2]], rtol=0, atol=ATOL)
        self.assertGreater(np.abs(after[:, 1] - before[:, 1]).max(), 1e-3)

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_compiled_equals_eager(self, spec):
        net = make(spec)
        found = tf.function(net, jit_compile=True)(X)
        np.testing.assert_allclose(found, net(X), rtol=0, atol=ATOL)

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_comes_back_from_its_config(self, spec):
        net = make(spec, dropout=0.25, site=3)
        again = type(net).from_config(net.get_config())
        self.assertEqual(again.get_config(), net.get_config())


class DenseFeedForwardTest(parameterized.TestCase):
    @parameterized.parameters("relu", "gelu", "gelu_tanh")
    def test_equals_numpy(self, activation):
        net = make(f"dense(activation='{activation}')")
        inner, inner_bias, outer, outer_bias = (
            np.array(tf.convert_to_tensor(w), "float64") for w in net.trainable_variables
        )
        hidden = X.astype("float64") @ inner + inner_bias
        erf = np.vectorize(math.erf)
        cubic = (2 / math.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)
        hidden = {
            "relu": np.maximum(hidden, 0),
            "gelu": 0.5 * hidden * (1 + erf(hidden / 2**0.5)),
            "gelu_tanh": 0.5 * hidden * (1 + np.tanh(cubic)),
        }[activation]
        np.testing.assert_allclose(net(X), hidden @ outer + outer_bias, rtol=0, atol=ATOL)

    def test_an_unknown_activation_lists_the_choices(self):
        with self.assertRaisesRegex(
            ValueError, "activation must be one of relu, gelu, gelu_tanh, got 'elu'"
        ):
            make("dense(activation='elu')")

    def test_dropout_falls_on_the_hidden_layer(self):
        net = make("dense", dropout=0.5)
        net.outer_kernel.assign(np.eye(6, 4))
        net.outer_bias.assign(np.zeros(4))
        key = DropoutKey(tf.constant([1, 2]), tf.constant([0, 1]))
        plain, dropped = np.array(net(X)), np.array(net(X, dropout_key=key))
        kept = dropped != 0
        np.testing.assert_allclose(dropped[kept], 2 * plain[kept], rtol=0, atol=2 * ATOL)
        self.assertTrue(((plain != 0) & ~kept).any())


if __name__ == "__main__":
    absltest.main()
