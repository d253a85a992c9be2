"""Tests of the files of a SavedModel, which runs without this package."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import c_api
import helpers
import rounding
from exported import (
    SIGNATURES,
    TEXT,
    call,
    folder_of,
    initial,
    make_model,
    make_tokenizer,
    model_chain,
    segments_of,
    signatures,
    write,
)
from txl_tf.configs import validation
from txl_tf.configs.run import Config
from txl_tf.data import tokenizers
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.export.serving import warmup
from txl_tf.export.serving.signatures import Signatures
from txl_tf.inference.model_scorer import Scorer


class FilesTest(parameterized.TestCase):
    def test_description(self):
        folder = folder_of()
        told = json.loads((folder / "assets.extra" / "model.json").read_text())
        self.assertEqual(list(told["signatures"]), SIGNATURES)
        self.assertEqual(told["state"]["keys"], {"shape": [-1, 2, 2, 4, 4], "dtype": "float32"})
        self.assertEqual(told["state_bytes_per_row"], 2 * 2 * 2 * 4 * 4 * 4 + 4)
        config = Config(model=make_model().config)
        self.assertEqual(
            validation.from_dict(type(config.model), told["config"]["model"]), config.model
        )
        step = told["signatures"]["step"]
        self.assertEqual(step["inputs"]["input_ids"]["tensor"], "step_input_ids:0")
        self.assertEqual(step["outputs"]["scores"]["shape"], [-1, -1, 11])

    def test_the_tokenizer_goes_along(self):
        found = tokenizers.load(str(folder_of("word") / "assets"))
        self.assertEqual(found.checksum, make_tokenizer("word").checksum)

    @parameterized.parameters("letters", "byte", "sentencepiece")
    def test_no_path_of_this_machine_is_inside(self, kind):
        for path in folder_of(kind).rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                for place in (tempfile.gettempdir(), str(helpers.ROOT)):
                    self.assertNotIn(place.encode() + b"/", data, path)

    @parameterized.parameters(("letters", "float16"), ("byte", "float32"), ("numbers", "float32"))
    def test_warm_up_requests_run(self, kind, state_dtype):
        options = {} if state_dtype == "float32" else dict(state_dtype=state_dtype)
        folder, found = folder_of(kind, **options), signatures(kind, **options)
        path = folder / "assets.extra" / warmup.FILE_NAME
        self.assertLess(path.stat().st_size, 5000)
        seen = set()
        for record in tf.data.TFRecordDataset(str(path)):
            log = warmup.prediction_log_pb2.PredictionLog.FromString(record.numpy())
            request = log.predict_log.request
            self.assertEqual(request.model_spec.name, "toy")
            inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
            call(found[request.model_spec.signature_name], **inputs)
            seen.add(request.model_spec.signature_name)
        self.assertEqual(seen, set(SIGNATURES) - {"serving_default"})

    def test_versions_stand_side_by_side(self):
        folder = helpers.temp_dir(self) / "toy"
        shutil.copytree(folder_of(), folder / "1")
        write(folder, version=2)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["1", "2"])
        before = (folder / "1" / "saved_model.pb").read_bytes()
        with self.assertRaisesRegex(
            ValueError, "output_dir must not hold version 1 yet, got .*toy/1"
        ):
            write(folder)
        self.assertEqual((folder / "1" / "saved_model.pb").read_bytes(), before)

    def test_nothing_is_left_of_a_failure(self):
        folder = helpers.temp_dir(self) / "toy"

        def save(module, draft, signatures):
            os.makedirs(os.path.join(draft, "variables"))
            raise OSError("disk full")

        with (
            mock.patch.object(Signatures, "concrete", return_value={}),
            mock.patch.object(tf.saved_model, "save", save),
            self.assertRaisesRegex(OSError, "disk full"),
        ):
            write(folder)
        self.assertFalse(folder.exists())

    def test_a_signature_that_fails_or_gives_nan_is_not_written(self):
        folder = helpers.temp_dir(self) / "toy"
        unread = mock.patch.object(warmup, "text_of", return_value="a")
        with (
            unread,
            self.assertRaisesRegex(
                ValueError,
                "signature score must run, got: .*only symbols of the vocabulary, got `a`",
            ),
        ):
            write(folder, "numbers")
        model = make_model("numbers", d_inner=12)
        model.blocks[0].trainable_variables[0].assign_add(np.nan)
        with self.assertRaisesRegex(ValueError, "step must give finite scores, got NaN or infin"):
            write(folder, "numbers", dict(d_inner=12))
        self.assertFalse(folder.exists())

    @parameterized.parameters(
        (dict(version=0), "version must be at least 1 and below 2.*63, got 0"),
        (
            dict(version=2**63),
            "version must be at least 1 and below 2.*63, got 9223372036854775808",
        ),
        (dict(state="both"), "state must be one of kv, hidden, got 'both'"),
        (dict(state_dtype="int8"), "state_dtype must be one of float32, float16, got 'int8'"),
        (dict(segment_len=0), "segment_len must be at least 1, got 0"),
    )
    def test_wrong_values(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            write(helpers.temp_dir(self) / "toy", **options)


class TextTest(parameterized.TestCase):
    @parameterized.parameters(
        (["\n", "7", "8"], {}, "7"),
        (["\n", "A", "b"], dict(lower_case=True), "b"),  # A would be refused
        (["\n"], {}, ""),
        (["<unk>", "\n", " ", "x"], dict(unknown="unk", blank_lines="drop"), "x"),
    )
    def test_of_characters(self, symbols, options, expected):
        tokenizer = tokenizers.CharTokenizer(
            vocabulary=Vocabulary(symbols), **(dict(unknown="error", end_of_line="none") | options)
        )
        self.assertEqual(warmup.text_of(tokenizer), expected)

    @parameterized.parameters("byte", "word", "sentencepiece")
    def test_of_other_kinds(self, kind):
        tokenizer = make_tokenizer(kind)
        text = warmup.text_of(tokenizer)
        self.assertTrue(text.isprintable() and text)
        self.assertNotIn(tokenizer.unknown_id, tokenizer.encode(text))


class ElsewhereTest(parameterized.TestCase):
    """A fresh process, and only the moved folder."""

    def test_by_tensorflow_alone(self):  # AC19
        program = """
