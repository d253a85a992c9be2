"""Starts txl_tf.cli.export_tflite."""

from txl_tf.cli import export_tflite

if __name__ == "__main__":
    export_tflite.run()
