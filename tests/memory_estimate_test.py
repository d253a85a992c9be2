"""The estimate of memory against numbers worked out by hand."""

import dataclasses

from absl.testing import absltest

import helpers
from txl_tf.config import Config, TrainConfig
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training.memory_estimate import memory_estimate


def estimate(replicas=1, model=None, **train):
    settings = dict(batch_size=8, segment_len=5, precision="float32") | train
    config = Config(model=helpers.tiny_config(**(model or {})), train=TrainConfig(**settings))
    return memory_estimate(config, 1000, replicas)


class MemoryEstimateTest(absltest.TestCase):
    def test_a_hand_count(self):
        """V 11, L 2, D 8, H K 8, F 16, M 4, T 5, S 9, and 8 rows."""
        found = estimate()
        self.assertEqual((found.weights, found.optimizer, found.gradients), (4000, 8000, 4000))
        self.assertEqual(found.memory, 2 * 8 * (2 * 4 * 8) * 4)
        stream = 6 * 5 * 8 + 4 * 5 * 8 + 2 * 5 * 16 + 2 * 9 * 8  # 704
        layer = 4 * stream + 4 * 2 * (2 * 5 * 9)  # 3536
        logits = 4 * 3 * 5 * 11  # 660
        self.assertEqual(found.activations, 8 * (2 * layer + logits))
        self.assertEqual(found.total, 16000 + 4096 + 61856)
        self.assertEqual(
            str(found),
            "weights=0.004MB optimizer=0.008MB gradients=0.004MB memory=0.004096MB "
            "activations=0.06186MB total=0.08195MB",
        )

    def test_replicas_and_parts_share_the_rows(self):
        whole, shared = estimate(), estimate(replicas=2)
        self.assertEqual(shared.weights, whole.weights)
        self.assertEqual(shared.memory * 2, whole.memory)
        self.assertEqual(shared.activations * 2, whole.activations)
        parts = estimate(accumulate_steps=4)
        self.assertEqual(parts.activations * 4, whole.activations)
        self.assertEqual((parts.memory, parts.gradients), (whole.memory, 2 * whole.gradients))

    def test_what_is_computed_again_is_not_kept(self):
        whole, again = estimate(), estimate(rematerialize=True)
        self.assertEqual(whole.activations - again.activations, 8 * (3536 - 2 * 4 * 5 * 8))

    def test_half_precision_halves_what_is_computed_in_it(self):
        whole, half = estimate(), estimate(precision="bfloat16")
        self.assertEqual(half.memory * 2, whole.memory)
        self.assertEqual(whole.activations - half.activations, 8 * 2 * 2 * 704)
        same = dataclasses.replace(half, memory=whole.memory, activations=whole.activations)
        self.assertEqual(same, whole)

    def test_cutoffs_leave_the_logits_of_the_head(self):
        whole, cut = estimate(), estimate(model=dict(cutoffs=(4, 8)))
        self.assertEqual(whole.activations - cut.activations, 8 * 4 * 3 * 5 * (11 - 6))

    def test_weights_are_those_of_a_model(self):
        model = TransformerXL(helpers.tiny_config())
        model.build()
        bytes_held = sum(v.numpy().nbytes for v in model.weights)
        config = Config(model=model.config, train=TrainConfig())
        self.assertEqual(memory_estimate(config, model.count_params()).weights, bytes_held)


if __name__ == "__main__":
    absltest.main()
