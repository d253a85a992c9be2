"""Worker of the data suite that prepares text, without TensorFlow; see json_worker.py.

    {"text_path": PATH, "output_dir": DIR, "options": {"tokenizer": "byte"}, "num_workers": 1}
    -> {"seconds": 0.5, "peak": 1234567}

`options` are arguments of Recipe; "peak" is in bytes, of this process and its workers.
"""

import resource
import time
from typing import Any

from benchmarks.workers import json_worker
from txl_tf.data import prepare, recipe, text


def _prepare(
    text_path: str, output_dir: str, options: dict[str, Any], num_workers: int
) -> dict[str, Any]:
    splits = {"train": [text.Source.from_path(text_path)]}
    configured = recipe.Recipe(**options)
    start = time.perf_counter()
    prepare.prepare(splits, output_dir, configured, num_workers=num_workers, overwrite=True)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak": json_worker.peak_bytes() + _peak_of_workers(num_workers)}


def _peak_of_workers(num_workers: int) -> int:
    """Returns an upper bound of the peak bytes of all workers: that of the largest, times all."""
    return num_workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


if __name__ == "__main__":
    json_worker.serve(_prepare)
