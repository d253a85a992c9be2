"""The command-line programs, one module each, and their shared modules.

A program loads TensorFlow in `main`, after its flags are checked, and not for --help.
"""

from txl_tf.cli import exits, streams

exits.handle_interrupts()  # first, as the imports of a program take a while
streams.open_closed()  # before absl.logging takes hold of stderr
