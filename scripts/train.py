"""Starts txl_tf.cli.train."""

from txl_tf.cli import train

if __name__ == "__main__":
    train.run()
