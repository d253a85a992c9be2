"""Tests of scripts/benchmark.py: contenders compute the same, and results are printed."""

import contextlib
from unittest import mock

import numpy as np
import parity_test
import pytest
from absl.testing import absltest, parameterized

import helpers
import trained
from benchmarks import comparison
from benchmarks.options import Options
from benchmarks.suites import decoding, edge, evaluation, training
from txl_tf.configs.run import Config, EvalConfig, TrainConfig
from txl_tf.inference import decode_state as states
from txl_tf.inference.decoding import Decoder
from txl_tf.inference.sampling import Sampling
from txl_tf.models.transformer_xl import TransformerXL

SMALL = (
    "--set=model.num_layers=1",
    "--set=model.d_model=16",
    "--set=model.num_heads=2",
    "--set=model.head_dim=8",
    "--set=model.d_inner=16",
    "--set=model.mem_len=4",
    "--set=model.d_embed=none",
)
SHORT = (
    "--set=train.segment_len=6",
    "--set=eval.segment_len=5",
    "--set=eval.mem_len=9",
    "--set=eval.attention_span=9",
    "--set=eval.clamp_len=6",
)
WAYS = [(precision, jit) for precision in ("float32", "bfloat16") for jit in (False, True)]


@pytest.mark.slow
class BenchmarkProgramTest(parameterized.TestCase):
    def test_edge_rows(self):
        stdout, _ = trained.run("benchmark", "--suite=edge", "--repeats=1", *SMALL)
        found = trained.last_json(stdout)
        told = found["suite"], found["preset"], found["repeats"]
        self.assertEqual(told, ("edge", "tiny", 1))
        ways = {(row["runtime"], row["segment_len"]) for row in found["rows"]}
        names = ("SavedModel", "LiteRT none", "LiteRT dynamic")
        self.assertEqual(ways, {(name, size) for name in names for size in (1, 16)})
        for row in found["rows"]:
            self.assertLessEqual(row["fastest"], row["ms_per_token"])
            self.assertLessEqual(row["ms_per_token"], row["slowest"])
        self.assertLen(stdout.splitlines(), 2 + len(ways))

    def run_suite(self, *flags):
        """Returns the rows of a suite at a small size, after checking their common keys."""
        stdout, _ = trained.run("benchmark", "--repeats=1", *SMALL, *SHORT, *flags)
        found = trained.last_json(stdout)
        self.assertEqual(found["preset"], "enwik8_base")
        self.assertLen(stdout.splitlines(), 2 + len(found["rows"]))
        for row in found["rows"]:
            self.assertEqual(row.keys(), found["rows"][0].keys())
            self.assertLessEqual(row["fastest"], row["ms"])
            self.assertLessEqual(row["ms"], row["slowest"])
            self.assertAlmostEqual(row["gflops"] / row["ceiling"], row["of_ceiling"])
            self.assertBetween(row["of_ceiling"], 0, 1)
        return found["rows"]

    @pytest.mark.half_precision
    def test_train(self):
        rows = self.run_suite("--suite=train")
        self.assertEqual([(row["precision"], row["jit"]) for row in rows], WAYS)
        for row in rows:
            self.assertAlmostEqual(row["tokens_per_s"] * row["ms"] / 1e3, 2 * 6)
            self.assertBetween(row["peak_mb"], 100, 4000)

    @pytest.mark.half_precision
    def test_eval(self):
        rows = self.run_suite("--suite=eval")
        self.assertEqual([(row["precision"], row["jit"]) for row in rows], WAYS)
        for row in rows:
            self.assertAlmostEqual(row["tokens_per_s"] * row["ms"] / 1e3, 10 * 5)

    def test_decode(self):
        rows = self.run_suite("--suite=decode", "--precision=float32")
        self.assertEqual([row["batch_size"] for row in rows], [1, 8])
        for row in rows:
            self.assertAlmostEqual(row["tokens_per_s"] * row["ms"] / 1e3, row["batch_size"])

    @parameterized.parameters("train", "eval", "decode")
    def test_peers_must_be_an_interpreter(self, suite):
        flags = (f"--suite={suite}", f"--peers={parity_test.python()}", "--jit=false")
        rows = self.run_suite(*flags)
        ways = [(row["library"], row["precision"]) for row in rows[:4]]
        libraries = (comparison.THEIRS, comparison.OURS)
        self.assertEqual(ways, [(x, p) for x in libraries for p in ("float32", "bfloat16")])
        for row in rows[:4]:
            self.assertAlmostEqual(row["times_faster"], rows[0]["ms"] / row["ms"])

    def test_invalid_flags_are_rejected(self):
        for flags, message in (
            ((), "--suite is required"),
            (("--suite=edge", "--repeats=0"), "--repeats=0"),
            (("--suite=train", "--precision=float8"), "--precision=float8"),
        ):
            _, stderr = trained.run("benchmark", *flags, code=2)
            self.assertIn(message, stderr.splitlines()[-1])
        _, stderr = trained.run("benchmark", "--suite=eval", *SMALL, "--peers=/nowhere", code=1)
        self.assertIn("peer must be a Python interpreter, got /nowhere", stderr.splitlines()[-1])


class RefusalTest(parameterized.TestCase):
    """Contenders whose outputs differ are rejected."""

    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(comparison.timing, "race", side_effect=AssertionError))
        config = helpers.tiny_config(attend_to_initial_zeros=True, attention_span=4, init_std=0.3)
        self.config = Config(
            model=config,
            train=TrainConfig(batch_size=2, segment_len=4),
            eval=EvalConfig(batch_size=2, segment_len=3),
        )

    @parameterized.parameters(
        (training, "copy", "loss of txl_tf bfloat16 jit=false must be"),
        (evaluation, "reader", "loss of txl_tf bfloat16 jit=false must be"),
        (decoding, "reader", "log_probs of txl_tf bfloat16 must be"),
    )
    @pytest.mark.half_precision
    def test_wrong_weights_are_rejected(self, suite, name, message):
        make = getattr(comparison, name)

        def make_some(model, precision, **changes):
            copied = make(model, precision, **changes)
            return helpers.loud(copied) if precision == "bfloat16" else copied

        options = Options(repeats=1, jits=(False,))
        with self.assertRaises(AssertionError):  # equal ones come as far as the race
            suite.run(self.config, options)
        with (
            mock.patch.object(comparison, name, make_some),
            self.assertRaisesRegex(ValueError, message),
        ):
            suite.run(self.config, options)

    def test_decoding_must_be_greedy(self):
        state = states.make("kv", helpers.loud(TransformerXL(self.config.model)), 1)
        first = helpers.draw_ids(8, 1)
        for temperature, refusal in (
            (0.0, contextlib.nullcontext()),
            (1.0, self.assertRaisesRegex(ValueError, "log-probabilities of ids must be within")),
        ):
            decoder = Decoder(state, Sampling(temperature=temperature))
            with refusal:
                decoding._check_written(decoder, state, first, "float32")

    def test_edge_rows(self):
        scores = np.zeros([1, 1, 3], "float32")
        near, far, odd = scores + 1e-5, scores + 1e-3, scores + np.nan
        edge._check(lambda: scores, lambda: near, "LiteRT none", 1e-4)
        for found in (far, odd):
            with self.assertRaisesRegex(ValueError, "LiteRT none must be within 0.0001 of the"):
                edge._check(lambda: scores, lambda found=found: found, "LiteRT none", 1e-4)


if __name__ == "__main__":
    absltest.main()
