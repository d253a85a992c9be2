"""Starts txl_tf.cli.prepare_data."""

from txl_tf.cli import prepare_data

if __name__ == "__main__":
    prepare_data.run()
