"""Tests of txl_tf.classification: encoding, batches, scores, training and saved classifiers."""

import dataclasses
import itertools
import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf import model_dir as model_dirs
from txl_tf.classification import batches, training
from txl_tf.classification import config as classify_config
from txl_tf.classification.classifier import Classifier
from txl_tf.classification.config import ClassifierConfig, TextConfig, start
from txl_tf.classification.metrics import Scores
from txl_tf.configs import run as configs
from txl_tf.data import outputs, tokenizers
from txl_tf.data.labelled_text import Text
from txl_tf.training.skips import NonFiniteError
from txl_tf.training.step import Metrics

LABELS = ("few", "many")


def small(backbone="encoder", attention="local(window=32)", layers=1, position="xl", **text):
    """A config that trains in seconds."""
    model = dict(num_layers=layers, d_model=8, num_heads=2, head_dim=4, dropout=0)
    if backbone != "star":
        model |= dict(attention=attention, position=position, d_inner=16)
    train = dict(
        batch_size=8,
        segment_len=16,
        train_steps=60,
        warmup_steps=5,
        learning_rate=2e-2,
        eval_every=20,
    )
    sections = dict(model=model, train=train, text=dict(max_tokens=64) | text)
    return configs.override_all(
        dataclasses.replace(start(backbone), labels=LABELS),
        [
            f"{section}.{name}={value}"
            for section, values in sections.items()
            for name, value in values.items()
        ],
    )


