"""The libraries suite: parts of our own beside the libraries that could do their work.

    records     a TFRecord file of Examples of 4,096 ids: tokens/s, against TensorFlow's writer
    messages    a Predict request of [8, 512] ids and its response of [8, 512, 256] scores, encoded
                and decoded: requests/s, by tensorflow-serving-api
    lower_case  text in a graph: MB/s, by tf.strings.lower and TensorFlow Text's case_fold_utf8;
                `wrong` counts the code points that do not become what `str.lower` makes of them

start_s is the time to import what a process needs that does nothing else, and start_mb its peak
memory then. times_faster is relative to the library in the first row of a part.
"""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow_serving.apis import predict_pb2

from benchmarks import timing
from benchmarks.options import Options
from benchmarks.suites import data
from txl_tf.configs.run import Config
from txl_tf.data import files, tfrecord
from txl_tf.export.text_graph.lower_case import LowerCase
from txl_tf.serving_client import messages

_EXAMPLES, _TOKENS = 256, 4096  # of a file, and of each example
_ROWS, _SEGMENT, _WORDS = 8, 512, 256
_BYTES = 1 << 20  # of the text, in lines
_START = """
import time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
with open("/proc/self/status") as file:
    print(next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")))  # kB
"""


class _Part(NamedTuple):
    """A part: its contenders by name, the amount of one call, and the module each one imports."""

    contenders: Mapping[str, Callable[[], object]]
    unit: str
    amount: float
    modules: Mapping[str, str]
    wrong: Mapping[str, int]


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each way to do each part.

    Raises:
      ValueError: two ways give different results.
    """
    del config
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        parts = {"records": _records(folder), "messages": _messages(), "lower_case": _lower_case()}
        for name, part in parts.items():
            times = timing.race(part.contenders, options.repeats)
            first = next(iter(times.values()))
            for way, found in times.items():
                start, peak = _start(part.modules[way]) if way in part.modules else (None, None)
                rows.append(
                    {
                        "part": name,
                        "by": way,
                        "unit": part.unit,
                        "rate": part.amount / found.median,
                        "slowest": part.amount / found.slowest,
                        "fastest": part.amount / found.fastest,
                        "times_faster": first.median / found.median,
                        "start_s": start,
                        "start_mb": peak,
                        "wrong": part.wrong.get(way),
                    }
                )
    return rows


def _start(module: str) -> tuple[float, float]:
    """Returns the seconds of an import in a new process, the fastest of three, and its peak MB."""
    found = []
    for _ in range(3):
        code = _START.format(module=module)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        seconds, peak = map(float, done.stdout.split())
        found.append((seconds, peak / 1e3))
    return min(found)


def _records(folder: str) -> _Part:
    draw = np.random.default_rng(0)
    examples = draw.integers(0, 30_000, [_EXAMPLES, _TOKENS])
    paths = {way: os.path.join(folder, way) for way in ("TensorFlow", "ours")}

    def by_tensorflow() -> None:
        with tf.io.TFRecordWriter(paths["TensorFlow"]) as writer:
            for ids in examples:
                tokens = tf.train.Feature(int64_list=tf.train.Int64List(value=ids.tolist()))
                features = tf.train.Features(feature={"tokens": tokens})
                writer.write(tf.train.Example(features=features).SerializeToString())

    def by_ours() -> None:
        with tfrecord.RecordWriter(paths["ours"]) as writer:
            for ids in examples:
                writer.write(tfrecord.example({"tokens": ids}))

    contenders = {"TensorFlow": by_tensorflow, "ours": by_ours}
    for call in contenders.values():
        call()
    _check_equal("files", *map(files.read_bytes, paths.values()))
    modules = {"TensorFlow": "tensorflow", "ours": "txl_tf.data.tfrecord"}
    return _Part(contenders, "tokens/s", examples.size, modules, {})


def _messages() -> _Part:
    draw = np.random.default_rng(0)
    ids = draw.integers(0, _WORDS, [_ROWS, _SEGMENT]).astype(np.int32)
    scores = draw.normal(size=[_ROWS, _SEGMENT, _WORDS]).astype(np.float32)

    def by_library() -> tuple[bytes, np.ndarray]:
        request = predict_pb2.PredictRequest()
        request.inputs["input_ids"].CopyFrom(tf.make_tensor_proto(ids))
        response = predict_pb2.PredictResponse.FromString(answer)
        return request.SerializeToString(), tf.make_ndarray(response.outputs["scores"])

    def by_ours() -> tuple[bytes, np.ndarray]:
        request = messages.MESSAGES["PredictRequest"]()
        request.inputs.add(key="input_ids", value=messages.to_proto(ids))
        response = messages.MESSAGES["PredictResponse"].FromString(answer)
        (output,) = response.outputs
        return request.SerializeToString(), messages.from_proto(output.key, output.value)

    response = predict_pb2.PredictResponse()
    response.outputs["scores"].CopyFrom(tf.make_tensor_proto(scores))
    answer = response.SerializeToString()
    contenders = {"tensorflow-serving-api": by_library, "ours": by_ours}
    theirs, ours = by_library(), by_ours()
    _check_equal("requests", theirs[0], ours[0])
    _check_equal("responses", theirs[1].tobytes(), ours[1].tobytes())
    modules = {
        "tensorflow-serving-api": "tensorflow_serving.apis.predict_pb2",
        "ours": "txl_tf.serving_client.messages",
    }
    return _Part(contenders, "requests/s", 1, modules, {})


def _lower_case() -> _Part:
    lines = data.corpus(_BYTES).splitlines(keepends=True)
    text = tf.constant(lines)
    ways = {
        "tf.strings.lower": functools.partial(tf.strings.lower, encoding="utf-8"),
        "case_fold_utf8": tensorflow_text.case_fold_utf8,
        "ours": LowerCase(),
    }
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    expected = [character.lower().encode() for character in characters]
    contenders, wrong = {}, {}
    for way, lower in ways.items():
        graph = tf.function(lower, input_signature=[tf.TensorSpec([None], tf.string)])
        contenders[way] = functools.partial(graph, text)
        found = graph(tf.constant(characters)).numpy().tolist()
        wrong[way] = sum(one != other for one, other in zip(found, expected, strict=True))
    size = sum(len(line.encode()) for line in lines) / 1e6
    return _Part(contenders, "MB/s", size, {}, wrong)


def _check_equal(what: str, theirs: bytes, ours: bytes) -> None:
    if theirs != ours:
        raise ValueError(f"{what} must be the same, got {len(theirs)} and {len(ours)} bytes")
