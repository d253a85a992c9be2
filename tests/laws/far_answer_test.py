"""A label given far before the end is learned only by models that read the whole text."""

import keras
import pytest
from absl.testing import absltest, parameterized

import far_answer
import helpers
from txl_tf.classification import batches, training
from txl_tf.classification import config as classifier_configs
from txl_tf.classification.classifier import Classifier
from txl_tf.configs import run as configs
from txl_tf.data import labelled_text

_QUARTER = dict(length=750, earliest=25, latest=175)  # of the lengths in docs/classification.md
_SETTINGS = (
    "model.d_model=32",
    "model.num_heads=2",
    "model.dropout=0",
    "train.batch_size=8",
    "train.train_steps=250",
    "train.learning_rate=3e-3",
    "train.warmup_steps=20",
    "train.clip_norm=1",
    "train.eval_every=50",
)


class TextsTest(absltest.TestCase):
    def test_the_answer_is_far_from_the_end_and_stands_there_alone(self):
        source = "".join(f"Line {n} of a long text.\n" for n in range(1000))
        pairs = far_answer.texts(source, 20, seed=1)
        self.assertEqual([label for label, _ in pairs].count("amber"), 10)
        for label, content in pairs:
            self.assertGreater(far_answer.characters_after_answer(label, content), 2000)
            for word in far_answer.LABELS:
                self.assertEqual(content.lower().count(word), 2 + (word == label))
                self.assertNotIn(word.upper(), content[-2048:])
        self.assertEqual(pairs, far_answer.texts(source, 20, seed=1))


@pytest.mark.slow
class FarAnswerTest(parameterized.TestCase):
    """The label stands more than 500 tokens before the end; two layers of attention see 64."""

    def accuracy(self, backbone, *settings, max_tokens=896):
        folder = helpers.temp_dir(self)
        paths = far_answer.write_splits(folder, **_QUARTER)
        train, valid, test = (labelled_text.read(paths[s]) for s in ("train", "valid", "test"))
        start = classifier_configs.start(backbone)
        labels = labelled_text.labels_of(train, paths["train"])
        config = classifier_configs.ClassifierConfig(**vars(start) | {"labels": labels})
        config = configs.override_all(
            config, [*_SETTINGS, f"text.max_tokens={max_tokens}", *settings]
        )
        keras.utils.set_random_seed(config.train.seed)
        classifier = Classifier(config, batches.make_tokenizer(config.text, train))
        training.train(classifier, train, valid, str(folder / "model"))
        return classifier.evaluate(classifier.encode(test)).accuracy

    @parameterized.parameters(
        ("encoder", "text.pooling=max", "model.d_inner=64"),
        ("causal", "text.pooling=max", "model.d_inner=64", "train.segment_len=112"),
        ("star", "text.pooling=max"),
    )
    def test_who_reads_all_learns_it(self, backbone, *settings):
        self.assertGreater(self.accuracy(backbone, *settings), 0.9)

    def test_who_reads_the_end_can_only_guess(self):
        end = ("text.pooling=max", "model.d_inner=64", "text.keep=last")
        found = self.accuracy("encoder", *end, max_tokens=128)
        self.assertBetween(found, 0.35, 0.65)  # 200 texts: chance is 0.5, give or take 0.035


if __name__ == "__main__":
    absltest.main()
