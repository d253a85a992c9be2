"""Tests of txl_tf.export.edge.agreement."""

import dataclasses

import numpy as np
import runtime_test
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.data.text_size import TextSize
from txl_tf.export.edge import agreement, calibration, runtime
from txl_tf.models.transformer_xl import TransformerXL


def sample(count, vocab_size=11, seed=0):
    ids = helpers.draw_ids(count, vocab_size=vocab_size, seed=seed)
    size = TextSize(tokens=count, bytes=2 * count, characters=2 * count)
    return calibration.Sample(name="noise", ids=ids, size=size)


class AgreementTest(parameterized.TestCase):
    @parameterized.parameters((1, 4), (3, 4), (5, 2), (16, 4))
    def test_rows_have_every_pair_once(self, batch_size, segment_len):
        ids = np.arange(14, dtype=np.int32)
        pairs, last = [], None
        for read, targets, lengths in agreement.rows(ids, batch_size, segment_len):
            self.assertLen(read, batch_size)
            for row, length in enumerate(lengths):
                pairs += zip(read[row, :length], targets[row, :length], strict=True)
                if last is not None and length:
                    self.assertEqual(read[row, 0], last[row][-1] + 1)
            last = read
        self.assertCountEqual(pairs, [(i, i + 1) for i in range(13)])

    def test_agreement_counts(self):
        """Held to a model that is not the one converted: it must disagree."""
        model, path = runtime_test.exported()
        other, found = TransformerXL(model.config), runtime.EdgeModel(path)
        helpers.loud(other, 1)
        held_out = sample(101, seed=4)
        same = agreement.measure(model, found, held_out)
        self.assertEqual(same.top1_agreement, 1.0)
        nll, _ = model.nll(held_out.ids[np.newaxis, :4], held_out.ids[np.newaxis, 1:5])
        few = agreement.measure(model, found, held_out.part(0, 5))
        expected = nll.numpy().mean() / np.log(2) / 2  # two characters a token
        atol = rounding.of_scores(model.config)
        self.assertAlmostEqual(few.bits_per_character, expected, delta=atol)
        self.assertAlmostEqual(few.nats_per_token, nll.numpy().mean(), delta=atol)
        lossy = dataclasses.replace(held_out, size=held_out.size._replace(unknown=7)).part(0, 5)
        unsure = agreement.measure(model, found, lossy)
        self.assertIsNone(unsure.bits_per_character)
        self.assertIsNone(unsure.float_bits_per_character)
        self.assertStartsWith(unsure.bits_unavailable, "7 of 101 tokens stand for symbols")
        self.assertEqual(unsure.nats_per_token, few.nats_per_token)
        differing = agreement.measure(other, found, held_out)
        self.assertLess(differing.top1_agreement, 0.6)
        self.assertAlmostEqual(differing.bits_per_character, same.bits_per_character, delta=atol)
        self.assertGreater(differing.largest_difference, 1)
        with self.assertRaisesRegex(
            ValueError, "noise must hold 2 tokens to compare models, got 1"
        ):
            agreement.measure(model, found, held_out.part(0, 1))


if __name__ == "__main__":
    absltest.main()
