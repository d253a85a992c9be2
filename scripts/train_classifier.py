"""Starts txl_tf.cli.train_classifier."""

from txl_tf.cli import train_classifier

if __name__ == "__main__":
    train_classifier.run()
