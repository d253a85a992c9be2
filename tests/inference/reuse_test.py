"""Repeated calls of a function compile it once."""

import pathlib
import tempfile

import keras
import numpy as np
from absl.testing import absltest

import helpers
from txl_tf.data.batches import Batches
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.inference import evaluation, generation, reuse
from txl_tf.models.transformer_xl import TransformerXL


def make_model(**changes):
    return helpers.loud(TransformerXL(helpers.tiny_config(**changes)))


class ReuseTest(absltest.TestCase):
    def test_the_least_lately_used_goes_first(self):
        model, made = make_model(), []
        for key in (1, 2, 3, 4, 1, 5, 1, 2):
            found = reuse.kept(model, key, lambda key=key: made.append(key) or key)
            self.assertEqual(found, key)
        self.assertEqual(made, [1, 2, 3, 4, 5, 2])

    def test_it_is_no_part_of_the_model(self):
        model = make_model()
        reuse.kept(model, 1, lambda: make_model())
        path = pathlib.Path(tempfile.mkdtemp()) / "model.keras"
        self.addCleanup(path.unlink)
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertLen(model.weights, len(loaded.weights))
        for ours, theirs in zip(model.weights, loaded.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_generate_follows_the_weights_and_compiles_once(self):
        model, tokenizer = make_model(vocab_size=256), ByteTokenizer()

        def run():
            return generation.generate(model, tokenizer, ["ab"], 5, seed=3)

        first = run()
        (generator,) = vars(model)["_kept_runners"].values()
        helpers.loud(model, seed=8)
        second = run()
        self.assertEqual(generator._decoder.write.experimental_get_tracing_count(), 1)
        self.assertNotEqual(first, second)
        fresh = generation.Generator(model, tokenizer).samples(["ab"], 5, seed=3)
        self.assertEqual(second, fresh)

    def test_evaluate_follows_the_weights_and_compiles_once(self):
        data_dir = helpers.write_data(helpers.temp_dir(self) / "data", valid=60)
        batches = Batches(str(data_dir), "valid", batch_size=2, segment_len=5, mode="eval")
        model = make_model()
        first = evaluation.evaluate(model, batches)
        (evaluator,) = vars(model)["_kept_runners"].values()
        traced = evaluator._step.experimental_get_tracing_count()
        helpers.loud(model, seed=8)
        second = evaluation.evaluate(model, batches)
        self.assertEqual(evaluator._step.experimental_get_tracing_count(), traced)
        self.assertEqual(second, evaluation.Evaluator(model, segment_len=5).evaluate(batches))
        self.assertNotEqual(first.nats, second.nats)


if __name__ == "__main__":
    absltest.main()
