"""Tests of benchmarks.workers.hf_client: requests, errors and, with TXL_PARITY_ENV, equal outputs.

See parity_test.py for that environment.
"""

import json
import sys

import numpy as np
import parity_test
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from benchmarks import timing
from benchmarks.workers import hf_client
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.data.batches import Batch
from txl_tf.inference import decode_state as states
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer, step
from txl_tf.training.distribution import make_distribution

VERSIONS = '{"torch": "2.13.0"}'
FAKE = """\
#!{python}
import pathlib, sys

first, *answers = {answers!r}
print(first, flush=True)
for answer in answers:
    with open(pathlib.Path(__file__).with_name("asked"), "a") as file:
        file.write(sys.stdin.readline())
    print(answer, flush=True)
print({last_words!r}, file=sys.stderr)
sys.exit(3)
"""
STEPS, ROWS, TOKENS = 3, 2, 5
TRAIN = TrainConfig(batch_size=ROWS, segment_len=TOKENS, learning_rate=0.01, jit=False)


def make_model(**changes):
    changes = dict(attend_to_initial_zeros=True) | changes
    return helpers.loud(TransformerXL(helpers.tiny_config(**changes)), deviation=0.3)


def make_inputs(tokens=TOKENS):
    """Each step has ids and targets of every cluster: Adam of PyTorch leaves alone what is unread.

    Shapes: [STEPS, ROWS, tokens].
    """
    names = ("ids", "targets")
    inputs = {n: helpers.draw_ids(STEPS, ROWS, tokens, seed=i) for i, n in enumerate(names)}
    for array in inputs.values():
        array[:, 0, :3] = (0, 4, 8)[:tokens]
    return inputs


class ProtocolTest(parameterized.TestCase):
    """Runs the client against a stand-in of a few lines, without torch."""

    def interpreter(self, *answers, last_words=""):
        """Returns a program that answers with these lines, whatever the requests, and ends."""
        path = self.folder / "python"
        text = FAKE.format(python=sys.executable, answers=answers, last_words=last_words)
        path.write_text(text)
        path.chmod(0o700)
        return str(path)

    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)

    def test_responses_are_returned(self):
        with hf_client.Peer(
            self.interpreter(VERSIONS, '{"seconds": 0.25}', '{"bytes": 7}')
        ) as other:
            self.assertEqual(other.versions, {"torch": "2.13.0"})
            seconds = other.call("theirs")
            self.assertEqual((seconds, type(seconds)), (0.25, timing.Seconds))
            self.assertEqual(other.peak_bytes(), 7)

    def test_the_model_is_described(self):
        model = make_model(mem_len=3, attention_span=3, dropout=0.25)
        with hf_client.Peer(self.interpreter(VERSIONS, "{}")) as other:
            other.make("theirs", "train", model, TRAIN, make_inputs())
            asked = json.loads((self.folder / "asked").read_text())
            with np.load(asked["inputs"]) as inputs:
                np.testing.assert_array_equal(inputs["targets"], make_inputs()["targets"])
            with open(f"{asked['checkpoint']}/config.json") as file:
                self.assertEqual(json.load(file)["vocab_size"], 11)
        expected = dict(
            ask="make",
            name="theirs",
            work="train",
            mem_len=3,
            clamp_len=-1,
            same_length=True,
            dropout=0.25,
            precision="float32",
            learning_rate=0.01,
            betas=[0.9, 0.999],
            epsilon=1e-8,
            clip_norm=0.25,
        )
        self.assertEqual(asked, asked | expected)
        self.assertEqual(asked.keys(), expected.keys() | {"checkpoint", "inputs"})

    @parameterized.parameters(
        (
            dict(attend_to_initial_zeros=False),
            "of TransfoXL, got: zeros of an initial memory receive",
        ),
        (dict(attention_span=5), "got: same_length sees mem_len keys there, here 5"),
        (dict(attention=("topk(k=2)",)), "representable in huggingface, got attention topk"),
    )
    def test_a_model_that_differs_is_rejected(self, changes, message):
        with hf_client.Peer(self.interpreter(VERSIONS)) as other:
            config = helpers.tiny_config(**(dict(attend_to_initial_zeros=True) | changes))
            model = absltest.mock.Mock(config=config)
            with self.assertRaisesRegex(ValueError, message):
                other.make("theirs", "eval", model, TRAIN, make_inputs())

    def test_a_failed_request_does_not_end_the_process(self):
        answers = (VERSIONS, '{"error": "KeyError: 17"}', '{"bytes": 7}')
        with hf_client.Peer(self.interpreter(*answers)) as other:
            with self.assertRaisesRegex(ValueError, "^peer .*/python: KeyError: 17$"):
                other.call("theirs")
            self.assertEqual(other.peak_bytes(), 7)

    @parameterized.parameters(
        ("Warning: much\nMemoryError: all of it\n", "MemoryError: all of it"),
        ("", "the process ended with exit code 3"),
    )
    def test_the_end_of_the_process_is_reported(self, last_words, message):
        with hf_client.Peer(self.interpreter(VERSIONS, last_words=last_words)) as other:
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, f"^peer .*/python: {message}$"):
                    other.call("theirs")

    def test_a_missing_interpreter_is_reported(self):
        missing = str(self.folder / "nowhere")
        with self.assertRaisesRegex(ValueError, "^peer must be a Python.*/nowhere: No such file"):
            hf_client.Peer(missing)
        with self.assertRaisesRegex(ValueError, "^peer .*/python must have torch==.*, got Expect"):
            hf_client.Peer(self.interpreter("Usage: ..."))

    def test_missing_libraries_are_reported(self):
        path = self.folder / "python"
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        path.chmod(0o700)
        message = (
            "^peer .*/python must have torch==.* transformers==.*, got ModuleNotFoundError: .*"
        )
        with self.assertRaisesRegex(ValueError, message):
            hf_client.Peer(str(path))


