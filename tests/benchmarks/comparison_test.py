"""Tests of benchmarks.comparison: its checks, and the arithmetic of rows."""

import pathlib
from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import helpers
from benchmarks import comparison, roofline, timing
from benchmarks.options import Options
from txl_tf.configs.run import TrainConfig
from txl_tf.models.transformer_xl import TransformerXL


def contender(library=comparison.OURS, precision="float32", jit=False, value=1.0, steps=1):
    outputs, call = mock.Mock(return_value={"loss": np.array([2.0, value])}), mock.Mock()
    return comparison.Contender(library, precision, jit, outputs, call, steps)


class RowsTest(absltest.TestCase):
    def race(self, *contenders, **options):
        """Returns rows of contenders that take 0.5 s and 0.25 s; the ceiling takes 0.1 s."""
        options = Options(**options)
        seconds = {c.name: 0.5 / (i + 1) for i, c in enumerate(contenders)}

        def race(calls, repeats):
            self.assertEqual(repeats, options.repeats)
            return {
                n: timing.Timing(*(x * seconds.get(n, 0.1) for x in (1, 0.5, 2))) for n in calls
            }

        with mock.patch.object(timing, "race", race):
            return comparison.race(contenders, tokens=20, flops=3e9, options=options)

    def test_rows_have_rates_and_ratios(self):
        theirs = contender(comparison.THEIRS, jit=None)
        rows = self.race(theirs, contender(precision="bfloat16", jit=True, steps=5))
        self.assertEqual([row["library"] for row in rows], [comparison.THEIRS, comparison.OURS])
        bound = 2 * 2048**3 / 0.1 / 1e9
        first = dict(precision="float32", jit=None, tokens_per_s=40, ms=500, fastest=250)
        first |= dict(slowest=1000, times_faster=1, gflops=120, ceiling=bound)
        second = dict(precision="bfloat16", jit=True, tokens_per_s=400, ms=50, fastest=25)
        second |= dict(slowest=100, times_faster=10, gflops=1200, of_ceiling=1200 / bound)
        for row, expected in zip(rows, (first, second), strict=True):
            for name, value in expected.items():
                self.assertAlmostEqual(row[name], value, msg=name)
        self.assertEqual(rows[0].keys(), rows[1].keys())

    def test_outputs_are_compared_before_timing(self):
        contenders = [contender(), contender(jit=True, value=1.001)]
        message = "loss of txl_tf float32 jit=true must be within 0.0001 of .*difference of 0.0005"
        with self.assertRaisesRegex(ValueError, message):
            self.race(*contenders)
        for each in contenders:
            each.outputs.assert_called_once_with()
            each.call.assert_not_called()

    def test_profile_traces_the_first_of_ours(self):
        folder = helpers.temp_dir(self)
        theirs, ours = contender(comparison.THEIRS), contender()
        self.race(theirs, ours, profile=str(folder))
        self.assertLen(list(pathlib.Path(folder).rglob("*.xplane.pb")), 1)
        theirs.call.assert_not_called()
        self.assertEqual(ours.call.call_count, 2 + 3)  # to compile, and those in the trace


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(("float32", 1e-5, 1e-3), ("bfloat16", 0.04, 0.2))
    def test_only_rounding_passes(self, precision, near, far):
        expected = np.array([[0.0, -1.0], [2.0, 100.0]])
        for scale in (1, -1):
            comparison.check("loss", expected, expected + scale * near, precision)
            comparison.check("loss", expected, expected * (1 + scale * near), precision)
            found = expected + scale * np.array([[far, 0], [0, 0]])
            with self.assertRaisesRegex(ValueError, f"^loss must be within .* of {far:.2g}$"):
                comparison.check("loss", expected, found, precision)

    def test_nan_is_rejected(self):
        with self.assertRaisesRegex(ValueError, "got a difference of nan"):
            comparison.check("loss", np.zeros(2), np.array([0, np.nan]), "bfloat16")


class ContendersTest(absltest.TestCase):
    def test_the_peer_runs_in_float32_first(self):
        other, train, options = mock.Mock(), TrainConfig(), Options(precisions=("bfloat16",))
        found = list(comparison.theirs(other, "eval", mock.sentinel.model, train, {}, options))
        self.assertEqual([c.name for c in found], ["TransfoXL float32", "TransfoXL bfloat16"])
        made = [(call.args[0], call.args[3].precision) for call in other.make.call_args_list]
        self.assertEqual(made, [("eval float32", "float32"), ("eval bfloat16", "bfloat16")])
        found[1].call()
        other.call.assert_called_once_with("eval bfloat16")
        self.assertEmpty(list(comparison.theirs(None, "eval", None, train, {}, options)))

    def test_a_copy_has_equal_weights(self):
        model = helpers.loud(TransformerXL(helpers.tiny_config(dropout=0.1)))
        copied = comparison.copy(model, "bfloat16", dropout=0.0)
        for ours, theirs in zip(model.get_weights(), copied.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        self.assertEqual((copied.compute_dtype, copied.config.dropout), ("bfloat16", 0.0))
        copied.trainable_variables[0].assign_add(copied.trainable_variables[0])
        difference = model.get_weights()[0] - copied.get_weights()[0]
        self.assertGreater(np.abs(difference).max(), 0.1)  # they are not shared

    @pytest.mark.half_precision
    def test_the_ceiling_is_in_the_dtype(self):
        self.assertEqual(roofline.FLOPS, 17_179_869_184)
        for precision in ("float32", "bfloat16"):
            self.assertEqual(roofline.product(precision)().dtype, precision)


if __name__ == "__main__":
    absltest.main()
