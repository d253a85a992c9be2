"""Tests of benchmarks.peak_memory: the peak includes the work but not this process."""

import numpy as np
from absl.testing import absltest

from benchmarks import peak_memory


class PeakTest(absltest.TestCase):
    def test_the_memory_of_the_work_counts(self):
        held = np.ones(2**27, np.uint8)  # 134 MB that are ours
        little, much = peak_memory.peak(np.ones, 1), peak_memory.peak(np.ones, 2**25)
        self.assertBetween(much - little, 2**28 - 2**24, 2**28 + 2**24)  # 268 MB of float64
        self.assertLess(little, held.nbytes)

    def test_an_error_is_raised(self):
        with self.assertRaisesRegex(ValueError, "invalid literal for int"):
            peak_memory.peak(int, "seven")


if __name__ == "__main__":
    absltest.main()
