"""Work that does not fit into memory is rejected before it begins."""

import dataclasses
from unittest import mock

from absl.testing import absltest, parameterized

import helpers
import trained
from txl_tf import model_dir
from txl_tf.classification import config as configs
from txl_tf.classification.classifier import Classifier
from txl_tf.configs import presets
from txl_tf.configs.run import override, override_all
from txl_tf.data.text import Piece
from txl_tf.data.tokenizers import ByteTokenizer
from txl_tf.inference.decode_state import STATES
from txl_tf.inference.generation import Conversation, Generator
from txl_tf.inference.model_scorer import Scorer
from txl_tf.inference.text_scorer import lines
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops import machine
from txl_tf.training import memory_check


def of_limit(limit):
    return mock.patch.object(machine, "memory_limit", return_value=limit)


class MachineTest(parameterized.TestCase):
    def test_this_machine_has_some(self):
        self.assertGreater(machine.memory_limit(), 1 << 28)

    @parameterized.parameters(
        (999, "999 B"), (25_234_567_890, "25.23 GB"), (2 * 10**30, "2e+15 PB")
    )
    def test_bytes_for_people(self, size, expected):
        self.assertEqual(machine._format(size), expected)

    def test_refusal(self):
        with of_limit(10**9):
            machine.check_memory({"x": 10**9}, {})
            message = (
                r"^memory must be at least 4.1 TB \(4 TB of y, 100 GB of x\), got 1 GB on this "
                "machine; lower one of rows 3, mem_len 4$"
            )
            with self.assertRaisesRegex(ValueError, message):
                parts = dict(x=10**11, y=4 * 10**12, small=10)
                machine.check_memory(parts, dict(rows=3, mem_len=4))
        with of_limit(None):
            machine.check_memory({"x": 10**30}, {})


class TrainingTest(parameterized.TestCase):
    def test_a_preset_fits(self):
        with of_limit(10**9):
            memory_check.check_memory(presets.preset("tiny"), 1)
            memory_check.check_validation_memory(presets.preset("tiny"))

    def test_validation_takes_as_many_bytes_a_number_as_training_computes_in(self):
        config = override(presets.preset("tiny"), "eval.mem_len=1000000")
        with of_limit(50 * 10**9):
            with self.assertRaisesRegex(ValueError, "of state.* lower one of eval.batch_size"):
                memory_check.check_validation_memory(config)
            half = override(config, "train.precision=bfloat16")
            memory_check.check_validation_memory(half)

    @parameterized.parameters(
        "train.batch_size=1000000000",
        "train.segment_len=1000000000",
        "train.sample_length=1000000000",
        "model.mem_len=1000000000",
        "model.num_layers=1000000000",
        "model.d_model=1000000000",
        "model.vocab_size=1000000000",
        "model.feed_forward=switch(experts=1000000)",
        "model.attention=local(window=1000000),model.mem_len=10000000",
        "eval.batch_size=1000000000",
        "eval.mem_len=1000000000",
        "eval.segment_len=1000000000",
    )
    def test_too_large(self, *assignments):
        assignments = assignments[0].split(",model.")
        changes = [assignments[0], *(f"model.{text}" for text in assignments[1:])]
        config = override_all(presets.preset("tiny"), changes)
        name = changes[-1].partition("=")[0].removeprefix("model.").removeprefix("train.")
        message = rf"memory must be at least .* got 16 GB on this machine; lower one of .*{name} "
        with of_limit(16 * 10**9), self.assertRaisesRegex(ValueError, message):
            memory_check.check_memory(config, 1)
            memory_check.check_validation_memory(config)


class InferenceTest(parameterized.TestCase):
    def model(self, **changes):
        return TransformerXL(helpers.tiny_config(vocab_size=256, **changes))

    @parameterized.parameters(*STATES)
    def test_states(self, name):
        model = self.model()
        state = STATES[name](model)
        with of_limit(10**6):
            with self.assertRaisesRegex(
                ValueError, "of state.* rows 1000, tokens 1, mem_len 4, segment"
            ):
                state.initial(1000)
            rows = helpers.draw_ids(2, 600)
            with self.assertRaisesRegex(ValueError, "of activations.*rows 2, tokens 600, mem_len"):
                state.scores(rows, state.initial(2))
            huge = self.model(mem_len=10**9)
            with self.assertRaisesRegex(
                ValueError, "rows 1, tokens 1, mem_len 1000000000, segment_len"
            ):
                STATES[name](huge)

    def test_one_text_is_one_row_whatever_the_batch(self):
        scorer = Scorer(self.model(), ByteTokenizer(), segment_len=4, batch_size=10_000)
        with of_limit(10**6):
            self.assertEqual(scorer.score("abc").num_tokens, 3)
            with self.assertRaisesRegex(ValueError, "lower one of batch_size 10000, mem_len 4"):
                scorer.score_each(lines([Piece(b"abc")]))

    def test_generation(self):
        generator = Generator(self.model(), ByteTokenizer())
        with of_limit(10**7):
            with self.assertRaisesRegex(
                ValueError, "lower one of prompts 1, num_samples 100000, length 3, mem"
            ):
                generator.samples(["a"], 3, num_samples=100_000)
            with self.assertRaisesRegex(
                ValueError, "lower one of prompts 1, num_beams 100000, length 3, mem_"
            ):
                generator.beams(["a"], 3, num_beams=100_000)
            with self.assertRaisesRegex(
                ValueError, "48 MB of generated.* length 1000000, mem_len 4, segment_len"
            ):
                generator.samples(["a"], 1_000_000)
            with self.assertRaisesRegex(
                ValueError, "48 MB of generated.* length 1000000, mem_len 4"
            ):
                next(Conversation(generator).write(1_000_000))

    def test_a_folder_of_a_model(self):
        folder = trained.describe(
            helpers.temp_dir(self), trained.prepare_data(helpers.temp_dir(self))
        )
        with (
            of_limit(10**3),
            self.assertRaisesRegex(ValueError, f"of weights of {folder}.*d_model 8"),
        ):
            model_dir.load(folder)

    def test_a_classifier(self):
        start = dataclasses.replace(configs.start("encoder"), labels=("a", "b"))
        classifier = Classifier(start, ByteTokenizer())
        with of_limit(10**8):
            classifier.check_memory(10)
            message = "batch_size 16, tokens_of_a_text 4096, vocab_size 256, num_layers 2"
            with self.assertRaisesRegex(ValueError, message):
                classifier.check_memory(3000)
            large = override_all(start, ["model.d_model=1000000"])
            with self.assertRaisesRegex(ValueError, "of weights.* d_model 1000000"):
                Classifier(large, ByteTokenizer())

    def test_scoring(self):
        with self.assertRaisesRegex(
            ValueError, "memory must be at least .* batch_size 1000000000000,"
        ):
            Scorer(self.model(), ByteTokenizer(), batch_size=10**12).score_each([])


if __name__ == "__main__":
    absltest.main()
