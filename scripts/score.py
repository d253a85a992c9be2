"""Starts txl_tf.cli.score."""

from txl_tf.cli import score

if __name__ == "__main__":
    score.run()
