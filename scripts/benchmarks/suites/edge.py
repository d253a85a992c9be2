"""The edge suite: cost of a step in LiteRT, and of the SavedModel in TensorFlow."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import timing
from benchmarks.options import Options
from txl_tf.configs.run import Config
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.export.edge import native_output, runtime
from txl_tf.export.edge.tflite import export_tflite
from txl_tf.export.serving.saved_model import export_saved_model
from txl_tf.models.transformer_xl import TransformerXL

_QUANTIZATIONS = ("none", "dynamic")
_SEGMENTS = (1, 16)  # ids per call: as in generation and in scoring
_TOLERANCE = {"none": 1e-4, "dynamic": 0.5}  # of scores, whose standard deviation is about 1


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each runtime and segment length: batch size 1, full memory, random weights.

    Raises:
      ValueError: the scores of two runtimes differ, so their times are not comparable.
    """
    model = TransformerXL(config.model)
    tokenizer = ByteTokenizer()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        with native_output.suppress_native_output():
            export_saved_model(model, tokenizer, config, os.path.join(folder, "model"))
        served = tf.saved_model.load(os.path.join(folder, "model", "1")).signatures["step"]
        for size in _SEGMENTS:
            ids = np.arange(size, dtype=np.int32)[np.newaxis] % config.model.vocab_size
            calls = {"SavedModel": _saved_model_call(served, ids)}
            for quantize in _QUANTIZATIONS:
                path = os.path.join(folder, f"{quantize}-{size}.tflite")
                with native_output.suppress_native_output():
                    export_tflite(
                        model, tokenizer, config, path, segment_len=size, quantize=quantize
                    )
                    converted = runtime.EdgeModel(path)
                name = f"LiteRT {quantize}"
                calls[name] = _litert_call(converted, ids)
                _check(_saved_model_call(served, ids), calls[name], name, _TOLERANCE[quantize])
            rows += _rows(timing.race(calls, options.repeats), size)
    return rows


def _saved_model_call(step, ids) -> Callable[[], np.ndarray]:
    """Returns a function that reads `ids`, feeds the state back and returns the scores."""
    specs = step.structured_input_signature[1]
    state = {
        name: tf.zeros([1, *spec.shape[1:]], spec.dtype)
        for name, spec in specs.items()
        if name not in ("input_ids", "lengths")
    }
    inputs = dict(input_ids=tf.constant(ids), lengths=tf.constant([ids.shape[1]]))

    def call() -> np.ndarray:
        outputs = step(**inputs, **state)
        scores = outputs.pop("scores").numpy()
        state.update(outputs)
        return scores

    return call


def _litert_call(converted: runtime.EdgeModel, ids) -> Callable[[], np.ndarray]:
    state = dict(converted.initial(1))

    def call() -> np.ndarray:
        scores, after = converted.step(ids, state)
        state.update(after)
        return scores

    return call


def _check(
    expected: Callable[[], np.ndarray], found: Callable[[], np.ndarray], name: str, tolerance: float
) -> None:
    """Raises if the scores of two runtimes differ in the first segments."""
    for _ in range(3):
        largest = float(np.abs(expected() - found()).max())
        if not largest <= tolerance:
            raise ValueError(
                f"scores of {name} must be within {tolerance} of the SavedModel's, "
                f"got a difference of {largest:.2g}"
            )


def _rows(times: dict[str, timing.Timing], size: int) -> list[dict[str, Any]]:
    baseline = times["SavedModel"].median
    return [
        {
            "runtime": name,
            "segment_len": size,
            "ms_per_token": 1e3 * found.median / size,
            "fastest": 1e3 * found.fastest / size,
            "slowest": 1e3 * found.slowest / size,
            "times_faster": baseline / found.median,
        }
        for name, found in times.items()
    ]