import sys, numpy as np, tensorflow as tf
found = tf.saved_model.load(sys.argv[1]).signatures
state = found["initial_state"](batch_size=tf.constant(2))
for name in ("0", "1", "2"):
    ids = tf.constant(np.load(sys.argv[2])[name])
    out = found["serving_default"](input_ids=ids, lengths=tf.fill([2], 4), **state)
    np.save(sys.argv[3] + name, out.pop("scores"))
    state = out
print([name for name in sys.modules if name.startswith("txl_tf")])
"""
        folder, segments = helpers.temp_dir(self), segments_of(2, 4, 4, 4)
        np.savez(folder / "ids.npz", **{str(i): ids for i, ids in enumerate(segments)})
        command = [
            sys.executable,
            "-c",
            program,
            folder_of(),
            folder / "ids.npz",
            f"{folder}/scores",
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True)
        self.assertEqual(done.stdout.strip(), "[]")
        for i, expected in enumerate(model_chain(make_model(), segments)):
            atol = rounding.of_scores(make_model().config)
            found = np.load(folder / f"scores{i}.npy")
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    @parameterized.parameters("char", "sentencepiece")
    def test_by_the_c_library_alone(self, kind):
        folder = helpers.temp_dir(self)
        ids = helpers.draw_ids(3, 5)
        state = initial(signatures(kind), 3)
        requests = dict(input_ids=ids, lengths=np.array([5, 5, 5], "int32"), **state)
        requests = {f"0/step/{name}": value for name, value in requests.items()}
        requests["1/score/text"] = np.array([TEXT[:80].encode()])
        np.savez(folder / "requests.npz", **requests)
        command = [sys.executable, helpers.ROOT / "tests" / "c_api.py", folder_of(kind)]
        command += [folder / "requests.npz", folder / "answers.npz"]
        if kind == "sentencepiece":
            command.append(f"--library={c_api.text_ops()}")
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True)
        self.assertEqual(done.stdout.splitlines()[-1], "[]")  # no Python of TensorFlow
        answers = np.load(folder / "answers.npz")
        atol = rounding.of_scores(make_model(kind).config, 80)
        scores = answers["0/step/scores"]
        np.testing.assert_allclose(scores, make_model(kind)(ids)[0], rtol=0, atol=atol)
        expected = Scorer(make_model(kind), make_tokenizer(kind), segment_len=8).score(TEXT[:80])
        found = answers["1/score/log_probs"][0, 1:]
        np.testing.assert_allclose(found, expected.log_probs[1:], rtol=0, atol=atol)


if __name__ == "__main__":
    absltest.main()
