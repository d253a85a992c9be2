"""Starts txl_tf.cli.export_saved_model."""

from txl_tf.cli import export_saved_model

if __name__ == "__main__":
    export_saved_model.run()
