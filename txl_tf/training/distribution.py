"""Distribution of rows over replicas: row r is the same text on whichever device it is.

4 rows, 2 workers of 1 replica    worker 0: rows 0 1    worker 1: rows 2 3
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from txl_tf.data import layouts
from txl_tf.training import cluster


class Distribution:
    """A strategy and its rows: replicas have equal shares, in order.

    A tensor of one row per text is, with several replicas, a distributed value of TensorFlow, the
    argument of `strategy.run`. With one replica it stays a tensor.

    Args:
      strategy: a `tf.distribute` strategy.
      num_workers: number of processes.
      worker: index of this process.

    Attributes:
      strategy, num_workers: as given.
      num_replicas: number of replicas of all workers.
      is_chief: whether this worker writes files and logs.
      jit_whole, jit_parts: what XLA may compile: the whole step, on one device; a replica's part
        between all-reduces, on several. A TPU always compiles; XLA on a CPU does not support a
        second logical device.
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
        """Returns whether to compile, for `train.jit`: None compiles on a GPU or a TPU."""
        is_fast = isinstance(self.strategy, tf.distribute.TPUStrategy)
        is_fast = is_fast or bool(tf.config.list_physical_devices("GPU"))
        return is_fast if wanted is None else wanted

    def _has(self, kind: str) -> bool:
        """Whether replicas are on devices of this kind."""
        return any(f"device:{kind}" in device for device in self.strategy.extended.worker_devices)

    def check_rows(self, batch_size: int, accumulate_steps: int) -> None:
        """Raises if rows do not divide equally among replicas and accumulation parts.

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
        """Returns the range of this worker's rows: first, and end (exclusive)."""
        return layouts.worker_rows(batch_size, self._worker, self.num_workers)

    def deal(self, tree: Any) -> Any:
        """Splits this worker's rows [rows, ...] among its replicas; scalars go to all."""
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
        """Splits the rows of all workers, as `gather` returns them, among all replicas."""
        if self.num_workers > 1:
            tree = tf.nest.map_structure(lambda x: x[slice(*self.rows(x.shape[0]))], tree)
        return self.deal(tree)

    def gather(self, tree: Any) -> Any:
        """Returns all rows in order, on every worker; all must call it. Inverse of `deal_all`."""
        if self.num_replicas == 1:
            return tree
        return self._gather(tree)

    @tf.function(autograph=False)
    def _gather(self, tree):  # one graph, or TensorFlow traces one for each shape at every call
        return tf.nest.map_structure(lambda x: self.strategy.gather(x, axis=0), tree)

    def any(self, flag: bool) -> bool:
        """Whether the flag is true on some worker; all workers must call it."""
        if self.num_workers == 1:
            return flag
        flags = self.strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant(float(flag))
        )
        return float(self.strategy.reduce("SUM", flags, axis=None)) > 0


def make_distribution(name: str, tpu: str | None = None) -> Distribution:
    """Returns the distribution of this name; with several workers, call it before any other op.

    Args:
      name: in `STRATEGIES`; "auto" takes a TPU if `tpu` is given, else the workers of TF_CONFIG,
        else all GPUs of this machine, else the one device.
      tpu: "local", a name, or an address "grpc://..."; only for "tpu" and "auto".

    Raises:
      ValueError: the name is unknown, or its devices or settings are missing.
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
    """Returns TensorFlow's default: the first GPU, else the CPU."""
    del tpu
    return Distribution(tf.distribute.get_strategy())


def _mirrored(tpu: str | None) -> Distribution:
    """Returns all GPUs of this machine, or all logical CPUs if it has none."""
    del tpu
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return Distribution(tf.distribute.MirroredStrategy([device.name for device in devices]))


def _multi_worker(tpu: str | None) -> Distribution:
    """Returns all GPUs of several machines, else their CPUs; each machine needs its TF_CONFIG."""
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
    """Returns all cores of a TPU, driven from this process."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="" if tpu is None else tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return Distribution(tf.distribute.TPUStrategy(resolver))
    except (ValueError, tf.errors.OpError) as error:
        message = str(error).splitlines()[0]
        raise ValueError(f"tpu must be reachable, got {tpu!r}: {message}") from error


STRATEGIES: dict[str, Callable[[str | None], Distribution]] = {
    "auto": _auto,
    "one_device": _one_device,
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "tpu": _tpu,
}
