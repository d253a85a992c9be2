"""Starts txl_tf.cli.serving_client."""

from txl_tf.cli import serving_client

if __name__ == "__main__":
    serving_client.run()
