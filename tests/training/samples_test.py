"""Tests of the training samples of txl_tf.training.reporter."""

from absl.testing import absltest

import helpers
from txl_tf.configs.run import Config, EvalConfig, TrainConfig
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.inference.generation import Generator
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import reporter


class SamplesTest(absltest.TestCase):
    def test_a_sample_is_of_the_weights_there_are(self):
        model = helpers.loud(TransformerXL(helpers.tiny_config(vocab_size=256)), deviation=0.3)
        written = reporter.TrainingSamples(model, ByteTokenizer(), length=40, seed=3)
        texts = []
        for seed in (1, 2):  # distances are projected anew after the weights have changed
            helpers.loud(model, seed, deviation=0.3)
            ((expected,),) = Generator(model, ByteTokenizer()).samples([""], 40, seed=3)
            texts.append(written.write())
            self.assertEqual(texts[-1], expected.text)
        self.assertNotEqual(*texts)
        self.assertEqual(written.write(), texts[-1])

    def test_a_model_without_memory_writes_none(self):
        config = Config(
            model=helpers.tiny_config(mem_len=8),
            train=TrainConfig(sample_length=5),
            eval=EvalConfig(mem_len=0),
        )
        with self.assertRaisesRegex(ValueError, "sample_length must be 0 without mem_len .* got 5"):
            reporter.check(config)


if __name__ == "__main__":
    absltest.main()
