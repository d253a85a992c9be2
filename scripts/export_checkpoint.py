"""Starts txl_tf.cli.export_checkpoint."""

from txl_tf.cli import export_checkpoint

if __name__ == "__main__":
    export_checkpoint.run()
