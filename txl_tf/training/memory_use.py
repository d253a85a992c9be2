"""The memory that this process takes now."""

import os
import resource

import tensorflow as tf


def memory_use() -> dict[str, int]:
    """`memory_bytes` resident in RAM; where there are GPUs, the most of all they had to hold."""
    found = {"memory_bytes": _resident()}
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        peaks = (tf.config.experimental.get_memory_info(gpu.name)["peak"] for gpu in gpus)
        found["gpu_memory_bytes"] = sum(peaks)
    return found


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux: the most it ever took
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
