"""Feed-forward nets: [B, T, D] in and out."""

from txl_tf.feed_forward.dense import DenseFeedForward

FEED_FORWARD = {"dense": DenseFeedForward}
