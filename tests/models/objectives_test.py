"""Tests of txl_tf.models.objectives: what a segment gives to learn from."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

import helpers
from txl_tf.configs import objectives as specs
from txl_tf.models import objectives
from txl_tf.ops import permutation
from txl_tf.ops.dropout import DropoutKey

KEY = DropoutKey(tf.constant([1, 2]), tf.range(3))


class ObjectivesTest(absltest.TestCase):
    def test_every_spec_has_an_objective_with_a_model_of_its_config(self):
        self.assertEqual(objectives.OBJECTIVES.keys(), specs.OBJECTIVES.keys())
        for name, spec in specs.OBJECTIVES.items():
            self.assertIs(objectives.OBJECTIVES[name].MODEL.CONFIG, spec.model)

    def test_causal(self):
        ids, targets = helpers.draw_ids(3, 12), helpers.draw_ids(3, 12, seed=1)
        objective = objectives.make(specs.Causal())
        inputs, found = objective.examples(ids, targets, key=KEY)
        self.assertEqual(list(inputs), ["token_ids"])
        np.testing.assert_array_equal(inputs["token_ids"], ids)
        np.testing.assert_array_equal(found, targets)
        inputs, _ = objective.examples(ids, targets, targets == 3)
        np.testing.assert_array_equal(inputs["document_start"], targets == 3)

    def test_auxiliary(self):
        ids, targets = helpers.draw_ids(3, 12), helpers.draw_ids(3, 12, seed=1)
        objective = objectives.make(specs.parse("auxiliary(targets=3)"))
        inputs, found = objective.examples(ids, targets, progress=0.25)
        np.testing.assert_array_equal(inputs.pop("progress"), [0.25] * 3)
        self.assertEqual(list(inputs), ["token_ids"])
        np.testing.assert_array_equal(found, targets)
        self.assertEqual(list(objective.examples(ids, targets)[0]), ["token_ids"])
        self.assertEqual(objective.make_model(helpers.tiny_config()).num_targets, 3)

    def test_permutation(self):
        ids, targets = helpers.draw_ids(3, 12), helpers.draw_ids(3, 12, seed=1)
        targets[2, 4:] = -1  # padding
        spec = specs.parse("permutation(context=3, max_span=2, block=6)")
        inputs, found = objectives.make(spec).examples(tf.constant(ids), targets, key=KEY)
        lengths = tf.constant([12, 12, 4])
        options = dict(num_predict=4, lengths=lengths, max_span=2, block=6)
        drawn = permutation.permute(ids, KEY, **options)
        np.testing.assert_array_equal(inputs["token_ids"], ids)
        np.testing.assert_array_equal(inputs["lengths"], lengths)
        np.testing.assert_array_equal(inputs["visible"], drawn.visible)
        np.testing.assert_array_equal(inputs["target_positions"], drawn.positions)
        np.testing.assert_array_equal(found, drawn.targets)


if __name__ == "__main__":
    absltest.main()
