"""Files written by earlier versions load and give the numbers that they gave then.

`tests/golden/written_at_94780b1.tar.xz` holds what the commit of that name wrote: prepared data, a
run of four steps, a classifier, a SavedModel, a .tflite file and three .keras files, all tiny, with
what they answered (expected.json, expected.npz).
"""

import functools
import json
import os
import pathlib
import shutil
import tarfile
import tempfile

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import txl_tf.models  # noqa: F401 - registers the models with Keras
from txl_tf import model_dir
from txl_tf.classification.classifier import Classifier
from txl_tf.configs.run import override
from txl_tf.data.batches import Batches
from txl_tf.data.labelled_text import Text
from txl_tf.export.edge import runtime
from txl_tf.inference.model_scorer import Scorer
from txl_tf.training.loop import train

_ARCHIVE = helpers.GOLDEN / "written_at_94780b1.tar.xz"


@functools.cache
def folder() -> str:
    path = tempfile.mkdtemp()
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(path, filter="data")
    return path


def path_of(name: str) -> str:
    return os.path.join(folder(), name)


def expected() -> dict:
    return json.loads(pathlib.Path(path_of("expected.json")).read_text())


def tolerance() -> float:
    """Returns the tolerance of scores, nats and probabilities; the models are of similar size."""
    return rounding.of_scores(model_dir.read_config(path_of("model")).model)


def expect_close(found, values):
    np.testing.assert_allclose(found, values, rtol=0, atol=tolerance())


def tearDownModule():  # noqa: N802
    shutil.rmtree(folder())


class WrittenBeforeTest(parameterized.TestCase):
    def test_prepared_data_give_the_same_batches(self):
        batches = Batches(path_of("data"), "train", batch_size=2, segment_len=8)
        first = next(batches.arrays())
        np.testing.assert_array_equal(first.ids, expected()["first_ids"])
        self.assertEqual(batches.steps_per_epoch, expected()["steps_per_epoch"])

    def test_a_model_dir_scores_the_same(self):
        loaded = model_dir.load(path_of("model"))
        self.assertEqual(loaded.step, 4)
        found = Scorer(loaded.model, loaded.tokenizer).score(expected()["text"]).log_probs
        expect_close(found[1:], expected()["log_probs"])

    def test_a_resumed_run_has_the_same_loss(self):
        folder = os.path.join(self.create_tempdir().full_path, "run")
        shutil.copytree(path_of("model"), folder)
        config = override(model_dir.read_config(folder), "train.train_steps=6")
        result = train(config, data_dir=path_of("data"), model_dir=folder)
        self.assertEqual(result.step, 6)
        self.assertAlmostEqual(result.nats_per_token, expected()["resumed"], delta=tolerance())

    def test_a_keras_file_scores_the_same(self):
        model = keras.saving.load_model(path_of("language_model.keras"))
        loaded = model_dir.load(path_of("model"))
        found = Scorer(model, loaded.tokenizer).score(expected()["text"]).log_probs
        expect_close(found[1:], expected()["log_probs"])

    @parameterized.parameters("classifier", "variants")
    def test_keras_files_of_other_kinds_score_the_same(self, name):
        model = keras.saving.load_model(path_of(f"{name}.keras"))
        ids = np.arange(20).reshape(2, 10) % 11
        scores = model(ids)
        if name == "variants":  # a language model: the second segment sees the first
            scores, _ = model(ids, scores[1])
        arrays = np.load(path_of("expected.npz"))
        expect_close(scores, arrays[name])

    def test_a_classifier_gives_the_same_label(self):
        found = Classifier.load(path_of("labels"))
        ((_, probabilities),) = found.predict([Text("line 1", "the old fox watch.")])
        for label, probability in expected()["probabilities"].items():
            self.assertAlmostEqual(probabilities[label], probability, delta=tolerance())

    def test_a_saved_model_scores_the_same(self):
        found = tf.saved_model.load(path_of("exported/1")).signatures["score"]
        answer = found(text=tf.constant([expected()["text"]]))["log_probs"]
        expect_close(answer[0, 1:], expected()["served_log_probs"])  # the first token has none

    def test_an_edge_file_scores_the_same(self):
        found = runtime.scorer(path_of("edge.tflite")).score(expected()["text"]).log_probs
        expect_close(found[1:], expected()["edge_log_probs"])


if __name__ == "__main__":
    absltest.main()
