"""Changed data of a run is rejected by name, or accepted as new."""

import dataclasses
import json
import os

import keras
from absl.testing import absltest, parameterized

import helpers
import run_files
from txl_tf import model_dir
from txl_tf.configs.run import Config, TrainConfig, override_all
from txl_tf.data import prepare, text
from txl_tf.data.recipe import Recipe
from txl_tf.training import data_record, loop
from txl_tf.training.data_record import DataRecord, SplitRecord
from txl_tf.training.step import Metrics

TRAIN = "the quick brown fox jumps over the lazy dog. " * 8
OTHER = "a lazy fox and a quick dog jump over brown boxes. " * 8
VALID = "the dog and the fox jump over it. " * 3


def split(**changes):
    values = dict(tokens=9, documents=1, streams=(9,), sources=("a", "b"), checksums=("1", "2"))
    return SplitRecord(**(values | dict(settings={"eval.mem_len": 4}) | changes))


class ChangesTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(checksums=("1", "3")), ("source 2", "b (2)", "b (3)")),
        (dict(sources=("a",), checksums=("1",)), ("the number of sources", 2, 1)),
        (dict(tokens=8), ("tokens", 9, 8)),
        (dict(documents=2), ("documents", 1, 2)),
        (dict(streams=(4, 5)), ("streams", (9,), (4, 5))),
        (dict(settings={"eval.mem_len": 5}), ("eval.mem_len", 4, 5)),
    )
    def test_names_the_first(self, changes, expected):
        self.assertEqual(next(split().changes(split(**changes))), expected)

    def test_another_name_of_the_same_text_is_no_change(self):
        self.assertEmpty(list(split().changes(split(sources=("x/a", "x/b"), since=4))))

    def test_a_run_that_fell_back_reads_its_text_from_there_and_keeps_no_best_of_before(self):
        record = DataRecord(train=split(since=None), valid=split(since=6))
        found = [(r.train.since, r.valid_since) for r in (record.at(4), record.at(9).at(3))]
        self.assertEqual(found, [(4, 6), (3, 6)])
        self.assertEqual(DataRecord(train=split(), valid=split(since=None)).at(5).valid_since, 5)


class FileTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        os.makedirs(self.folder / model_dir.CHECKPOINTS)
        (self.folder / model_dir.CHECKPOINTS / "ckpt-4.index").write_bytes(b"")

    def test_comes_back(self):
        record = DataRecord(train=split(since=3), valid=None)
        data_record.write(str(self.folder), record)
        self.assertEqual(data_record.check(str(self.folder), record, False), record)
        self.assertNotIn("data.json.new", os.listdir(self.folder))

    @parameterized.parameters(
        ("{", "data.json: record must be JSON, got Expecting .*; delete the file to accept"),
        ("[]", r"record must be a JSON object, got \[\]"),
        ('{"train": null, "valid": null}', "train must be a JSON object, got None"),
        ('{"train": {"tokens": "9"}}', "train.tokens must be a whole number, got '9'"),
        (dict(tokens="9"), "tokens must be a whole number, got '9'"),
        (dict(checksums=["1"]), "checksums must be 2, one per source, got 1"),
    )
    def test_a_garbled_one_is_refused(self, content, message):
        if isinstance(content, dict):
            content = json.dumps({"train": dataclasses.asdict(split()) | content, "valid": None})
        (self.folder / data_record.FILE_NAME).write_text(content)
        with self.assertRaisesRegex(ValueError, message):
            data_record.check(str(self.folder), DataRecord(train=split(), valid=None), False)

    def test_a_run_without_one_resumes(self):
        wanted = DataRecord(train=split(), valid=None)
        with self.assertLogs(level="INFO") as logs:
            self.assertEqual(data_record.check(str(self.folder), wanted, False), wanted)
        self.assertIn("data.json not found: taking the current data", logs.output[0])
        self.assertIsNone(data_record.check(str(self.folder), wanted, True).train.since)


