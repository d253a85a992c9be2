"""Tests of c_api, the C library without TensorFlow's Python, against a SavedModel in Python."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from absl.testing import absltest, parameterized

import c_api
import helpers
import toy_export
import trained


def run_alone(folder, requests, *options):
    """Answers requests in a process of its own -> (its answers, what it printed, stderr)."""
    work = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
    np.savez(work / "requests.npz", **requests)
    files = (folder, work / "requests.npz", work / "answers.npz")
    command = [sys.executable, str(helpers.ROOT / "tests" / "c_api.py"), *map(str, files), *options]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    answers = dict(np.load(work / "answers.npz")) if not done.returncode else {}
    return answers, done.stdout, done.stderr


class SessionTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        cls.paths = {
            dtype: toy_export.write(folder / dtype, state_dtype=dtype)
            for dtype in ("float32", "float16")
        }
        cls.loaded = {dtype: tf.saved_model.load(str(p)) for dtype, p in cls.paths.items()}

    def expected(self, dtype, signature, **inputs):
        function = self.loaded[dtype].signatures[signature]
        found = function(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in found.items()}

    def check(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            self.assertEqual((found[name].dtype, found[name].shape), (value.dtype, value.shape))
            np.testing.assert_array_equal(found[name], value)

    @parameterized.product(dtype=("float32", "float16"), ids=(np.int32, np.int64))
    def test_numbers(self, dtype, ids):
        state = self.expected(dtype, "initial_state", batch_size=np.int32(2))
        signature = "step" if ids == np.int32 else "step_int64"
        inputs = dict(input_ids=np.array([[1, 2], [3, 4]], ids), lengths=np.array([2, 1], ids))
        with c_api.Session(self.paths[dtype]) as session:
            self.check(session.run("initial_state", batch_size=np.int32(2)), state)
            found = session.run(signature, **inputs, **state)
            self.check(found, self.expected(dtype, signature, **inputs, **state))
            state.pop("mem_length")
            turned = {name: value[:, :, :, ::-1] for name, value in state.items()}  # a view
            rest = dict(mem_length=np.array([5, 5], np.int32))
            found = session.run(signature, **inputs, **turned, **rest)
            self.check(found, self.expected(dtype, signature, **inputs, **turned, **rest))

    @parameterized.parameters([["süß".encode(), b"a\0b\0"]], [["ü" * 40]])  # long ones are apart
    def test_strings(self, texts):
        text = np.array(texts, object)
        with c_api.Session(self.paths["float32"]) as session:
            self.check(
                session.run("score", text=text), self.expected("float32", "score", text=text)
            )
            encoded = session.run("encode", text=text)
            decoded = session.run("decode", **encoded)["text"]
        expected = [t.encode() if isinstance(t, str) else t for t in texts]
        self.assertEqual(decoded.tolist(), expected)

    def test_nothing(self):
        with c_api.Session(self.paths["float32"]) as session:
            found = session.run(
                "decode", ids=np.zeros([0, 3], np.int32), lengths=np.zeros([0], np.int32)
            )
        self.assertEqual((found["text"].shape, found["text"].dtype), ((0,), object))

    @parameterized.parameters(
        ("nope", {}, 'Serving signature name: "nope" not found in signature def'),
        ("encode", {}, r"inputs must be \['text'\], got \[\]"),
        ("initial_state", dict(batch_size=np.int64(1)), "to be int32 but int64 is provided"),
        ("initial_state", dict(batch_size=np.uint8(1)), "no tensors of dtype uint8"),
    )
    def test_refusals(self, signature, inputs, message):
        with (
            c_api.Session(self.paths["float32"]) as session,
            self.assertRaisesRegex(c_api.Error, message) as raised,
        ):
            session.run(signature, **inputs)
        self.assertEqual(raised.exception.code, c_api.INVALID_ARGUMENT)

    def test_refusals_inside_the_graph(self):
        state = self.expected("float32", "initial_state", batch_size=np.int32(1))
        inputs = dict(input_ids=np.array([[256]], np.int32), lengths=np.array([1], np.int32))
        with (
            c_api.Session(self.paths["float32"]) as session,
            self.assertRaisesRegex(c_api.Error, "ids must lie in 0..255") as raised,
        ):
            session.run("step", **inputs, **state)
        self.assertEqual(raised.exception.code, c_api.INVALID_ARGUMENT)

    def test_what_is_not_an_export_is_rejected(self):
        folder = helpers.temp_dir(self)
        with self.assertRaises(FileNotFoundError):
            c_api.Session(folder)
        (folder / "assets.extra").mkdir()
        (folder / "assets.extra" / "model.json").write_text("{}")
        with self.assertRaisesRegex(c_api.Error, "Could not find SavedModel"):
            c_api.Session(folder)

    def test_alone_without_tensorflows_python(self):
        text = np.array(["süß".encode(), b"ab"])
        requests = {
            "0/encode/text": text,
            "1/encode/text": text[:1],
            "0/initial_state/batch_size": np.int32(3),
        }
        found, printed, _ = run_alone(self.paths["float16"], requests)
        self.assertEqual(json.loads(printed), [])
        expected = self.expected("float16", "encode", text=text)
        np.testing.assert_array_equal(found["0/encode/ids"], expected["ids"])
        self.assertEqual(found["1/encode/ids"].shape, (1, 5))
        self.assertEqual(found["0/initial_state/keys"].dtype, np.float16)


class LibraryTest(absltest.TestCase):
    """Ops of other libraries: SentencePiece's, from tensorflow_text."""

    def test_an_op_is_known_once_its_library_is_loaded(self):
        folder = helpers.temp_dir(self)
        data_dir = trained.prepare_data(folder, "sentencepiece", vocab_size=300)
        model = (pathlib.Path(data_dir) / "sentencepiece.model").read_bytes()

        module = tf.Module()
        module.tokenizer = tf_text.SentencepieceTokenizer(model)
        specs = [tf.TensorSpec([None], tf.string, "text")]
        encode = tf.function(
            lambda text: dict(ids=module.tokenizer.tokenize(text).to_tensor()), specs
        )
        path = toy_export.save(module, folder / "1", {"encode": encode})

        requests = {"0/encode/text": np.array([b"kaka lo"])}
        _, _, stderr = run_alone(path, requests)
        self.assertRegex(stderr, "Op type not registered 'SentencepieceOp'")
        found, printed, stderr = run_alone(path, requests, f"--library={c_api.text_ops()}")
        self.assertEqual(json.loads(printed), [])
        expected = module.tokenizer.tokenize(["kaka lo"]).to_tensor()
        np.testing.assert_array_equal(found["0/encode/ids"], expected)


if __name__ == "__main__":
    absltest.main()
