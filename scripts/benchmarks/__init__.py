"""The benchmark program: costs beside those of other libraries and the machine's limits."""

from txl_tf.cli import tf_startup_log

tf_startup_log.install()  # before a suite imports TensorFlow
