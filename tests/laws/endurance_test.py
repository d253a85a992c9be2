"""Tests of the endurance trials: a short trial, and detection of differing weights."""

import pytest
import tensorflow as tf
from absl.testing import absltest

import endurance
import helpers
import prepared


class EnduranceTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)

    @pytest.mark.slow
    def test_kills_change_nothing(self):
        text = self.folder / "text.txt"
        text.write_text(prepared.text(5000))
        found = endurance.kills(str(text), str(self.folder), kills=2, seed=3, steps=60)
        self.assertEqual((found["kills"], found["differing"]), (2, []))
        self.assertGreater(found["arrays"], 50)
        self.assertIn(None, found["due_at_steps"])

    def test_a_bit_that_differs_is_found(self):
        for name, last in (("one", 2.0), ("same", 2.0), ("other", 2.0000002)):
            values = tf.Variable([1.0, last])
            for part in ("checkpoints", "best"):
                path = self.folder / name / part
                manager = tf.train.CheckpointManager(
                    tf.train.Checkpoint(weights=values), str(path), max_to_keep=1
                )
                manager.save(checkpoint_number=8)
        one, same, other = (str(self.folder / name) for name in ("one", "same", "other"))
        self.assertEqual(endurance.compare(same, one, 8), (2, []))
        count, differing = endurance.compare(other, one, 8)
        self.assertEqual(count, 2)
        self.assertStartsWith(differing[0], "best/ckpt-8: weights")
        self.assertStartsWith(differing[1], "checkpoints/ckpt-8: weights")


if __name__ == "__main__":
    absltest.main()
