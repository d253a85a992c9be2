"""Starts txl_tf.cli.generate."""

from txl_tf.cli import generate

if __name__ == "__main__":
    generate.run()
