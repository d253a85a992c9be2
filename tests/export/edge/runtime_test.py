"""Tests of txl_tf.export.edge.runtime: outputs on a device equal those of the model."""

import atexit
import functools
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from absl.testing import absltest, parameterized
from ai_edge_litert.interpreter import Interpreter

import helpers
import rounding
from txl_tf.configs.run import Config
from txl_tf.data import text, tokenizers, vocabulary
from txl_tf.export.edge import runtime, tflite
from txl_tf.inference.model_scorer import Scorer
from txl_tf.models.transformer_xl import TransformerXL

B, T, M, V = 1, 4, 8, 11
STATE = [B, 2, 2, M, 4]
TEXT = "abc adbca jihgf\nabcabc"

WITHOUT_TENSORFLOW = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from txl_tf.export.edge import runtime
score = runtime.scorer(sys.argv[1]).score(sys.argv[2])
assert not {"tensorflow", "keras"} & set(sys.modules), "loaded"
print(score.nats)
"""


def tokenizer(vocab_size=V):
    symbols = [*map(chr, range(97, 96 + vocab_size)), "<unk>"]
    return tokenizers.CharTokenizer(
        vocabulary=vocabulary.Vocabulary(symbols), end_of_line="none", unknown="unk"
    )


@functools.cache
def exported(**options):
    """What `export` gives, once for all tests that leave its files as they are."""
    holder = absltest.TestCase()
    atexit.register(holder.doCleanups)
    return export(holder, **options)


def export(test_case, segment_len=T, batch_size=B, seed=0, quantize="none", **changes):
    """-> (model, path of its .tflite file)"""
    model = helpers.loud(TransformerXL(helpers.tiny_config(**dict(mem_len=M) | changes)), seed)
    path = str(helpers.temp_dir(test_case) / "model.tflite")
    tflite.export_tflite(
        model,
        tokenizer(model.config.vocab_size),
        Config(model=model.config),
        path,
        segment_len=segment_len,
        batch_size=batch_size,
        quantize=quantize,
    )
    return model, path


def atol_of(model):
    return rounding.of_scores(model.config, 64)


class EdgeTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model, cls.path = exported()
        cls.edge = runtime.EdgeModel(cls.path)

    def copy(self):
        folder = helpers.temp_dir(self) / "copy"
        shutil.copytree(pathlib.Path(self.path).parent, folder)
        return folder / "model.tflite"

    def test_signatures_are_the_documented_ones(self):
        interpreter = Interpreter(model_path=self.path)
        state = {"keys": (STATE, "float32"), "values": (STATE, "float32")}
        state["mem_length"] = ([B], "int32")
        ids = ([B, T], "int32")
        inputs = state | {"input_ids": ids, "lengths": ([B], "int32")}
        expected = {
            "step": (inputs, state | {"scores": ([B, T, V], "float32")}),
            "score": (inputs | {"targets": ids}, state | {"log_probs": ([B, T], "float32")}),
        }
        self.assertEqual(interpreter.get_signature_list().keys(), expected.keys())
        described = json.loads(self.edge_file("model.json"))["signatures"]
        for name, sides in expected.items():
            runner = interpreter.get_signature_runner(name)
            details = (runner.get_input_details(), runner.get_output_details())
            for side, found, wanted in zip(("inputs", "outputs"), details, sides, strict=True):
                got = {k: (d["shape"].tolist(), d["dtype"].__name__) for k, d in found.items()}
                self.assertEqual(got, wanted)
                told = {k: (d["shape"], d["dtype"]) for k, d in described[name][side].items()}
                self.assertEqual(told, wanted)

    def edge_file(self, name):
        return (pathlib.Path(runtime.assets_of(self.path)) / name).read_text()

    def test_three_chained_steps_are_the_models(self):
        ids = helpers.draw_ids(B, 3 * T)
        state, mems = self.edge.initial(B), None
        for start in range(0, 3 * T, T):
            part = ids[:, start : start + T]
            found, state = self.edge.step(part, state)
            expected, mems = self.model(part, mems)
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol_of(self.model))
        self.assertEqual(state["mem_length"], M)
        fresh, _ = self.edge.step(part, self.edge.initial(B))
        self.assertGreater(np.abs(fresh - found).max(), 0.1)  # the state counts

    def test_nll_is_the_models(self):
        ids, targets = helpers.draw_ids(B, T), helpers.draw_ids(B, T, seed=1)
        targets[0, 1] = -1
        found, _ = self.edge.nll(ids, targets, self.edge.initial(B))
        expected, _ = self.model.nll(ids, targets)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol_of(self.model))
        self.assertEqual(found[0, 1], 0.0)

    def test_rows_of_different_lengths(self):
        model, path = exported(batch_size=3)
        found = runtime.EdgeModel(path)
        ids, lengths = helpers.draw_ids(3, 2 * T), np.array([4, 0, 3], np.int32)
        state, mems = found.initial(3), None
        for start in (0, T):
            part = ids[:, start : start + T]
            scores, state = found.step(part, state, lengths)
            expected, mems = model(part, mems, lengths=lengths)
            for row, length in enumerate(lengths):
                ours, theirs = scores[row, :length], expected[row, :length]
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol_of(model))
        self.assertEqual(state["mem_length"].tolist(), [8, 0, 6])

    def test_fewer_rows_and_ids_than_the_model_has(self):
        model, path = exported(batch_size=3)
        found = runtime.EdgeModel(path)
        ids = helpers.draw_ids(2, 3)
        state, mems = found.initial(2), None
        for _ in range(3):
            nll, state = found.nll(ids, ids, state)
            expected, mems = model.nll(ids, ids, mems)
            np.testing.assert_allclose(nll, expected, rtol=0, atol=atol_of(model))
        self.assertEqual(state["mem_length"].tolist(), [8, 8, 0])

    @parameterized.parameters(False, True)
    def test_zeros_that_count_as_read(self, pre_norm):
        model, path = exported(attend_to_initial_zeros=True, pre_norm=pre_norm)
        found, ids = runtime.EdgeModel(path), helpers.draw_ids(B, T)
        state = found.initial(B)
        self.assertEqual(state["mem_length"], M)
        self.assertEqual(bool(state["keys"].any()), pre_norm)
        scores, _ = found.step(ids, state)
        np.testing.assert_allclose(scores, model(ids)[0], rtol=0, atol=atol_of(model))

    def test_texts_score_as_by_the_model(self):
        expected = Scorer(self.model, tokenizer(), segment_len=T).score(TEXT)
        found = runtime.scorer(self.path).score(TEXT)
        self.assertEqual(found.tokens, expected.tokens)
        atol = atol_of(self.model)
        np.testing.assert_allclose(found.log_probs[1:], expected.log_probs[1:], rtol=0, atol=atol)
        self.assertAlmostEqual(found.bits_per_byte, expected.bits_per_byte, delta=2 * atol)

    def test_many_texts_score_as_one_by_one(self):
        model, path = exported(batch_size=3)
        scorer = runtime.scorer(path)
        lines = [b"abc", b"", b"a", b"jihgfedcba" * 3, b"bca"]
        found = list(scorer.score_each(map(text.Piece, lines)))
        for line, one in zip(lines, found, strict=True):
            if line:
                atol = len(line) * atol_of(model)
                self.assertAlmostEqual(one.nats, scorer.score(line).nats, delta=atol)

    def test_needs_no_tensorflow(self):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TENSORFLOW, self.path, TEXT],
            capture_output=True,
            text=True,
            cwd=helpers.ROOT,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = runtime.scorer(self.path).score(TEXT)
        atol = len(TEXT) * atol_of(self.model)
        self.assertAlmostEqual(float(done.stdout), expected.nats, delta=atol)

    @parameterized.parameters(
        ([[1, 11]], {}, r"input_ids must lie in 0\.\.10 \(vocabulary of 11\), got 11"),
        ([[-1]], {}, r"input_ids must lie in 0\.\.10 \(vocabulary of 11\), got -1"),
        ([[1] * 5], {}, r"input_ids must have at most 1 rows of 4 ids, got shape \(1, 5\)"),
        ([[1], [1]], {}, r"input_ids must have at most 1 rows of 4 ids, got shape \(2, 1\)"),
        ([[1, 2]], {"lengths": [3]}, r"lengths must be 1 numbers in 0\.\.2, got \[3\]"),
        ([[1, 2]], {"lengths": [1, 1]}, r"lengths must be 1 numbers in 0\.\.2, got \[1, 1\]"),
    )
    def test_wrong_input_is_refused_before_the_call(self, ids, others, message):
        state = self.edge.initial(B)
        with self.assertRaisesRegex(ValueError, message):
            self.edge.step(np.array(ids, np.int32), state, **others)

    def test_wrong_targets(self):
        ids, state = np.ones([1, 2], np.int32), self.edge.initial(B)
        with self.assertRaisesRegex(ValueError, r"targets must lie in 0\.\.10 .* got 11"):
            self.edge.nll(ids, np.array([[1, 11]]), state)
        with self.assertRaisesRegex(ValueError, r"targets must have shape \(1, 2\), got \(1, 1\)"):
            self.edge.nll(ids, np.array([[1]]), state)

    def test_state_of_another_model(self):
        other = self.edge.initial(B)
        other = {
            name: value[..., :5, :] if value.ndim > 1 else value for name, value in other.items()
        }
        ids = np.ones([1, 2], np.int32)
        message = (
            r"keys must have shape \[1, 2, 2, 8, 4\] and dtype float32, got "
            r"\[1, 2, 2, 5, 4\] and float32; a state fits its own model only"
        )
        with self.assertRaisesRegex(ValueError, message):
            self.edge.step(ids, other)
        with self.assertRaisesRegex(ValueError, "state must have keys of shape .* got mems"):
            self.edge.step(ids, {"mems": other["keys"]})
        full = self.edge.initial(B) | {"mem_length": np.array([9], np.int32)}
        with self.assertRaisesRegex(ValueError, r"mem_length must lie in 0\.\.8, got \[9\]"):
            self.edge.step(ids, full)
        with self.assertRaisesRegex(ValueError, r"batch_size must lie in 1\.\.1, got 2"):
            self.edge.initial(2)

    def test_a_truncated_file(self):
        path = self.copy()
        data = path.read_bytes()
        path.write_bytes(data[:-100])
        message = f"{path} must have {len(data)} bytes, as in .*model.json, got {len(data) - 100}"
        with self.assertRaisesRegex(ValueError, message):
            runtime.EdgeModel(str(path))

    def test_an_altered_file(self):
        path = self.copy()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 255
        path.write_bytes(data)
        with self.assertRaisesRegex(
            ValueError, f"{path} must be the file described in .* got another"
        ):
            runtime.EdgeModel(str(path))

    def test_missing_and_foreign_files(self):
        path = self.copy()
        with self.assertRaisesRegex(ValueError, "gone.tflite must be a file, got no such file"):
            runtime.EdgeModel(str(path.with_name("gone.tflite")))
        with self.assertRaisesRegex(ValueError, "gs://a/m.tflite must be a local file"):
            runtime.EdgeModel("gs://a/m.tflite")
        about = pathlib.Path(runtime.assets_of(str(path))) / "model.json"
        told = json.loads(about.read_text())
        about.write_text(json.dumps(told | {"format": 2}))
        with self.assertRaisesRegex(ValueError, "format must be 1, got 2; export the model again"):
            runtime.EdgeModel(str(path))
        about.write_text("{}")
        with self.assertRaisesRegex(
            ValueError, "model.json: description must have format, got none"
        ):
            runtime.EdgeModel(str(path))
        changed = json.dumps(told).replace('"shape": [1, 4]', '"shape": [1, 5]')
        changed = changed.replace('"shape": [1, 4, 11]', '"shape": [1, 5, 11]')
        about.write_text(changed.replace('"segment_len": 4', '"segment_len": 5'))
        message = r"model.json: signatures.\w+.inputs.\w+ must have shape \[1, 4\] as in .*tflite"
        with self.assertRaisesRegex(ValueError, message):
            runtime.EdgeModel(str(path))
        tokenizer = told["tokenizer"] | {"checksum": "feed"}
        about.write_text(json.dumps(told | {"tokenizer": tokenizer}))
        with self.assertRaisesRegex(ValueError, r"tokenizer.checksum feed in .* got another \("):
            runtime.EdgeModel(str(path))
        about.unlink()
        with self.assertRaisesRegex(ValueError, "must have .*model.json beside it, got none"):
            runtime.EdgeModel(str(path))


if __name__ == "__main__":
    absltest.main()
