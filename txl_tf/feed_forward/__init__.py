"""Feed-forward nets: [B, T, D] in and out.

Where `ROUTES` is true, `routing` is what the last call tells: [3], its auxiliary loss first.
"""

from txl_tf.feed_forward.dense import DenseFeedForward
from txl_tf.feed_forward.switch import SwitchFeedForward

FEED_FORWARD = {"dense": DenseFeedForward, "switch": SwitchFeedForward}
