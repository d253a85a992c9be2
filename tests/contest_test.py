"""Tests of scripts/contest.py: what is compared, what is refused, and the arithmetic of a row."""

import pathlib
from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import ceiling
import contest
import helpers
import timing
from benchmark_options import Options
from txl_tf.configs.run import TrainConfig
from txl_tf.models.transformer_xl import TransformerXL


def contender(library=contest.OURS, precision="float32", jit=False, value=1.0, steps=1):
    outputs, call = mock.Mock(return_value={"nats": np.array([2.0, value])}), mock.Mock()
    return contest.Contender(library, precision, jit, outputs, call, steps)


class RowsTest(absltest.TestCase):
    def race(self, *contenders, **options):
        """Rows of contenders whose calls take 0.5 s and 0.25 s; a product of the ceiling 0.1 s."""
        options = Options(**options)
        seconds = {c.name: 0.5 / (i + 1) for i, c in enumerate(contenders)}

        def race(calls, repeats):
            self.assertEqual(repeats, options.repeats)
            return {
                n: timing.Timing(*(x * seconds.get(n, 0.1) for x in (1, 0.5, 2))) for n in calls
            }

        with mock.patch.object(timing, "race", race):
            return contest.race(contenders, tokens=20, flops=3e9, options=options)

    def test_the_arithmetic(self):
        theirs = contender(contest.THEIRS, jit=None)
        rows = self.race(theirs, contender(precision="bfloat16", jit=True, steps=5))
        self.assertEqual([row["library"] for row in rows], [contest.THEIRS, contest.OURS])
        bound = 2 * 2048**3 / 0.1 / 1e9
        first = dict(precision="float32", jit=None, tokens_per_s=40, ms=500, fastest=250)
        first |= dict(slowest=1000, times_faster=1, gflops=120, ceiling=bound)
        second = dict(precision="bfloat16", jit=True, tokens_per_s=400, ms=50, fastest=25)
        second |= dict(slowest=100, times_faster=10, gflops=1200, of_ceiling=1200 / bound)
        for row, expected in zip(rows, (first, second), strict=True):
            for name, value in expected.items():
                self.assertAlmostEqual(row[name], value, msg=name)
        self.assertEqual(rows[0].keys(), rows[1].keys())

    def test_nothing_is_called_before_all_are_compared(self):
        contenders = [contender(), contender(jit=True, value=1.001)]
        message = "nats of txl_tf float32 jit=true must be within 0.0001 of .*difference of 0.0005"
        with self.assertRaisesRegex(ValueError, message):
            self.race(*contenders)
        for each in contenders:
            each.outputs.assert_called_once_with()
            each.call.assert_not_called()

    def test_a_trace(self):
        folder = helpers.temp_dir(self)
        theirs, ours = contender(contest.THEIRS), contender()
        self.race(theirs, ours, profile=str(folder))
        self.assertLen(list(pathlib.Path(folder).rglob("*.xplane.pb")), 1)
        theirs.call.assert_not_called()
        self.assertEqual(ours.call.call_count, 2 + 3)  # to compile, and those in the trace


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(("float32", 1e-5, 1e-3), ("bfloat16", 0.04, 0.2))
    def test_rounding_passes_and_more_does_not(self, precision, near, far):
        expected = np.array([[0.0, -1.0], [2.0, 100.0]])
        for scale in (1, -1):
            contest.check("nats", expected, expected + scale * near, precision)
            contest.check("nats", expected, expected * (1 + scale * near), precision)
            found = expected + scale * np.array([[far, 0], [0, 0]])
            with self.assertRaisesRegex(ValueError, f"^nats must be within .* of {far:.2g}$"):
                contest.check("nats", expected, found, precision)

    def test_no_number_is_no_equal(self):
        with self.assertRaisesRegex(ValueError, "got a difference of nan"):
            contest.check("nats", np.zeros(2), np.array([0, np.nan]), "bfloat16")


class ContendersTest(absltest.TestCase):
    def test_the_peer_comes_in_float32_first(self):
        other, train, options = mock.Mock(), TrainConfig(), Options(precisions=("bfloat16",))
        found = list(contest.theirs(other, "eval", mock.sentinel.model, train, {}, options))
        self.assertEqual([c.name for c in found], ["TransfoXL float32", "TransfoXL bfloat16"])
        made = [(call.args[0], call.args[3].precision) for call in other.make.call_args_list]
        self.assertEqual(made, [("eval float32", "float32"), ("eval bfloat16", "bfloat16")])
        found[1].call()
        other.call.assert_called_once_with("eval bfloat16")
        self.assertEmpty(list(contest.theirs(None, "eval", None, train, {}, options)))

    def test_a_copy_has_the_weights(self):
        model = helpers.loud(TransformerXL(helpers.tiny_config(dropout=0.1)))
        copied = contest.copy(model, "bfloat16", dropout=0.0)
        for ours, theirs in zip(model.get_weights(), copied.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        self.assertEqual((copied.compute_dtype, copied.config.dropout), ("bfloat16", 0.0))
        copied.trainable_variables[0].assign_add(copied.trainable_variables[0])
        difference = model.get_weights()[0] - copied.get_weights()[0]
        self.assertGreater(np.abs(difference).max(), 0.1)  # they are not shared

    @pytest.mark.half_precision
    def test_the_ceiling_is_in_the_dtype(self):
        self.assertEqual(ceiling.FLOPS, 17_179_869_184)
        for precision in ("float32", "bfloat16"):
            self.assertEqual(ceiling.product(precision)().dtype, precision)


if __name__ == "__main__":
    absltest.main()