def draw_texts(count, seed=0):
    """Texts of a and z: many z's, or few."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(count):
        share = 0.6 if number % 2 else 0.2
        letters = np.where(draw.random(draw.integers(20, 50)) < share, "z", "a")
        found.append(Text(f"text {number}", "".join(letters), LABELS[number % 2]))
    return found


class ClockTest(absltest.TestCase):
    def test_compiling_is_no_part_of_rate_and_time_left(self):
        config = configs.override_all(
            small(), ["train.train_steps=1000", "train.log_every=1", "train.eval_every=none"]
        )
        texts = draw_texts(16)
        classifier = Classifier(config, tokenizers.ByteTokenizer())
        run = training._Run(classifier, classifier.encode(texts), None, "")
        durations = iter([3.65, 0.005, 0.005])
        with absltest.mock.patch.object(training.time, "monotonic") as clock:
            run._logged_at = clock.return_value = 100.0

            def step(*inputs):
                clock.return_value += next(durations)
                zero = tf.constant(0.0)
                return Metrics(
                    loss=tf.constant(0.5),
                    tokens=8.0,
                    learning_rate=zero,
                    gradient_norm=zero,
                    skipped=zero,
                )

            run._step = step
            with self.assertLogs(level="INFO") as logs:
                for _ in range(3):
                    run.advance()
        first, *later = [record.getMessage() for record in logs.records]
        self.assertEqual(first, "step=1 loss=0.5000")
        for line in later:
            self.assertRegex(line, r"^step=\d loss=0.5000 tokens_per_s=\d+ seconds_left=5$")


class PageTest(absltest.TestCase):
    def test_it_names_the_settings_that_classifiers_refuse(self):
        page = (helpers.ROOT / "docs" / "classification.md").read_text()
        for name in classify_config._UNUSED:
            self.assertIn(f"`{name}`", page)


class BatchesTest(parameterized.TestCase):
    @parameterized.parameters(
        (1000, None, None, (64, 128, 256, 512, 1024)),
        (3000, None, None, (64, 128, 256, 512, 1024, 2048, 3008)),
        (1000, 300, None, (300, 600, 1200)),
        (10, None, None, (64,)),
        (2000, 300, None, (300, 600, 1200, 2100)),
        (1000, None, 1000, (64, 128, 256, 512, 1000)),
        (1000, None, 1010, (64, 128, 256, 512, 1010)),
        (1000, None, 4096, (64, 128, 256, 512, 1024)),
        (10, None, 10, (10,)),
    )
    def test_sizes(self, max_tokens, segment_len, limit, expected):
        self.assertEqual(batches.sizes(max_tokens, segment_len, limit), expected)

    @parameterized.parameters(("first", "abcd"), ("last", "wxyz"))
    def test_one_end_of_a_longer_text_is_kept(self, keep, kept):
        config = TextConfig(max_tokens=4, keep=keep)
        for content, expected in (("abcdefuvwxyz", kept), ("abcd", "abcd"), ("a", "a")):
            ids = np.frombuffer(content.encode(), np.uint8)
            self.assertEqual(bytes(batches.kept(ids, config)).decode(), expected)

    def test_every_text_comes_once_an_epoch_and_is_padded_to_a_size(self):
        ids = [np.full([n % 70 + 1], n % 200, np.int32) for n in range(101)]
        labels = np.arange(101, dtype=np.int32) % 2
        per_epoch = 13
        stream = batches.shuffled(ids, labels, 8, (64, 128), seed=3)
        epochs = [list(itertools.islice(stream, per_epoch)) for _ in range(2)]
        for epoch in (*epochs, list(batches.in_order(ids, labels, 8, (64, 128)))):
            seen = np.concatenate([b.indices for b in epoch])
            np.testing.assert_array_equal(np.sort(seen[seen >= 0]), np.arange(101))
            for batch in epoch:
                self.assertIn(batch.ids.shape, ((8, 64), (8, 128)))
                for row, place in enumerate(batch.indices):
                    if place < 0:
                        self.assertEqual((batch.labels[row], batch.lengths[row]), (-1, 1))
                        continue
                    self.assertEqual(batch.labels[row], labels[place])
                    real = batch.ids[row, : batch.lengths[row]]
                    np.testing.assert_array_equal(real, ids[place])
                    self.assertEqual(batch.ids[row, batch.lengths[row] :].sum(), 0)
        first, second = (np.concatenate([b.indices for b in epoch]) for epoch in epochs)
        self.assertGreater((first != second).mean(), 0.5)
        again = next(batches.shuffled(ids, labels, 8, (64, 128), seed=3))
        np.testing.assert_array_equal(again.indices, epochs[0][0].indices)

    def test_a_vocabulary_is_that_of_the_texts(self):
        texts = [Text("1", "b a b", "x"), Text("2", "c b", "y")]
        tokenizer = batches.make_tokenizer(TextConfig(tokenizer="word"), texts)
        self.assertEqual(tokenizer.symbols, ("<eos>", "b", "a", "c", "<unk>"))
        few = batches.make_tokenizer(TextConfig(tokenizer="word", max_symbols=3), texts)
        self.assertEqual(few.symbols, ("<eos>", "b", "<unk>"))


class ScoresTest(absltest.TestCase):
    def test_by_hand(self):
        probabilities = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1]])
        scores = Scores.of(np.log(probabilities), np.array([0, 1, 1]))
        self.assertEqual(scores.texts, 3)
        self.assertAlmostEqual(scores.accuracy, 2 / 3)
        self.assertAlmostEqual(scores.macro_f1, 2 / 3)  # each label: 2 * 1 / (1 + 2)
        self.assertAlmostEqual(scores.nats, -np.log([0.7, 0.3, 0.8]).mean())


class CutTest(absltest.TestCase):
    def test_texts_that_are_cut_are_counted(self):
        config = small(max_tokens=4)
        classifier = Classifier(config, tokenizers.ByteTokenizer())
        contents = ("abcd", "abcde", "a", "abcdefgh")
        encoded = classifier.encode([Text(c, c, None) for c in contents])
        self.assertEqual(
            [bytes(ids.tolist()) for ids in encoded.ids], [b"abcd", b"abcd", b"a", b"abcd"]
        )
        with self.assertLogs(level="WARNING") as logs:
            classifier.warn_of_cut(encoded.cut, 4, "training")
            classifier.warn_of_cut(0, 4, "test")
        self.assertLen(logs.output, 1)
        told = (
            "2 of 4 training texts are longer than max_tokens: only their first 4 tokens are read"
        )
        self.assertIn(told, logs.output[0])


@pytest.mark.slow
class ClassifierTest(parameterized.TestCase):
    @parameterized.parameters(
        ("encoder", dict(pooling="mean")),
        (
            "encoder",
            dict(
                attention="longformer(window=8, max_global_tokens=1)",
                global_tokens="first",
                pooling="first",
                tokenizer="char",
            ),
        ),
        ("encoder", dict(attention="bigbird(block=4, random=1)", pooling="mean")),
        (
            "encoder",
            dict(
                attention="linformer(max_tokens=60, k=8, sharing='layerwise')",
                position="absolute",
                pooling="mean",
                max_tokens=60,  # no multiple of 64
            ),
        ),
        ("causal", dict(pooling="mean")),
        ("star", dict(pooling="mean")),
        ("xlnet", dict(attention="dense", pooling="mean")),
    )
    def test_it_learns_and_is_kept(self, backbone, text):
        config = small(backbone, layers=2, **text)
        texts, valid = draw_texts(64), draw_texts(32, seed=1)
        tokenizer = batches.make_tokenizer(config.text, texts)
        config = configs.override(config, f"model.vocab_size={tokenizer.vocab_size}")
        folder = str(helpers.temp_dir(self) / "model")
        keras.utils.set_random_seed(1)
        classifier = Classifier(config, tokenizer)
        best = training.train(classifier, texts, valid, folder)
        if text["pooling"] == "mean":
            self.assertGreater(best.accuracy, 0.9)
        again = Classifier.load(folder)
        self.assertEqual(again.config, config)
        self.assertEqual(again.step, classifier.step)
        self.assertEqual(again.evaluate(again.encode(valid)), best)
        found = list(again.predict(valid))
        self.assertEqual([t.name for t, _ in found], [t.name for t in valid])
        right = [max(p, key=p.get) == t.label for t, p in found]
        self.assertAlmostEqual(np.mean(right), best.accuracy)
        for (_, one), (_, other) in zip(found, classifier.predict(valid), strict=True):
            atol = rounding.of_scores(config.model, 64)
            self.assertAlmostEqual(sum(one.values()), 1.0, delta=atol)
            ours, theirs = list(one.values()), list(other.values())
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)
        (name, content, _), chances = next(again.predict([t.content for t in valid]))
        self.assertEqual((name, content), ("0", valid[0].content))
        again = list(chances.values())
        np.testing.assert_allclose(again, list(found[0][1].values()), rtol=0, atol=atol)

    @parameterized.parameters("causal", "permutation")
    def test_it_starts_from_a_pretrained_model(self, objective):
        tiny = {"causal": helpers.tiny_config, "permutation": helpers.tiny_xlnet}[objective]
        tokenizer = tokenizers.ByteTokenizer()
        run = configs.Config(
            model=tiny(vocab_size=tokenizer.vocab_size),
            train=configs.TrainConfig(objective=objective),
        )
        folder = str(helpers.temp_dir(self) / "pretrained")
        pretrained = helpers.loud(model_dirs.make_model(run))
        model_dirs.describe(folder, run, tokenizer)
        model_dirs.save_weights(folder, pretrained, 7)
        config = classify_config.start_from(run.model, tokenizer.kind)
        classifier = Classifier(dataclasses.replace(config, labels=LABELS), tokenizer)
        classifier.take_weights(folder)
        for found, expected in zip(
            classifier.model.backbone.weights, pretrained.weights, strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        other = dataclasses.replace(config, model=tiny(vocab_size=256, num_layers=1))
        with self.assertRaisesRegex(ValueError, "weights"):
            Classifier(dataclasses.replace(other, labels=LABELS), tokenizer).take_weights(folder)

    def test_a_tokenizer_that_few_texts_do_not_make(self):
        with self.assertRaisesRegex(ValueError, "tokenizer must be one of byte, char, word, got"):
            batches.make_tokenizer(TextConfig(tokenizer="sentencepiece"), draw_texts(2))

    def test_it_replaces_nothing_but_a_classifier(self):
        parent = helpers.temp_dir(self)
        classifier = Classifier(small(), tokenizers.ByteTokenizer())
        classifier.save(str(parent / "model"))
        classifier.step = 7
        classifier.save(str(parent / "model"))
        self.assertEqual(Classifier.load(str(parent / "model")).step, 7)
        with self.assertRaisesRegex(ValueError, "model_dir must be new or an empty folder, got"):
            training.train(classifier, draw_texts(8), None, str(parent / "model"))
        (parent / "model" / "thesis").write_text("years of work")
        with self.assertRaisesRegex(ValueError, "nothing but a classifier, got .*/model/thesis"):
            classifier.save(str(parent / "model"))
        (parent / "model.old").mkdir()
        with outputs.held("model_dir", str(parent / "other")):
            message = "model_dir must be written by one process at a time, got .*/other while"
            with self.assertRaisesRegex(ValueError, message):
                training.train(classifier, draw_texts(8), None, str(parent / "other"))
        with self.assertRaisesRegex(ValueError, "must have none of .* got .*/model.1.; choose"):
            classifier.save(str(parent / "model[1]"))
        self.assertCountEqual(os.listdir(parent), ["model", "model.old"])

    def test_it_replaces_no_language_model(self):
        """That of an import has the very same files."""
        folder = helpers.temp_dir(self)
        config = configs.Config(model=helpers.tiny_config())
        model_dirs.describe(str(folder), config, tokenizers.ByteTokenizer())
        before = sorted(os.listdir(folder))
        classifier = Classifier(small(), tokenizers.ByteTokenizer())
        with self.assertRaisesRegex(
            ValueError, "must hold a classifier or nothing, got .*config.j"
        ):
            classifier.save(str(folder))
        self.assertEqual(sorted(os.listdir(folder)), before)

    def test_what_users_put_into_it_stays(self):
        """Each better validation writes the weights anew."""
        folder = helpers.temp_dir(self) / "model"
        changes = ["train.train_steps=2", "train.eval_every=1", "train.warmup_steps=0"]
        classifier = Classifier(configs.override_all(small(), changes), tokenizers.ByteTokenizer())
        self.addCleanup(tf.config.run_functions_eagerly, False)
        tf.config.run_functions_eagerly(True)  # two steps are not worth compiling
        evaluate = [Scores(8, 0.5, 0.5, 1.0), Scores(8, 0.75, 0.5, 1.0)]

        def scores(encoded):
            if len(evaluate) == 1:
                (folder / "thesis").write_text("years of work")
            return evaluate.pop(0)

        with absltest.mock.patch.object(classifier, "evaluate", scores):
            training.train(classifier, draw_texts(8), draw_texts(8, seed=1), str(folder))
        self.assertEqual((folder / "thesis").read_text(), "years of work")
        self.assertEqual(Classifier.load(str(folder)).step, 2)
        self.assertLen(list((folder / "checkpoints").glob("*.index")), 1)

    def test_the_same_seed_gives_the_same_classifier(self):
        config = configs.override_all(small(), ["train.train_steps=10", "model.dropout=0.2"])
        found = []
        for number in range(2):
            keras.utils.set_random_seed(1)
            classifier = Classifier(config, tokenizers.ByteTokenizer())
            training.train(
                classifier, draw_texts(24), None, str(helpers.temp_dir(self) / str(number))
            )
            found.append(classifier.log_probs(classifier.encode(draw_texts(8, seed=2))))
        np.testing.assert_allclose(*found, rtol=0, atol=rounding.of_gradients(config.model, 64))

    def test_a_nan_loss_ends_the_run(self):
        """All weights but the first step's change stay; a run that learns nothing fails."""
        changes = ["train.max_skipped_steps=2", "train.log_every=5", "model.init_std=1000"]
        changes += ["train.learning_rate=1000", "train.warmup_steps=0", "train.adam_epsilon=1e-30"]
        classifier = Classifier(configs.override_all(small(), changes), tokenizers.ByteTokenizer())
        for weight in classifier.model.trainable_variables[:1]:
            weight.assign(tf.fill(weight.shape, 1e38))
        before = [weight.numpy() for weight in classifier.model.weights]
        folder = helpers.temp_dir(self) / "model"
        with self.assertRaisesRegex(
            NonFiniteError, "must be finite, got .* at step 3, number 3 in"
        ):
            training.train(classifier, draw_texts(24), None, str(folder))
        self.assertFalse(folder.exists())
        for weight, value in zip(classifier.model.weights, before, strict=True):
            np.testing.assert_array_equal(weight, value)

    @parameterized.parameters(True, False)
    def test_a_run_of_skipped_steps_alone_is_not_kept(self, with_valid):
        changes = ["train.train_steps=1", "train.warmup_steps=0"]
        classifier = Classifier(configs.override_all(small(), changes), tokenizers.ByteTokenizer())
        classifier.model.weights[0].assign(tf.fill(classifier.model.weights[0].shape, np.nan))
        folder = helpers.temp_dir(self) / "model"
        valid = draw_texts(8, seed=1) if with_valid else None
        with self.assertRaisesRegex(NonFiniteError, "loss must be finite, got nan at step 1, num"):
            training.train(classifier, draw_texts(24), valid, str(folder))
        self.assertFalse(folder.exists())

    def test_it_stops_when_nothing_gets_better(self):
        changes = ["train.stop_after_evals=2", "train.eval_every=2", "train.learning_rate=0"]
        classifier = Classifier(configs.override_all(small(), changes), tokenizers.ByteTokenizer())
        folder = str(helpers.temp_dir(self) / "model")
        with self.assertLogs(level="INFO") as logs:
            training.train(classifier, draw_texts(16), draw_texts(8, seed=1), folder)
        self.assertLen([line for line in logs.output if "valid_accuracy" in line], 3)
        self.assertEqual(Classifier.load(folder).step, 2)


