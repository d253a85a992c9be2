"""How rows are dealt to replicas and gathered again: row r is the same text wherever it lies.

4 rows, 2 workers of 1 replica    worker 0: rows 0 1    worker 1: rows 2 3
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from txl_tf.data import layouts
from txl_tf.training import cluster


class Distribution:
    """A strategy, and which rows its replicas have: equal shares, in the order of replicas.

    A value of one row per text is, for several replicas, TensorFlow's distributed value: its parts
    lie on the replicas and are what `strategy.run` hands them. With one replica it is a tensor.

    Args:
      strategy: of TensorFlow.
      num_workers: processes that take part.
      worker: which of them this is.

    Attributes:
      strategy, num_workers: as given.
      num_replicas: of all workers.
      is_chief: whether this worker writes and tells.
      jit_whole, jit_parts: what XLA may compile of a step: all of it, on one device; what a replica
        does between exchanges, on several. A TPU compiles by itself; XLA on a CPU knows no second
        logical device.
    """

    def __init__(self, strategy: tf.distribute.Strategy, num_workers: int = 1, worker: int = 0):
        self.strategy = strategy
        self.num_workers = num_workers
        self.num_replicas = strategy.num_replicas_in_sync
        self.is_chief = worker == 0
        self._worker = worker
        self._local = self.num_replicas // num_workers
        self.jit_whole = self.num_replicas == 1
        self.jit_parts = not self.jit_whole and (self._local == 1 or self._has("GPU"))

    def jit(self, wanted: bool | None) -> bool:
        """What `train.jit` means here: None is whether there is a GPU or a TPU."""
        is_fast = isinstance(self.strategy, tf.distribute.TPUStrategy)
        is_fast = is_fast or bool(tf.config.list_physical_devices("GPU"))
        return is_fast if wanted is None else wanted

    def _has(self, kind: str) -> bool:
        """Whether replicas lie on devices of this kind."""
        return any(f"device:{kind}" in device for device in self.strategy.extended.worker_devices)

    def check_rows(self, batch_size: int, accumulate_steps: int) -> None:
        """Refuses rows that replicas, and the parts that each accumulates, cannot share equally.

        Raises:
          ValueError: names both numbers.
        """
        shares = self.num_replicas * accumulate_steps
        if batch_size % shares:
            raise ValueError(
                f"batch_size must be a multiple of {self.num_replicas} replicas x "
                f"{accumulate_steps} accumulate_steps, got {batch_size}"
            )

    def rows(self, batch_size: int) -> tuple[int, int]:
        """The rows of this worker: the first, and the first after them."""
        return layouts.worker_rows(batch_size, self._worker, self.num_workers)

    def deal(self, tree: Any) -> Any:
        """This worker's rows, [rows, ...] each, to its replicas; a scalar goes to all of them."""
        if self.num_replicas == 1:
            return tree
        first = self._worker * self._local

        def deal_one(x):
            def part(context):
                if not len(x.shape):
                    return x
                share = x.shape[0] // self._local
                start = (context.replica_id_in_sync_group - first) * share
                return x[start : start + share]

            return self.strategy.experimental_distribute_values_from_function(part)

        return tf.nest.map_structure(deal_one, tree)

    def deal_all(self, tree: Any) -> Any:
        """The rows of all workers, as `gather` gives them, to the replicas."""
        if self.num_workers > 1:
            tree = tf.nest.map_structure(lambda x: x[slice(*self.rows(x.shape[0]))], tree)
        return self.deal(tree)

    def gather(self, tree: Any) -> Any:
        """All rows in order, on every worker; all workers must ask. Inverse of `deal_all`."""
        if self.num_replicas == 1:
            return tree
        return self._gather(tree)

    @tf.function(autograph=False)
    def _gather(self, tree):  # one graph, or TensorFlow traces one for each shape at every call
        return tf.nest.map_structure(lambda x: self.strategy.gather(x, axis=0), tree)

    def any(self, flag: bool) -> bool:
        """Whether it is true on some worker; all workers must ask."""
        if self.num_workers == 1:
            return flag
        told = self.strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant(float(flag))
        )
        return float(self.strategy.reduce("SUM", told, axis=None)) > 0


def make_distribution(name: str, tpu: str | None = None) -> Distribution:
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
