"""Starts txl_tf.cli.import_checkpoint."""

from txl_tf.cli import import_checkpoint

if __name__ == "__main__":
    import_checkpoint.run()
