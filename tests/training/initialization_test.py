"""Tests of initialization from another model, whose vocabulary may be extended."""

import dataclasses
import os
import shutil

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import run_files
from txl_tf import model_dir
from txl_tf.configs.run import Config, TrainConfig, override_all
from txl_tf.data import prepare, text, tokenizers
from txl_tf.data.recipe import Recipe
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import averaging, initialization, loop

V, GROWN = 11, 4
ADAPTIVE = dict(cutoffs=(3, 7), div_val=2, tie_projections=(False, True))
MODELS = dict(
    plain={},
    untied=dict(tie_embeddings=False),
    projected=dict(d_embed=4),
    one_table=dict(cutoffs=(3, 7)),
    adaptive=ADAPTIVE,
    adaptive_untied=ADAPTIVE | dict(tie_embeddings=False),
)


def chars(symbols, **options):
    """A char tokenizer; "?" stands for <unk>."""
    listed = ["<unk>" if s == "?" else s for s in symbols]
    return tokenizers.CharTokenizer(vocabulary=Vocabulary(listed), **options)


def save(path, config, tokenizer, seed=3):
    """A model_dir of loud weights. Returns its model."""
    model = helpers.loud(TransformerXL(config), seed)
    model_dir.describe(str(path), Config(model=config), tokenizer)
    model_dir.save_weights(str(path), model, step=5)
    return model


def arrays(model):
    """The weights by name."""
    return {name: value.numpy() for name, value in model_dir.weights_of(model).items()}


class GrowthTest(parameterized.TestCase):
    def grow(self, by=GROWN, **changes):
        """The models before and after."""
        keras.utils.set_random_seed(1)
        path = helpers.temp_dir(self)
        config = helpers.tiny_config(vocab_size=V, init_std=0.3, **changes)
        old = save(path, config, chars("abcdefghij?"))
        new = TransformerXL(dataclasses.replace(config, vocab_size=V + by))
        self.drawn = arrays(new)
        initialization.take_weights(str(path), new)
        return old, new

    @parameterized.parameters(*MODELS)
    def test_weights_of_old_words_stay_to_the_bit(self, name):
        changes = MODELS[name]
        old, new = self.grow(**changes)
        found = arrays(new)
        longer = []
        for name, before in arrays(old).items():
            kept, added = found[name][: len(before)], found[name][len(before) :]
            np.testing.assert_array_equal(kept, before, err_msg=name)
            np.testing.assert_array_equal(added, self.drawn[name][len(before) :])
            if len(added):
                longer.append(name.rpartition("/")[2])
                self.assertLen(added, GROWN)
                if "bias" in name:
                    np.testing.assert_array_equal(added, 0.0)
                else:
                    self.assertBetween(added.std(), 0.1, 0.5)  # init_std is 0.3
        tail = "_2" if "cutoffs" in changes else ""
        table = "table_2" if "div_val" in changes else "table"
        tables = [table] * (1 if changes.get("tie_embeddings", True) else 2)
        self.assertCountEqual(longer, [*tables, f"bias{tail}"])

    @parameterized.parameters(*MODELS)
    def test_scores_of_old_words_stay(self, name):
        """Logits, or with cut-offs log-probabilities of all clusters but the last."""
        old, new = self.grow(**MODELS[name])
        ids = helpers.draw_ids(2, 5)
        (before, mems), (after, new_mems) = old(ids), new(ids)
        for states in zip(mems.states, new_mems.states, strict=True):
            np.testing.assert_array_equal(*states)
        same = old.config.cutoffs[-1] if old.config.cutoffs else V
        before, after = before.numpy(), after.numpy()
        atol = rounding.of_scores(old.config)
        np.testing.assert_allclose(after[..., :same], before[..., :same], rtol=0, atol=atol)
        if not old.config.cutoffs:  # logits; probabilities do give way to the new words
            gone = tf.reduce_logsumexp(after, axis=-1) - tf.reduce_logsumexp(before, axis=-1)
            self.assertGreater(float(tf.reduce_min(gone)), 1e-3)
            return
        # Within the last cluster logits stay: all its old words give way by the same share.
        shift = (after[..., :V] - before)[..., same:]
        self.assertLess(np.ptp(shift, axis=-1).max(), atol)
        self.assertLess(shift.max(), -1e-3)
        whole = [tf.reduce_logsumexp(s[..., same:], axis=-1) for s in (before, after)]
        np.testing.assert_allclose(*whole, rtol=0, atol=atol)

    def test_new_words_are_read_and_learned(self):
        _, new = self.grow(**ADAPTIVE)
        ids = np.array([[V, 1, V + GROWN - 1]], "int32")
        with tf.GradientTape() as tape:
            nll, _ = new.nll(ids, np.array([[V + 1, 2, V + 2]], "int32"))
            loss = tf.reduce_sum(nll)
        gradient = tape.gradient(loss, new.softmax.biases[-1].value)
        self.assertGreater(np.abs(gradient[-GROWN:]).max(), 1e-3)

    def test_nothing_new(self):
        old, new = self.grow(by=0)
        ids = helpers.draw_ids(2, 5)
        np.testing.assert_array_equal(new(ids)[0], old(ids)[0])


