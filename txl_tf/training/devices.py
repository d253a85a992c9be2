"""The devices that a run computes on: one, or several that share each step's rows."""

from collections.abc import Callable

import tensorflow as tf
from absl import logging

from txl_tf.training import cluster
from txl_tf.training.distribution import Distribution


def make(name: str, tpu: str | None = None) -> Distribution:
    """The distribution of this name; before anything is computed, where there are several workers.

    Args:
      name: in `STRATEGIES`; "auto" takes a TPU if one is named, else the workers of TF_CONFIG, else
        all GPUs of this machine, else the one device there is.
      tpu: "local", a name, or an address "grpc://..."; for "tpu" and "auto" alone.

    Raises:
      ValueError: there is no such strategy, or not what it needs.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {name!r}")
    if tpu is not None and name not in ("auto", "tpu"):
        raise ValueError(f"tpu must be left out with strategy {name}, got {tpu!r}")
    made = STRATEGIES[name](tpu)
    logging.info("strategy=%s workers=%d replicas=%d", name, made.num_workers, made.num_replicas)
    return made


def _auto(tpu: str | None) -> Distribution:
    if tpu is not None:
        return _tpu(tpu)
    workers = cluster.from_environment()
    if workers is not None and len(workers.addresses) > 1:
        return _multi_worker(None)
    return _mirrored(None) if len(tf.config.list_physical_devices("GPU")) > 1 else _one_device(None)


def _one_device(tpu: str | None) -> Distribution:
    """TensorFlow's default: the first GPU, else the CPU."""
    del tpu
    return Distribution(tf.distribute.get_strategy())


def _mirrored(tpu: str | None) -> Distribution:
    """All GPUs of this machine, or where it has none all logical CPUs."""
    del tpu
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return Distribution(tf.distribute.MirroredStrategy([device.name for device in devices]))


def _multi_worker(tpu: str | None) -> Distribution:
    """All GPUs of several machines, or their CPUs, each machine with a TF_CONFIG of its own."""
    del tpu
    workers = cluster.from_environment()
    if workers is None:
        raise ValueError(
            "TF_CONFIG must name the workers for strategy multi_worker, as "
            f"{cluster.FORM}, got none"
        )
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    options = (
        None if has_gpu else tf.distribute.experimental.CommunicationOptions(implementation=ring)
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    return Distribution(strategy, num_workers=len(workers.addresses), worker=workers.index)


def _tpu(tpu: str | None) -> Distribution:
    """All cores of a TPU, driven from this process."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="" if tpu is None else tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return Distribution(tf.distribute.TPUStrategy(resolver))
    except (ValueError, tf.errors.OpError) as error:
        told = str(error).splitlines()[0]
        raise ValueError(f"tpu must be one that can be reached, got {tpu!r}: {told}") from error


STRATEGIES: dict[str, Callable[[str | None], Distribution]] = {
    "auto": _auto,
    "one_device": _one_device,
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "tpu": _tpu,
}
