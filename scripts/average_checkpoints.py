"""Starts txl_tf.cli.average_checkpoints."""

from txl_tf.cli import average_checkpoints

if __name__ == "__main__":
    average_checkpoints.run()
