"""Feed-forward nets, [B, T, D] -> [B, T, D].

If `ROUTES` is true, `routing` [3] holds the auxiliary loss, dropped fraction and expert entropy of
the last call.
"""

from txl_tf.configs.layer_specs import LayerSpec
from txl_tf.feed_forward.base import FeedForward
from txl_tf.feed_forward.dense import DenseFeedForward
from txl_tf.feed_forward.switch import SwitchFeedForward

FEED_FORWARD = {"dense": DenseFeedForward, "switch": SwitchFeedForward}


def make_feed_forward(spec: LayerSpec, **kwargs) -> FeedForward:
    """Returns the net of a spec; `kwargs` are sizes and rates, which all nets take."""
    return FEED_FORWARD[spec.name](spec, **kwargs)