class CheckTest(parameterized.TestCase):
    def check(self, tokenizer, known="abcdefghij?", size=None, **changes):
        path = helpers.temp_dir(self)
        known = chars(known) if isinstance(known, str) else known
        config = helpers.tiny_config(vocab_size=size or known.vocab_size)
        model_dir.describe(str(path), Config(model=config), known)
        wanted = helpers.tiny_config(vocab_size=tokenizer.vocab_size, **changes)
        initialization.check(str(path), Config(model=wanted), tokenizer)

    @parameterized.parameters("abcdefghij?", "abcdefghij?k", "abcdefghij?zyx")
    def test_takes_more_symbols_at_the_end(self, symbols):
        self.check(chars(symbols))

    @parameterized.parameters(
        ("abcdefghij", "begin with the 11 symbols of .*, got none in place of '<unk>' at id 10"),
        ("abc?", "got '<unk>' in place of 'd' at id 3"),
        ("abdcefghij?", "got 'd' in place of 'c' at id 2"),
        ("abcdefghijk?", "got 'k' in place of '<unk>' at id 10; prepare_data --extend_vocab"),
    )
    def test_names_the_first_other_symbol(self, symbols, message):
        with self.assertRaisesRegex(ValueError, message):
            self.check(chars(symbols, unknown="error"), chars("abcdefghij?", unknown="error"))

    def test_another_tokenizer_or_option(self):
        word = tokenizers.WordTokenizer(vocabulary=Vocabulary(["<eos>", "<unk>"]))
        with self.assertRaisesRegex(ValueError, "tokenizer must be 'char' as in .*, got 'word'"):
            self.check(word)
        with self.assertRaisesRegex(ValueError, "lower_case must be False as in .*, got True; .*"):
            self.check(chars("abcdefghij?", lower_case=True))

    def test_another_word_for_the_unknown(self):
        known = tokenizers.WordTokenizer(vocabulary=Vocabulary(["<eos>", "<UNK>"]))
        both = tokenizers.WordTokenizer(vocabulary=Vocabulary(["<eos>", "<UNK>", "<unk>"]))
        with self.assertRaisesRegex(ValueError, "must keep id 1 for unknown symbols, .*, got 2"):
            self.check(both, known)

    def test_another_tokenizer_of_equal_symbols_is_rejected(self):
        class Pieces(tokenizers.ByteTokenizer):
            """Of the same symbols, but another model."""

            checksum = "another"

        with self.assertRaisesRegex(ValueError, "as a byte tokenizer cannot grow, got another of"):
            self.check(Pieces(), tokenizers.ByteTokenizer())

    def test_another_architecture(self):
        with self.assertRaisesRegex(ValueError, "model.d_inner must be 16 as in .*, got 8"):
            self.check(chars("abcdefghij?k"), d_inner=8)
        self.check(chars("abcdefghij?k"), mem_len=9, dropout=0.5)

    def test_rows_without_symbols(self):
        message = "model.vocab_size must stay 16 as in .* has 11 symbols, got 12"
        with self.assertRaisesRegex(ValueError, message):
            self.check(chars("abcdefghij?k"), size=16)


