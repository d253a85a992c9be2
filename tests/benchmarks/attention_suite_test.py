"""Tests of benchmarks.suites.attention: its arithmetic, comparisons and checks."""

from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import rounding
import trained
from benchmarks.options import Options
from benchmarks.suites import attention
from benchmarks.suites.attention import Core, Point

KINDS = tuple(attention._KINDS)


class GrowthTest(parameterized.TestCase):
    @parameterized.parameters(1.0, 2.0, 0.5)
    def test_growth_is_the_exponent(self, power):
        lengths = (512, 1024, 2048, 4096, 8192)
        rows = [dict(length=n, ms=3.0 * n**power if n >= 2048 else 77.0) for n in lengths]
        self.assertAlmostEqual(attention._growth(rows), power)

    def test_one_length_has_no_growth(self):
        rows = [dict(length=2048, ms=1.0), dict(length=4096, ms=None)]
        self.assertIsNone(attention._growth(rows))


class CoreTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_a_step_returns_the_outputs_of_the_core(self, kind):
        core = Core(Point(kind, 512))
        atol = rounding.of_attention(core.inputs[0].shape[-1], 512, core.inputs[3])
        np.testing.assert_allclose(core(), core.outputs(), rtol=0, atol=atol)

    def test_wrong_outputs_are_rejected(self):
        for kind in ("local", "longformer"):
            spec = f"{kind}(window=127)"
            wrong = attention._KINDS[kind]._replace(spec=spec)
            with (
                self.subTest(kind),
                mock.patch.dict(attention._KINDS, {kind: wrong}),
                self.assertRaisesRegex(ValueError, f"outputs of {kind} must be within"),
            ):
                attention._check(512)
        attention._check(512)

    def test_dense_attention_that_would_not_fit_is_left_out(self):
        for kind, is_dense in (("dense", True), ("dense, both ways", True), ("bigbird", False)):
            self.assertTrue(attention._fits(kind, 1024))
            self.assertEqual(attention._fits(kind, 2**22), not is_dense)


@pytest.mark.slow
class ProgramTest(absltest.TestCase):
    def test_a_row_for_each_kind_and_length(self):
        def fits(kind, length):
            return length < 4096 or not kind.startswith("dense")

        with mock.patch.object(attention, "_fits", fits):
            rows = attention.measure(Options(repeats=1), [2048, 4096])
        self.assertEqual([row["kind"] for row in rows], list(KINDS) * 2)
        for row in rows:
            self.assertEqual(row.keys(), rows[0].keys())
            if row["kind"].startswith("dense"):
                self.assertEqual(row["ms"] is None, row["length"] == 4096)
            else:
                self.assertIsNotNone(row["growth"])
                self.assertLess(row["fastest"], 1.0001 * row["ms"])
                self.assertEqual(row["times_faster"] is None, row["length"] == 4096)

    def test_lengths_are_flags(self):
        stdout, _ = trained.run("benchmark", "--suite=attention", "--repeats=1", "--text_len=512")
        rows = trained.last_json(stdout)["rows"]
        self.assertEqual([(row["kind"], row["length"]) for row in rows], [(k, 512) for k in KINDS])


if __name__ == "__main__":
    absltest.main()
