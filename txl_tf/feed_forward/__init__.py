"""Feed-forward nets: [B, T, D] in and out.

Where `ROUTES` is true, `routing` [3] is of the last call: auxiliary loss, dropped fraction, expert
entropy.
"""

import keras

from txl_tf.configs.layer_specs import LayerSpec
from txl_tf.feed_forward.dense import DenseFeedForward
from txl_tf.feed_forward.switch import SwitchFeedForward

FEED_FORWARD = {"dense": DenseFeedForward, "switch": SwitchFeedForward}


def make_feed_forward(spec: LayerSpec, **kwargs) -> keras.layers.Layer:
    """Returns the net of a spec; `kwargs` are the sizes and rates that all nets take."""
    return FEED_FORWARD[spec.name](spec, **kwargs)
