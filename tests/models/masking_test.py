"""Tests of token masking: how many tokens, how, and determined by the key."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

import helpers
from txl_tf.models.masked_language_model import mask_tokens
from txl_tf.ops.dropout import DropoutKey


def mask(ids, lengths=None, step=0, rows=None, **kwargs):
    rows = tf.range(len(ids)) if rows is None else tf.constant(rows)
    key = DropoutKey(tf.constant([5, step]), rows)
    return [np.array(x) for x in mask_tokens(tf.constant(ids), lengths, key, mask_id=11, **kwargs)]


class MaskingTest(absltest.TestCase):
    def test_rates(self):
        ids = helpers.draw_ids(100, 1000)
        inputs, targets = mask(ids)
        chosen = targets >= 0
        np.testing.assert_array_equal(targets[chosen], ids[chosen])
        np.testing.assert_array_equal(inputs[~chosen], ids[~chosen])
        self.assertAlmostEqual(chosen.mean(), 0.15, delta=0.004)
        self.assertAlmostEqual((inputs[chosen] == 11).mean(), 0.8, delta=0.01)
        kept = 0.1 + 0.1 / 11  # one of 11 random ids is the old one
        self.assertAlmostEqual((inputs == ids)[chosen].mean(), kept, delta=0.01)
        drawn = inputs[chosen & (inputs != 11) & (inputs != ids)]
        counts = np.bincount(drawn, minlength=11)
        self.assertLess(np.abs(counts / counts.mean() - 1).max(), 0.25)
        self.assertAlmostEqual((mask(ids, rate=0.5)[1] >= 0).mean(), 0.5, delta=0.01)

    def test_it_follows_from_key_and_row_alone(self):
        ids = helpers.draw_ids(4, 200)
        inputs, targets = mask(ids)
        for again, expected in zip(mask(ids), (inputs, targets), strict=True):
            np.testing.assert_array_equal(again, expected)
        np.testing.assert_array_equal(mask(ids[2:3], rows=[2])[0], inputs[2:3])
        self.assertGreater((mask(ids, step=1)[1] != targets).mean(), 0.1)
        self.assertGreater((targets[0] != targets[1]).mean(), 0.1)

    def test_pads_are_left_alone(self):
        ids, lengths = helpers.draw_ids(50, 40), np.full([50], 25, "int32")
        inputs, targets = mask(ids, lengths)
        self.assertEqual(targets[:, 25:].max(), -1)
        np.testing.assert_array_equal(inputs[:, 25:], ids[:, 25:])
        np.testing.assert_array_equal(targets[:, :25], mask(ids)[1][:, :25])


if __name__ == "__main__":
    absltest.main()
