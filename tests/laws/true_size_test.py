"""Checkpoints of the published sizes, of zeros: imported within the memory of one machine.

They take minutes and some GB of disk for a while: set TXL_TRUE_SIZE=1 to run them.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
import unittest

import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from absl.testing import absltest, parameterized

import helpers
from txl_tf.configs import presets
from txl_tf.conversion import original_layout
from txl_tf.models.transformer_xl import TransformerXL

# Section 6 of shared/reference/transformer-xl.md; rounded there where it is in millions.
PUBLISHED = {
    "enwik8_large": 277_231_820,
    "wt103_base": 151_119_838,
    "wt103_large": 285_205_322,
    "lm1b_large": 838.1e6,
}
MEMORY = 24 * 2**30


def shapes_of(config):
    """Names and shapes of the original's variables, from a model of one layer."""
    model = TransformerXL(dataclasses.replace(config, num_layers=1))
    found = {}
    for name, parameter in original_layout.parameters(model).items():
        scope, _, rest = name.partition("/")
        if scope == "layer_0":
            for layer in range(config.num_layers):
                found[f"layer_{layer}/{rest}"] = parameter.shape
        elif name.startswith("r_") and config.untie_biases:
            found[name] = (config.num_layers, *parameter.shape[1:])
        else:
            found[name] = parameter.shape
    return found


def write_zeros(prefix, shapes):
    """A V2 checkpoint whose zeros take no room on the disk; one tensor at a time."""
    parts = []
    for i, (name, shape) in enumerate(shapes.items()):
        parts.append(f"{prefix}.part{i}")
        tf.raw_ops.SaveV2(
            prefix=parts[-1],
            tensor_names=[f"transformer/{name}"],
            shape_and_slices=[""],
            tensors=[tf.zeros(shape)],
        )
        data = f"{parts[-1]}.data-00000-of-00001"
        subprocess.run(["fallocate", "--dig-holes", data], check=False)
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=False
    )


def run_measured(*flags):
    """Runs the program -> (its result, seconds, bytes of memory at the peak)."""
    command = [sys.executable, str(helpers.ROOT / "scripts" / "import_checkpoint.py"), *flags]
    environment = os.environ | {"PYTHONPATH": str(helpers.ROOT), "CUDA_VISIBLE_DEVICES": ""}
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"exit code must be 0, got {process.returncode}")
    return json.loads(text.splitlines()[-1]), time.monotonic() - start, usage.ru_maxrss * 1024


@unittest.skipUnless(
    os.environ.get("TXL_TRUE_SIZE") == "1", "gigabytes and minutes: set TXL_TRUE_SIZE=1"
)
@pytest.mark.slow
class TrueSizeTest(parameterized.TestCase):
    @parameterized.parameters(*PUBLISHED)
    def test_is_imported_within_the_memory(self, name):
        folder = helpers.temp_dir(self)
        shapes = shapes_of(presets.preset(name).model)
        write_zeros(str(folder / "model.ckpt-0"), shapes)
        on_disk = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
        found, seconds, peak = run_measured(
            "--format=tf1",
            f"--checkpoint={folder / 'model.ckpt-0'}",
            f"--preset={name}",
            f"--model_dir={folder / 'model'}",
        )
        logging.info(
            "%s: parameters=%d seconds=%.1f peak_gib=%.2f checkpoint_disk_mib=%.1f",
            name,
            found["parameters"],
            seconds,
            peak / 2**30,
            on_disk / 2**20,
        )
        self.assertEqual(found["parameters"], sum(int(np.prod(s)) for s in shapes.values()))
        rounding = 0 if isinstance(PUBLISHED[name], int) else 0.05e6
        self.assertAlmostEqual(found["parameters"], PUBLISHED[name], delta=rounding)
        self.assertLess(peak, MEMORY)
        self.assertLess(on_disk, 2**26)


if __name__ == "__main__":
    absltest.main()