class RunTest(absltest.TestCase):
    """Whole fine-tunings."""

    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)
        self.folder = helpers.temp_dir(self)
        data = str(helpers.write_data(self.folder / "data"))
        self.train("source", data)
        self.source = arrays(model_dir.load(self.path("source")).model)
        sources = {
            "train": [text.Source.from_text("new.txt", "Ein Bad im See, ja: abgehackt. " * 9)]
        }
        self.data = str(self.folder / "new")
        prepare.prepare(sources, self.data, Recipe(extend_vocab=self.path("source")))

    def path(self, name):
        return str(self.folder / name)

    def train(self, name, data, *changes, **options):
        config = override_all(self.config(tokenizers.load(data).vocab_size), list(changes))
        return loop.train(config, data_dir=data, model_dir=self.path(name), **options)

    def config(self, vocab_size):
        return Config(
            model=helpers.tiny_config(vocab_size=vocab_size, num_layers=1),
            train=TrainConfig(
                batch_size=4,
                segment_len=5,
                train_steps=4,
                learning_rate=0.02,
                jit=False,
                eval_every=None,
                checkpoint_every=2,
            ),
        )

    def test_starts_resumes_and_ends_as_if_undisturbed(self):
        with self.assertLogs(level="INFO") as logs:
            self.train("run", self.data, init_from=self.path("source"))
        grown = model_dir.load(self.path("run")).tokenizer.vocab_size - V
        self.assertGreater(grown, 5)
        self.assertIn(f"step=4 new_words={grown}", "\n".join(logs.output))
        expected = run_files.contents(self.path("run"), 4)
        for name in os.listdir(self.folder / "run" / "checkpoints"):
            if name.startswith("ckpt-4"):
                os.remove(self.folder / "run" / "checkpoints" / name)
        keras.utils.set_random_seed(2)
        shutil.rmtree(self.path("source"))  # nobody asks for it any more
        self.train("run", self.data, init_from=self.path("source"))
        run_files.check_same(self, run_files.contents(self.path("run"), 4), expected)

    def killed(self, *args, **options):
        """A run that ends before its first step."""
        killed = absltest.mock.patch.object(loop._Run, "train", side_effect=RuntimeError("killed"))
        with killed, self.assertRaisesRegex(RuntimeError, "killed"):
            self.train(*args, **options)

    def test_one_that_was_killed_before_its_first_checkpoint_keeps_the_weights(self):
        self.killed("run", self.data, init_from=self.path("source"))
        shutil.rmtree(self.path("source") + "/checkpoints/")  # nobody asks for it any more
        source = {name: value for name, value in self.source.items() if "bias" in name}
        keras.utils.set_random_seed(2)
        self.train("run", self.data, "train.learning_rate=0.0", "train.train_steps=1")
        found = arrays(model_dir.load(self.path("run")).model)
        for name, value in source.items():
            np.testing.assert_array_equal(found[name][: len(value)], value, err_msg=name)

    def test_a_folder_without_a_checkpoint_is_checked_too(self):
        self.killed("run", self.data)
        other = chars("zyxwvutsrq?")
        model_dir.describe(self.path("other"), self.config(other.vocab_size), other)
        message = "vocabulary must begin with the 11 symbols of .*other, got 'a' in place of 'z'"
        with self.assertRaisesRegex(ValueError, message):
            self.train("run", self.data, init_from=self.path("other"))

    def test_the_optimizer_starts_anew(self):
        change = "train.learning_rate=0.0", "train.train_steps=1"
        self.train("run", self.data, *change, init_from=self.path("source"))
        found = run_files.contents(self.path("run"), 1)
        iterations = [value for name, value in found.items() if "iteration" in name]
        self.assertEqual(iterations, [1])
        source = model_dir.load(self.path("source")).model.embedding.tables[0].numpy()
        table = model_dir.load(self.path("run")).model.embedding.tables[0].numpy()
        np.testing.assert_array_equal(table[:V], source)

    def test_an_average_is_a_start(self):
        averaging.average(self.path("source"), self.path("mean"))
        result = self.train("run", self.data, init_from=self.path("mean"))
        self.assertEqual(result.step, 4)
        self.assertLess(result.nats_per_token, 4.0)

    def test_is_refused_before_anything_is_made(self):
        other = str(helpers.write_data(self.folder / "other", vocab_size=13))
        with self.assertRaisesRegex(ValueError, "got 'k' in place of '<unk>' at id 10"):
            self.train("run", other, init_from=self.path("source"))
        with self.assertRaisesRegex(ValueError, "model.head_dim must be 4 as in .*, got 6"):
            self.train("run", self.data, "model.head_dim=6", init_from=self.path("source"))
        self.assertFalse(os.path.exists(self.path("run")))


if __name__ == "__main__":
    absltest.main()