class ConfigTest(parameterized.TestCase):
    @parameterized.parameters("encoder", "causal", "star", "xlnet")
    def test_json_and_back(self, backbone):
        attention = "dense" if backbone == "xlnet" else "local(window=32)"
        config = small(backbone, attention=attention, pooling="max")
        self.assertEqual(ClassifierConfig.from_json(config.to_json()), config)
        self.assertEqual(json.loads(config.to_json())["backbone"], backbone)

    @parameterized.parameters(
        ("[]", "config of a classifier must be a JSON object"),
        ("{", "config must be JSON"),
        ('{"model": {}}', "config of a classifier must have text, got none"),
        (
            '{"model": {"vocab_size": 9}, "text": {}, "train": {}, "labels": 5, '
            '"backbone": "causal"}',
            "labels must be a list, got 5",
        ),
        (
            '{"model": 3, "text": {}, "train": {}, "labels": [], "backbone": "causal"}',
            "model must be a JSON object, got 3",
        ),
        ('{"odd": 1}', "config of a classifier has no field 'odd'"),
    )
    def test_broken_json(self, content, message):
        with self.assertRaisesRegex(ValueError, message):
            ClassifierConfig.from_json(content)

    @parameterized.parameters(
        ("encoder", "text.pooling=sum", "pooling must be one of mean, max, first, last, got 'sum'"),
        ("causal", "text.pooling=first", "pooling must be mean, max or last for a causal"),
        ("causal", "text.global_tokens=first", "global_tokens must be none for a causal backbone"),
        ("encoder", "text.global_tokens=first", "global_tokens must be none for attention local"),
        ("star", "text.global_tokens=first", "global_tokens must be none for a Star-Transformer"),
        ("star", "text.max_tokens=5000", "max_tokens must be at most 4096, .* got 5000"),
        ("encoder", "text.keep=all", "keep must be one of first, last, got 'all'"),
        ("encoder", "text.tokenizer=bpe", "tokenizer must be one of byte, char, word, .* 'bpe'"),
        ("encoder", "text.max_tokens=0", "max_tokens must be at least 1, got 0"),
        ("encoder", "text.max_symbols=9", "max_symbols must be none for tokenizer byte, got 9"),
        ("encoder", "text.max_symbols=0", "max_symbols must be at least 1, got 0"),
        ("encoder", "model.mem_len=4", "unknown setting model.mem_len; choose from attention,"),
        ("encoder", "train.sample_length=5", "sample_length must be left out for a classifier"),
        ("encoder", "train.precision=float16", "precision must be float32 or bfloat16 for a"),
        ("encoder", "labels=a,b", "a setting must read section.field=value, got 'labels=a,b'"),
        ("encoder", "labels.x=a", "unknown section 'labels'; choose from model, text, train"),
    )
    def test_mistakes_are_reported(self, backbone, setting, message):
        with self.assertRaisesRegex(ValueError, message):
            configs.override(small(backbone), setting)

    def test_max_tokens_is_within_the_token_limit(self):
        options = dict(attention="linformer(max_tokens=64, k=8)", position="absolute")
        self.assertEqual(small(**options, max_tokens=64).model.token_limit, 64)
        message = "max_tokens must be at most 64, the longest text that the model reads, got 65"
        with self.assertRaisesRegex(ValueError, message):
            small(**options, max_tokens=65)

    def test_routing_is_refused(self):
        attention = "routing(clusters=2, local_heads=1)"
        with self.assertRaisesRegex(ValueError, "routing in a backbone, .* its centroids are"):
            small("causal", attention=attention)
        with self.assertRaisesRegex(ValueError, "earlier tokens only, so an Encoder has none"):
            small("encoder", attention=attention)

    def test_a_folder_that_is_none(self):
        with self.assertRaisesRegex(ValueError, "model_dir must hold a config.json .* got /none"):
            Classifier.load("/none")


if __name__ == "__main__":
    absltest.main()
