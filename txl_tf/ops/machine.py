"""The memory of the machine, and the refusal of work that cannot fit into it."""

import functools
import os
from collections.abc import Mapping

import tensorflow as tf

# Memory of accelerators cannot be asked for without taking it; no host has less than a quarter.
_WITH_ACCELERATORS = 4
_CONTROL_GROUPS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def check_memory(parts: Mapping[str, int], numbers: Mapping[str, object]) -> None:
    """Refuses work before it takes more memory than the machine has.

    Args:
      parts: the bytes that it takes at least, by what they are for.
      numbers: the settings that they follow from.

    Raises:
      ValueError: names the bytes, the machine's and the settings.
    """
    limit, needed = memory_limit(), sum(parts.values())
    if limit is None or needed <= limit:
        return
    large = sorted((name for name in parts if parts[name] * 100 >= needed), key=lambda n: -parts[n])
    told = ", ".join(f"{_told(parts[name])} of {name}" for name in large)
    lower = ", ".join(f"{name} {value}" for name, value in numbers.items())
    raise ValueError(
        f"memory must be at least {_told(needed)} ({told}), got {_told(limit)} on this machine; "
        f"lower one of {lower}"
    )


@functools.cache
def memory_limit() -> int | None:
    """Bytes that this process can have at most, swap aside; None where nothing tells them."""
    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):  # not of this system
        return None
    for path in _CONTROL_GROUPS:
        try:
            with open(path) as file:
                found.append(int(file.read()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    devices = {device.device_type for device in tf.config.list_physical_devices()}
    return min(found) * (_WITH_ACCELERATORS if devices & {"GPU", "TPU"} else 1)


def _told(size: int) -> str:
    """Bytes for people: "25.2 GB"."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    power = min((len(str(size)) - 1) // 3, len(units) - 1)
    return f"{min(size, 10**300) / 1000**power:.4g} {units[power]}"
