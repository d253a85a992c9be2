"""Positions of facts before and after each index."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from txl_tf.export.text_graph import positions


class PlacesTest(absltest.TestCase):
    def test_equals_a_plain_loop(self):
        draw = np.random.default_rng(0)
        for size in (0, 1, 2, 7):
            for facts in (draw.random((20, size)) < 0.4).tolist():
                true = [i for i in range(size) if facts[i]]
                before = [max([i for i in true if i < k], default=-1) for k in range(size)]
                after = [min([i for i in true if i > k], default=size) for k in range(size)]
                tensor = tf.constant(facts, tf.bool, [size])
                self.assertEqual(positions.last_before(tensor).numpy().tolist(), before)
                self.assertEqual(positions.first_after(tensor).numpy().tolist(), after)


if __name__ == "__main__":
    absltest.main()
