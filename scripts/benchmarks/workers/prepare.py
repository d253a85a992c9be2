"""Prepares text, without TensorFlow, as often as it is asked: the data suite's other process.

    {"text_path": PATH, "output_dir": DIR, "options": {"tokenizer": "byte"}, "num_workers": 1}

is answered by {"seconds": 0.5, "peak": 1234567}: of the preparation, and bytes of this process and
its workers. The options are those of a Recipe. See json_worker.py.
"""

import resource
import time
from typing import Any

from benchmarks.workers import json_worker
from txl_tf.data import prepare, recipe, text


def _answer(
    text_path: str, output_dir: str, options: dict[str, Any], num_workers: int
) -> dict[str, Any]:
    splits = {"train": [text.Source.from_path(text_path)]}
    made = recipe.Recipe(**options)
    start = time.perf_counter()
    prepare.prepare(splits, output_dir, made, num_workers=num_workers, overwrite=True)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak": json_worker.peak() + _peak_of_workers(num_workers)}


def _peak_of_workers(num_workers: int) -> int:
    """Bytes of all, as if each had as many as the largest of them."""
    return num_workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


if __name__ == "__main__":
    json_worker.serve(_answer)
