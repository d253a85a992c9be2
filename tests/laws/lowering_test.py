"""The steps of every preset compile to a single static XLA program, as TPUs require.

The lowering is the one for CPUs, since TensorFlow has that for TPUs only where there is one; what
the TPU's compiler does with the program stays untested.
"""

import functools
import multiprocessing
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import lowering
from txl_tf.configs import presets
from txl_tf.configs.run import Config, DataConfig, EvalConfig, TrainConfig

# All that the steps may consist of. `set-dimension-size` is what tf.ensure_shape becomes; the
# shapes tell whether it is the size that the tensor has anyway. `sort` is argsort's, in the loss.
OPS = (helpers.ROOT / "tests" / "hlo_ops.txt").read_text("utf-8").split()
# What speaks to the host, or calls code that is none of XLA's.
HOST = ("custom-call", "infeed", "outfeed", "send", "send-done", "recv", "recv-done")
TYPES = ("pred", "bf16", "f32", "s32", "s64", "u32", "u64")


def faults(hlo):
    """What a TPU would not take, as sentences."""
    found = []
    for line in lowering.instructions(hlo):
        if line.opcode in HOST:
            found.append(f"{line.name} is a {line.opcode}, which leaves the device")
        elif line.opcode not in OPS:
            found.append(f"{line.name} is a {line.opcode}, which is not listed")
        for kind, sizes in line.arrays():
            if "<=" in sizes or "?" in sizes:
                found.append(f"{line.name} has a dynamic dimension: {kind}[{sizes}]")
            if kind not in TYPES:
                found.append(f"{line.name} is of {kind}")
    return found


@functools.cache
def small(dtype="float32", **train):
    """A tiny model with cut-offs, all dropout and documents: all kinds of instructions.

    Returns the HLO of both steps, and how many numbers the training step keeps.
    """
    config = Config(
        model=helpers.tiny_config(
            num_layers=1,
            cutoffs=(3, 7),
            div_val=2,
            dropout=0.1,
            attention_dropout=0.1,
            clamp_len=6,
        ),
        data=DataConfig(reset_memory_at_documents=True),
        train=TrainConfig(
            batch_size=4,
            segment_len=5,
            train_steps=10,
            warmup_steps=2,
            **train,
        ),
        eval=EvalConfig(batch_size=2, segment_len=3, mem_len=7, attention_span=8),
    )
    return lowering.steps(config, rows=4, dtype=dtype)


def of_preset(name, **options):
    """`lowering.of_preset` in a process, whose end gives back what TensorFlow keeps: gigabytes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "keras"])  # once, and forked from there
    with futures.ProcessPoolExecutor(1, context) as process:
        return process.submit(lowering.of_preset, name, **options).result()


class StepsTest(parameterized.TestCase):
    def check(self, train, evaluation, num_values):
        for hlo in (train, evaluation):
            self.assertEqual(faults(hlo), [])
            self.assertNotIn("<=", hlo)
            lines = lowering.instructions(hlo)
            self.assertGreater(len(lines), 100)
            largest = max(line.size() for line in lines if line.opcode == "constant")
            self.assertLess(largest, 2_000_000)  # a table of sinusoids, a mask; no weights
        inputs = [
            line
            for line in lowering.instructions(train)
            if line.is_entry and line.opcode == "parameter"
        ]
        self.assertGreaterEqual(sum(line.size() for line in inputs), num_values)

    @parameterized.parameters(*lowering.CORES)
    def test_of_a_preset(self, name):
        """Of two layers, which are alike: the others have the same instructions."""
        self.check(*of_preset(name, num_layers=2))

    @pytest.mark.slow
    def test_of_a_preset_with_all_its_layers(self):
        self.check(*of_preset("wt103_base"))

    @parameterized.parameters(
        {}, dict(dtype="mixed_bfloat16"), dict(accumulate_steps=2), dict(steps_per_loop=3)
    )
    @pytest.mark.half_precision
    def test_with_options(self, **options):
        self.check(*small(**options))

    def test_every_preset_has_its_cores(self):
        lowered = [name for name in presets.names() if not name.startswith("tiny_")]  # of one size
        self.assertCountEqual(lowering.CORES, lowered)
        for name, cores in lowering.CORES.items():
            self.assertEqual(presets.preset(name).train.batch_size % cores, 0, name)

    def test_every_listed_op_occurs(self):
        texts = [*small()[:2], *small(accumulate_steps=2)[:2]]
        seen = {line.opcode for hlo in texts for line in lowering.instructions(hlo)}
        self.assertCountEqual(OPS, seen)


class FaultsTest(parameterized.TestCase):
    """The checks find what they are there for."""

    X = tf.TensorSpec([4, 6])

    def lowered(self, function):
        return lowering.lower(function, self.X)

    def test_a_plain_product_has_none(self):
        self.assertEqual(faults(self.lowered(lambda x: tf.matmul(x, x, transpose_b=True))), [])

    def test_a_call_of_python_does_not_even_lower(self):
        with self.assertRaisesRegex(ValueError, "EagerPyFunc"):
            self.lowered(lambda x: tf.py_function(lambda y: y, [x], tf.float32))

    def test_a_boolean_mask_has_a_dynamic_dimension(self):
        found = faults(self.lowered(lambda x: tf.boolean_mask(x, x[:, 0] > 0)))
        self.assertIn("has a dynamic dimension: f32[<=4,6]", "\n".join(found))

    def test_a_dynamic_argument_is_refused(self):
        with self.assertRaisesRegex(ValueError, "shape"):
            lowering.lower(lambda x: x + 1, tf.TensorSpec([None, 6]))

    def test_an_op_that_is_not_listed(self):
        found = faults(self.lowered(tf.math.tan))
        self.assertRegex("\n".join(found), "is a tan(gent)?, which is not listed")

    def test_a_call_out_of_the_program(self):
        hlo = (
            "ENTRY %main (x: f32[4]) -> f32[4] {\n"
            '  ROOT %y.1 = f32[4]{0} custom-call(f32[4]{0} %x), custom_call_target="host"\n'
            "}\n"
        )
        self.assertEqual(faults(hlo), ["y.1 is a custom-call, which leaves the device"])

    def test_doubles(self):
        found = faults(self.lowered(lambda x: tf.cast(x, tf.float64)))
        self.assertIn("is of f64", "\n".join(found))

    def test_weights_in_the_program_would_show(self):
        table = np.arange(24, dtype="float32").reshape([4, 6])
        lines = lowering.instructions(self.lowered(lambda x: x + table))
        sizes = [line.size() for line in lines if line.opcode == "constant"]
        self.assertIn(24, sizes)

    def test_no_line_is_missed(self):
        """A line that names a value and is no instruction would pass unseen."""
        hlo = small()[0]
        named = [line for line in hlo.splitlines() if line.strip("RO T").startswith("%")]
        named = [line for line in named if line.startswith("  ")]
        self.assertLen(lowering.instructions(hlo), len(named))


if __name__ == "__main__":
    absltest.main()
