"""Starts txl_tf.cli.evaluate."""

from txl_tf.cli import evaluate

if __name__ == "__main__":
    evaluate.run()
