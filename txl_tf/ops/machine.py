"""Memory limit of the machine, and the check that a job fits into it."""

import functools
import os
from collections.abc import Mapping

import tensorflow as tf

# TensorFlow cannot query an accelerator's memory without allocating it; hosts have at least a
# quarter of it.
_WITH_ACCELERATORS = 4
_CONTROL_GROUPS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def check_memory(parts: Mapping[str, int], numbers: Mapping[str, object]) -> None:
    """Raises if a job needs more memory than the machine has.

    Args:
      parts: lower bounds in bytes, by purpose.
      numbers: the settings that determine them.

    Raises:
      ValueError: names the bytes needed, those of the machine, and the settings.
    """
    limit, needed = memory_limit(), sum(parts.values())
    if limit is None or needed <= limit:
        return
    large = sorted((name for name in parts if parts[name] * 100 >= needed), key=lambda n: -parts[n])
    listed = ", ".join(f"{_format(parts[name])} of {name}" for name in large)
    lower = ", ".join(f"{name} {value}" for name, value in numbers.items())
    raise ValueError(
        f"memory must be at least {_format(needed)} ({listed}), got {_format(limit)} on this "
        f"machine; lower one of {lower}"
    )


@functools.cache
def memory_limit() -> int | None:
    """Returns the bytes of memory this process may use, without swap; None if unknown."""
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):  # not on this system
        return None
    for path in _CONTROL_GROUPS:
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    devices = {device.device_type for device in tf.config.list_physical_devices()}
    return min(limits) * (_WITH_ACCELERATORS if devices & {"GPU", "TPU"} else 1)


def _format(size: int) -> str:
    """Formats bytes for people: "25.2 GB"."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    power = min((len(str(size)) - 1) // 3, len(units) - 1)
    return f"{min(size, 10**300) / 1000**power:.4g} {units[power]}"
