"""Tests of scripts/benchmark.py: what is compared is equal, and the results are told."""

import numpy as np
import pytest
from absl.testing import absltest

import benchmark_edge
import trained

SMALL = (
    "--set=model.num_layers=1",
    "--set=model.d_model=16",
    "--set=model.num_heads=2",
    "--set=model.head_dim=8",
    "--set=model.d_inner=16",
    "--set=model.mem_len=4",
    "--set=model.d_embed=none",
)


@pytest.mark.slow
class BenchmarkProgramTest(absltest.TestCase):
    def test_edge(self):
        stdout, _ = trained.run("benchmark", "--suite=edge", "--repeats=1", *SMALL)
        found = trained.last_json(stdout)
        self.assertEqual((found["suite"], found["repeats"]), ("edge", 1))
        ways = {(row["way"], row["segment_len"]) for row in found["rows"]}
        names = ("SavedModel", "LiteRT none", "LiteRT dynamic")
        self.assertEqual(ways, {(name, size) for name in names for size in (1, 16)})
        for row in found["rows"]:
            self.assertLessEqual(row["fastest"], row["ms_per_token"])
            self.assertLessEqual(row["ms_per_token"], row["slowest"])
        self.assertLen(stdout.splitlines(), 2 + len(ways))

    def test_wrong_flags(self):
        _, stderr = trained.run("benchmark", code=2)
        self.assertIn("--suite is required", stderr.splitlines()[-1])
        _, stderr = trained.run("benchmark", "--suite=edge", "--repeats=0", code=2)
        self.assertIn("--repeats=0", stderr.splitlines()[-1])


class CheckTest(absltest.TestCase):
    def test_other_numbers_are_not_timed(self):
        scores = np.zeros([1, 1, 3], "float32")
        near, far, odd = scores + 1e-5, scores + 1e-3, scores + np.nan
        benchmark_edge._check(lambda: scores, lambda: near, "LiteRT none", 1e-4)
        for found in (far, odd):
            with self.assertRaisesRegex(ValueError, "LiteRT none must be within 0.0001 of the"):
                benchmark_edge._check(
                    lambda: scores, lambda found=found: found, "LiteRT none", 1e-4
                )


if __name__ == "__main__":
    absltest.main()
