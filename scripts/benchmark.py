"""Starts benchmarks.run."""

from txl_tf.cli import tf_startup_log

if __name__ == "__main__":
    tf_startup_log.install()  # before a suite imports TensorFlow
    from benchmarks import run

    run.run()