@pytest.mark.slow
class EqualOutputsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other = cls.enterClassContext(hf_client.Peer(str(parity_test.python())))

    @parameterized.parameters(
        dict(),
        dict(mem_len=7, clamp_len=6, attention_span=7),
        dict(cutoffs=(3, 7), div_val=2, untie_biases=True),
    )
    def test_training_is_equal(self, **changes):
        inputs = make_inputs()
        self.other.make("train", "train", make_model(**changes, dropout=0.3), TRAIN, inputs)
        theirs = self.other.outputs("train")
        self.assertGreater(self.other.call("train"), 0)
        again = self.other.outputs("train")
        for name, ours in self.train(make_model(**changes), inputs).items():
            rtol = rounding.of_gradients(make_model(**changes).config, ROWS * TOKENS)
            np.testing.assert_allclose(theirs[name], ours, rtol=rtol)
            np.testing.assert_array_equal(again[name], theirs[name])

    def train(self, model, inputs):
        """Returns loss and gradient norm of each step."""
        adam = optimizer.make_optimizer(TRAIN)
        adam.build(model.trainable_variables)
        config = Config(model=model.config, train=TRAIN)
        train_step = step.make_train_step(model, adam, make_distribution("one_device"), config)
        memory, found = model.initial_mems(ROWS), []
        for ids, targets in zip(inputs["ids"], inputs["targets"], strict=True):
            batch = Batch(ids, targets, np.zeros([ROWS, TOKENS], bool), np.array(False))
            metrics, memory = train_step(Batch(*map(tf.constant, batch)), memory)
            found.append((float(metrics.loss), float(metrics.gradient_norm)))
        return dict(zip(("loss", "gradient_norm"), np.transpose(found), strict=True))

    @parameterized.parameters(
        dict(),
        dict(mem_len=7, clamp_len=6, attention_span=7),
        dict(cutoffs=(3, 7), div_val=2),
    )
    def test_evaluation_is_equal(self, **changes):
        model, inputs = make_model(**changes), make_inputs()
        self.other.make("eval", "eval", model, TRAIN, inputs)
        theirs = self.other.outputs("eval", STEPS)["loss"]
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(self.loss(model, inputs), theirs, rtol=0, atol=atol)
        self.assertGreater(self.other.call("eval"), 0)
        wider = model.with_lengths(attention_span=(model.config.attention_span or 4) + 1)
        self.assertGreater(np.abs(self.loss(wider, inputs) - theirs).max(), 1e-3)

    def loss(self, model, inputs):
        state = states.make("kv", model, TOKENS)
        memory, found = state.initial(ROWS), []
        for ids, targets in zip(inputs["ids"], inputs["targets"], strict=True):
            nll, memory = state.nll(tf.constant(ids), tf.constant(targets), memory)
            found.append(nll)
        return np.stack(found)

    @parameterized.parameters(dict(), dict(mem_len=7, attention_span=7), dict(cutoffs=(3, 7)))
    def test_decoding_is_equal(self, **changes):
        model, ids = make_model(**changes), make_inputs(tokens=1)["ids"]
        self.other.make("decode", "decode", model, TRAIN, dict(ids=ids))
        theirs = self.other.outputs("decode")["log_probs"]
        state = states.make("kv", model, 1)
        memory = state.initial(ROWS)
        for k in range(STEPS):
            scores, memory = state.scores(tf.constant(ids[k]), memory)
            ours = tf.nn.log_softmax(scores[:, -1])
            atol = rounding.of_scores(model.config)
            np.testing.assert_allclose(ours, theirs[k], rtol=0, atol=atol)
        for _ in range(STEPS + 1):  # the ids go round
            self.assertGreater(self.other.call("decode"), 0)

    @parameterized.parameters("train", "eval", "decode")
    def test_bfloat16_is_close_but_not_equal(self, work):
        model, found = make_model(), []
        for precision in ("float32", "bfloat16"):
            train = TrainConfig(precision=precision)
            self.other.make(work, work, model, train, make_inputs(tokens=1))
            found.append(self.other.outputs(work))
        for name, exact in found[0].items():
            np.testing.assert_allclose(found[1][name], exact, rtol=0.05, atol=0.05)
            self.assertGreater(np.abs(found[1][name] - exact).max(), 1e-5)

    def test_a_failed_request_does_not_end_the_process(self):
        with self.assertRaisesRegex(ValueError, ": KeyError: 'sing'$"):
            self.other.make("song", "sing", make_model(), TRAIN, make_inputs())
        with self.assertRaisesRegex(ValueError, ": KeyError: 'song'$"):
            self.other.call("song")
        self.assertGreater(self.other.peak_bytes(), 2**26)
        self.assertLess(self.other.peak_bytes(), 2**30)


if __name__ == "__main__":
    absltest.main()
