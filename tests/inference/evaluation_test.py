"""Tests of txl_tf.inference.evaluation."""

import functools
import math

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import rounding
import stream_data
from txl_tf.data.batches import Batches
from txl_tf.inference import evaluation
from txl_tf.inference.evaluation import Evaluator
from txl_tf.models.transformer_xl import TransformerXL


@functools.cache
def make_model(**changes):
    return helpers.loud(TransformerXL(helpers.tiny_config(**changes)))


def plain_loss(model, tokens, num_rows, segment_len, document_start=()):
    """Nats of each target, row by row and segment by segment, without padding."""
    nats = []
    size = -(-(len(tokens) - 1) // num_rows)
    for begin in range(0, len(tokens) - 1, size):
        end, mems = min(begin + size, len(tokens) - 1), None
        for i in range(begin, end, segment_len):
            places = np.arange(i, min(i + segment_len, end))
            starts = np.isin(places, document_start)[np.newaxis]
            ids, targets = tokens[np.newaxis, places], tokens[np.newaxis, places + 1]
            nll, mems = model.nll(ids, targets, mems, document_start=starts)
            nats += np.asarray(nll)[0].tolist()
    return nats


class EvaluateTest(parameterized.TestCase):
    def batches(self, tokens, batch_size, segment_len=4, layout="contiguous", **options):
        folder = self.create_tempdir().full_path
        stream_data.write(folder, tokens, **({"vocab_size": 11} | options))
        return Batches(
            folder,
            "train",
            batch_size=batch_size,
            segment_len=segment_len,
            mode="eval",
            layout=layout,
        )

    @parameterized.product(batch_size=(1, 2, 3), mem_len=(0, 3, 64))
    def test_equals_a_plain_loop(self, batch_size, mem_len):
        model, tokens = make_model(mem_len=mem_len), helpers.draw_ids(30)
        found = evaluation.evaluate(model, self.batches(tokens, batch_size))
        expected = plain_loss(model, tokens, batch_size, 4)
        self.assertLen(expected, 29)
        self.assertEqual((found.split, found.targets, found.scored), ("train", 29, 29))
        atol, perplexity = rounding.of_scores(model.config, 30), math.exp(np.mean(expected))
        self.assertAlmostEqual(found.nats, sum(expected), delta=29 * atol)
        self.assertAlmostEqual(found.nats_per_token, np.mean(expected), delta=atol)
        self.assertAlmostEqual(found.perplexity, perplexity, delta=atol * perplexity)

    def test_memory_matters(self):
        batches = self.batches(helpers.draw_ids(60), 1)
        with_memory, without = (
            evaluation.evaluate(make_model(mem_len=m), batches) for m in (16, 0)
        )
        self.assertGreater(abs(with_memory.nats - without.nats), 0.1)

    @parameterized.parameters(
        (11, 1, 10, "contiguous"),
        (11, 2, 10, "contiguous"),
        (12, 5, 11, "contiguous"),
        (11, 2, 8, "reference"),
    )
    def test_reports_the_number_of_scored_targets(self, size, batch_size, scored, layout):  # AC13
        batches = self.batches(helpers.draw_ids(size), batch_size, 2, layout)
        found = evaluation.evaluate(make_model(), batches)
        self.assertEqual((found.targets, found.scored), (size - 1, scored))

    def test_unknown_symbols_leave_no_bits(self):
        tokens = helpers.draw_ids(11)
        known = self.batches(tokens, 1, bytes=22, characters=11)
        found = evaluation.evaluate(make_model(), known)
        bits = found.nats_per_token / math.log(2)
        self.assertAlmostEqual(found.bits_per_byte, bits / 2)
        self.assertAlmostEqual(found.bits_per_character, bits)
        self.assertEqual((found.unknown, found.bits_unavailable), (0, None))
        with self.assertLogs(level="WARNING") as logs:
            lossy = self.batches(tokens, 1, bytes=22, characters=11, unknown=3)
        self.assertIn("split 'train': 3 of 11 tokens (27.3%) are symbols", logs.output[0])
        unsure = evaluation.evaluate(make_model(), lossy).to_dict()
        self.assertEqual((unsure["unknown"], unsure["perplexity"]), (3, found.perplexity))
        self.assertEqual([unsure["bits_per_byte"], unsure["bits_per_character"]], [None, None])
        self.assertStartsWith(unsure["bits_unavailable"], "3 of 11 tokens stand for symbols")

    def test_one_batch(self):  # AC13
        model, tokens = make_model(), helpers.draw_ids(5)
        found = evaluation.evaluate(model, self.batches(tokens, 1))
        nll, _ = model.nll(tokens[np.newaxis, :-1], tokens[np.newaxis, 1:])
        atol = rounding.of_scores(model.config)
        self.assertAlmostEqual(found.nats_per_token, np.mean(nll), delta=atol)

    def test_documents_forget_when_asked(self):
        model, tokens, begin = make_model(mem_len=16), helpers.draw_ids(24), (0, 5, 12)
        batches = self.batches(tokens, 1, document_start=begin)
        for reset, starts in ((True, begin), (False, ())):
            found = evaluation.evaluate(model, batches, reset_memory_at_documents=reset)
            expected = plain_loss(model, tokens, 1, 4, starts)
            atol = len(expected) * rounding.of_scores(model.config, 24)
            self.assertAlmostEqual(found.nats, sum(expected), delta=atol)
        self.assertGreater(abs(sum(plain_loss(model, tokens, 1, 4, begin)) - found.nats), 0.01)

    def test_again_is_the_same_and_traced_once(self):
        evaluator = Evaluator(make_model())
        batches = self.batches(helpers.draw_ids(40), 2)
        first, second = evaluator.evaluate(batches), evaluator.evaluate(batches)
        self.assertEqual(first, second)  # memories were reset
        self.assertEqual(evaluator._step.experimental_get_tracing_count(), 1)

    def test_xla_gives_the_same(self):
        model, batches = make_model(), self.batches(helpers.draw_ids(20), 2)
        plain, compiled = (evaluation.evaluate(model, batches, jit=jit) for jit in (False, True))
        atol = plain.scored * rounding.of_scores(model.config, 20)
        self.assertAlmostEqual(plain.nats, compiled.nats, delta=atol)

    def test_first_batches_alone(self):
        seen = []
        found = evaluation.evaluate(
            make_model(),
            self.batches(helpers.draw_ids(40), 2),
            max_batches=2,
            progress=lambda done, batches, totals: seen.append((done, batches, totals.scored)),
        )
        self.assertEqual(seen, [(1, 2, 8), (2, 2, 16)])
        self.assertEqual((found.targets, found.scored), (39, 16))

    def test_data_of_another_vocabulary(self):  # AC16
        batches = self.batches(helpers.draw_ids(20), 1, vocab_size=12)
        with self.assertRaisesRegex(ValueError, "vocab_size must be the data's 12, got 11"):
            evaluation.evaluate(make_model(), batches)

    @parameterized.product(name=("ids", "targets"), jit=(False, True))
    def test_id_outside_the_vocabulary(self, name, jit):  # AC16
        batches = self.batches(helpers.draw_ids(5), 1)
        (batch,) = batches.arrays(epochs=1)
        getattr(batch, name)[0, 2] = 11  # the reader would have refused it
        batches.arrays = lambda epochs: (x for x in [batch])
        message = rf"{name} must lie in 0\.\.10 \(vocabulary of 11\), got 11"
        with self.assertRaisesRegex(ValueError, message):
            evaluation.evaluate(make_model(), batches, jit=jit)


if __name__ == "__main__":
    absltest.main()