class RunTest(absltest.TestCase):
    """Runs of four steps whose step only counts: what they read, and what they keep as best."""

    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)
        self.folder = helpers.temp_dir(self)
        self.ids, self.restarts = [], []
        self.enter_context(absltest.mock.patch.object(loop, "make_train_step", self.make))

    def make(self, model, optimizer, *_):
        del model

        def step(batch, memory):
            optimizer.iterations.assign_add(1)
            self.ids.append(batch.ids.numpy())
            self.restarts.append(bool(batch.restart))
            return Metrics(1.0, 10.0, 0.5, 1.0, 0.0), memory

        return step

    def data(self, name, train=TRAIN, valid=VALID):
        sources = dict(train=train, valid=valid)
        sources = {k: [text.Source.from_text(f"{k}.txt", v)] for k, v in sources.items()}
        path = str(self.folder / name)
        prepare.prepare(sources, path, Recipe(tokenizer="byte"))
        return path

    def train(self, data, *changes, **options):
        self.ids, self.restarts = [], []
        base = Config(
            model=helpers.tiny_config(vocab_size=256, num_layers=1),
            train=TrainConfig(
                batch_size=2, segment_len=5, train_steps=4, jit=False, eval_every=2, log_every=9
            ),
        )
        path = str(self.folder / "run")
        config = override_all(base, list(changes))
        return loop.train(config, data_dir=data, model_dir=path, **options)

    def record(self):
        return json.loads((self.folder / "run" / data_record.FILE_NAME).read_text())

    def test_another_text_is_refused_or_read_from_its_start(self):
        first, other = self.data("first"), self.data("other", train=OTHER)
        best = self.train(first).best_nats_per_token
        longer = "train.train_steps=6"
        message = r"source 1 of split 'train' must stay train.txt \(.*new_data accepts it and res"
        before = self.record()
        with self.assertRaisesRegex(ValueError, message):
            self.train(other, longer)
        self.assertEqual(self.record(), before)
        with self.assertLogs(level="WARNING") as logs:
            result = self.train(other, longer, new_data=True)
        self.assertIn("resetting the position in the text and the memory", logs.output[0])
        self.assertEqual((result.step, self.restarts), (6, [True, False]))
        self.assertEqual(bytes(self.ids[0][0].tolist()), OTHER[:5].encode())
        self.assertEqual(result.best_nats_per_token, best)  # of the same validation
        self.assertEqual(self.record()["train"]["since"], 4)
        self.train(other, "train.train_steps=8")  # goes on in it, without the flag
        self.assertEqual(bytes(self.ids[0][0].tolist()), OTHER[10:15].encode())

    def test_a_start_that_was_killed_begins_there_again(self):
        first, other = self.data("first"), self.data("other", train=OTHER)
        self.train(first)
        killed = absltest.mock.patch.object(loop._Run, "train", side_effect=RuntimeError)
        with killed, self.assertRaises(RuntimeError):
            self.train(other, "train.train_steps=6", new_data=True)
        self.train(other, "train.train_steps=6")
        self.assertEqual((self.restarts, self.ids[0][0][0]), ([True, False], ord(OTHER[0])))

    def test_another_validation_is_refused_or_has_a_best_of_its_own(self):
        first = self.data("first")
        self.train(first)
        longer = "train.train_steps=6", "eval.mem_len=2"
        with self.assertRaisesRegex(ValueError, "eval.mem_len must stay 4 in .*, got 2; new_data"):
            self.train(first, *longer)
        with self.assertLogs(level="WARNING") as logs:
            result = self.train(first, *longer, new_data=True)
        self.assertIn(
            "eval.mem_len changes from 4 to 2: resetting the best validation", logs.output[0]
        )
        self.assertEqual(result.best_nats_per_token, result.valid.nats_per_token)
        self.assertEqual(model_dir.load(str(self.folder / "run")).step, 6)
        self.assertEqual(self.restarts, [False, False])  # reads on
        record = self.record()
        self.assertEqual([record[name]["since"] for name in ("train", "valid")], [0, 4])

    def test_patience_is_of_the_validations_at_hand(self):
        first, other = self.data("first"), self.data("other", valid=VALID.upper())
        self.train(first, "train.stop_after_evals=2", "train.eval_every=1")
        self.assertLen(run_files.metrics(self.folder / "run"), 6)  # stopped after 3 of 4 steps
        result = self.train(
            other, "train.stop_after_evals=2", "train.eval_every=1", "train.train_steps=9",
            new_data=True,
        )  # fmt: skip
        self.assertEqual(result.step, 6)

    def test_the_same_text_in_another_folder_resumes(self):
        self.train(self.data("first"))
        self.train(self.data("copy"), "train.train_steps=5")
        self.assertEqual(bytes(self.ids[0][0].tolist()), TRAIN[20:25].encode())


if __name__ == "__main__":
    absltest.main()
