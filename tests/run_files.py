"""Files of a run: their contents, their curves, and damage to them."""

import json
import os
import pathlib

import numpy as np
import tensorflow as tf

from txl_tf import model_dir

PARTS = ("weights", "optimizer", "memory")
DAMAGES = ("data removed", "index removed", "index cut", "index empty", "data cut", "byte flipped")


def contents(path, step):
    """Returns all arrays of a checkpoint of a model_dir, except TensorFlow's own."""
    prefix = os.path.join(path, model_dir.CHECKPOINTS, f"ckpt-{step}")
    reader = tf.train.load_checkpoint(prefix)
    names = [n for n in reader.get_variable_to_shape_map() if n.split("/")[0] in PARTS]
    return {name: reader.get_tensor(name) for name in names}


def check_same(test, found, expected):
    """Checks that two `contents` are bitwise equal and complete."""
    test.assertEqual(found.keys(), expected.keys())
    test.assertEqual({name.split("/")[0] for name in found}, set(PARTS))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def curve(folder):
    """Returns the points of the event files in a folder, {(name, step): value}."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                (point,) = tf.make_ndarray(value.tensor).reshape(-1)
                is_text = isinstance(point, bytes)
                found[value.tag, event.step] = point.decode() if is_text else float(point)
    return found


def metrics(path):
    """Returns the lines of a run's metrics.jsonl; raises for NaN and infinity."""

    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    lines = (pathlib.Path(path) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def damage(prefix, how):
    """Damages the files of a checkpoint; `how` is one of `DAMAGES`."""
    data, index = f"{prefix}.data-00000-of-00001", f"{prefix}.index"
    path = index if how.startswith("index") else data
    size = os.path.getsize(path)
    if how.endswith("removed"):
        os.remove(path)
    elif how.endswith("cut"):
        os.truncate(path, size // 2)
    elif how.endswith("empty"):
        os.truncate(path, 0)
    else:
        content = bytearray(pathlib.Path(path).read_bytes())
        content[size // 2] ^= 255
        pathlib.Path(path).write_bytes(content)
