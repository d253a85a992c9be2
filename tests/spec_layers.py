"""Layers made from the text of a spec."""

from txl_tf.attention import make_core
from txl_tf.configs import layer_specs
from txl_tf.feed_forward import make_feed_forward


def core(text, **kwargs):
    """Returns an attention core."""
    return make_core(layer_specs.parse(layer_specs.ATTENTION, text), **kwargs)


def net(text, **kwargs):
    """Returns a feed-forward net."""
    return make_feed_forward(layer_specs.parse(layer_specs.FEED_FORWARD, text), **kwargs)
