"""The programs, one module each, and what they share.

A program loads TensorFlow in `main`, where its flags are known to be right, and not for --help.
"""

from txl_tf.cli import streams

streams.open_closed()  # before absl.logging takes hold of stderr
