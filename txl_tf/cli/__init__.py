"""The programs, one module each, and what they share."""

from txl_tf.cli import entry_point as entry_point  # first: it quiets TensorFlow
