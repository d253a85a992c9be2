"""What a graph is built for: TensorFlow places it where a GPU or TPU is, if one is there."""

import tensorflow as tf


def is_cpu():
    """Whether this process has CPUs alone."""
    return all(x.device_type == "CPU" for x in tf.config.list_logical_devices())
