"""Tests of scripts/train_classifier.py, run as a user runs it."""

import json
import pathlib

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import far_answer
import rounding
import trained
from txl_tf.classification.classifier import Classifier
from txl_tf.data import labelled_text

_TINY = (
    "--set=model.d_model=8",
    "--set=model.num_heads=2",
    "--max_tokens=128",
    "--batch_size=4",
    "--train_steps=4",
    "--warmup_steps=1",
    "--eval_every=2",
    "--nojit",
)


@pytest.mark.slow
class TrainClassifierTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.model_dir = str(self.folder / "model")

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def data(self):
        return far_answer.write_splits(
            self.folder, train=8, valid=6, test=4, length=150, earliest=10, latest=60
        )

    @staticmethod
    def lines(path):
        return pathlib.Path(path).read_text().splitlines(keepends=True)

    def run_program(self, *flags, **options):
        return trained.run("train_classifier", f"--model_dir={self.model_dir}", *flags, **options)

    @parameterized.parameters(
        (
            "--backbone=encoder",
            "--set=model.attention=longformer(window=16, max_global_tokens=1)",
            "--global_tokens=first",
            "--pooling=first",
        ),
        ("--backbone=causal", "--segment_len=64", "--pooling=max", "--keep=last"),
        ("--backbone=star", "--pooling=max"),
    )
    def test_train_evaluate_predict(self, *flags):
        data = self.data()
        stdout, stderr = self.run_program(
            *(f"--{split}={path}" for split, path in data.items()), *flags, *_TINY
        )
        valid, test = map(json.loads, stdout.splitlines())
        self.assertEqual((valid["split"], valid["texts"]), ("valid", 6))
        self.assertEqual((test["split"], test["texts"]), ("test", 4))
        self.assertContainsSubset({"accuracy", "macro_f1", "nats", "step"}, test)
        self.assertRegex(stderr, r"step=4 loss=\d\.\d+ tokens_per_s=\d+ seconds_left=0")

        again = trained.last_json(self.run_program(f"--test={data['test']}")[0])
        atol = rounding.of_scores(Classifier.load(self.model_dir).config.model, 64)
        self.assertAlmostEqual(again.pop("nats"), test.pop("nats"), delta=atol)
        for one in (again, test):
            del one["seconds"]
        self.assertEqual(again, test)

        texts = labelled_text.read(data["test"])
        lines = "".join(line.partition("\t")[2] for line in self.lines(data["test"]))
        found = [
            json.loads(x) for x in self.run_program("--predict=-", stdin=lines)[0].splitlines()
        ]
        expected = [p for _, p in Classifier.load(self.model_dir).predict(texts)]
        self.assertEqual([f["text"] for f in found], [f"standard input:{n}" for n in range(1, 5)])
        for line, probabilities in zip(found, expected, strict=True):
            self.assertEqual(line["label"], max(probabilities, key=probabilities.get))
            np.testing.assert_allclose(
                [line["probabilities"][name] for name in far_answer.LABELS],
                [probabilities[name] for name in far_answer.LABELS],
                rtol=0,
                atol=atol,
            )
        right = np.mean([f["label"] == t.label for f, t in zip(found, texts, strict=True)])
        self.assertAlmostEqual(right, test["accuracy"])

    def test_fine_tuning(self):
        pretrained = str(self.folder / "pretrained")
        data = trained.prepare_data(self.folder)
        sizes = dict(num_layers=1, d_model=8, num_heads=2, head_dim=4, d_inner=16, mem_len=4)
        flags = [f"--set=model.{name}={value}" for name, value in sizes.items()]
        flags += ["--preset=tiny_xlnet", "--train_steps=2", "--set=train.warmup_steps=0"]
        dirs = [f"--data_dir={data}", f"--model_dir={pretrained}"]
        trained.run("train", *dirs, *flags, "--segment_len=12", "--batch_size=2", "--nojit")
        train = self.write("train.tsv", "a\tsome text\nb\tother text\n")
        flags = [f"--train={train}", f"--init_from={pretrained}"]
        short = [flag for flag in _TINY if "model." not in flag]
        stdout, stderr = self.run_program(*flags, *short)
        self.assertEqual(trained.last_json(stdout)["step"], 4)
        self.assertIn(f"starting from the weights of {pretrained}: step=2", stderr)
        config = Classifier.load(self.model_dir).config
        self.assertEqual((config.model.d_inner, config.text.tokenizer), (16, "byte"))
        _, stderr = self.run_program(*flags, *short, "--backbone=encoder", code=2)
        self.assertIn("--backbone must be left out: it is that of --init_from", stderr)

    def test_folders(self):
        for label in "ab":
            for number in range(3):
                self.write(f"train/{label}/{number}.txt", f"text {label} {number}\n")
        train = str(self.folder / "train")
        result = trained.last_json(self.run_program(f"--train={train}", *_TINY)[0])
        self.assertEqual((result["split"], result["texts"], result["step"]), ("train", 6, 4))
        stdout, _ = self.run_program(f"--predict={train}/a")
        names = [json.loads(line)["text"] for line in stdout.splitlines()]
        self.assertEqual(names, [f"{train}/a/{n}.txt" for n in range(3)])

    @parameterized.parameters(
        ("a\tx\nb y\n", "", r"train.tsv:2 must be label<TAB>text, got no tab in 'b y'"),
        ("a\tx\n", "", r"train.tsv must hold at least two labels, got only 'a'"),
        ("", "", r"train.tsv must hold labelled texts, got none"),
        ("a\t\nb\ty\n", "", r"train.tsv:1 must hold a text, got an empty one"),
        (b"a\tx\nb\t\xff\n", "", r"train.tsv:2 must be UTF-8, got byte 0xff at 2"),
        ("a\tx\nb\ty\n", "a\tx\nc\ty\n", r"valid.tsv:2 must have a label .* \(a, b\), got 'c'"),
    )
    def test_bad_texts_are_one_line_and_leave_nothing(self, train, valid, message):
        flags = [f"--train={self.write('train.tsv', train)}"]
        if valid:
            flags.append(f"--valid={self.write('valid.tsv', valid)}")
        _, stderr = self.run_program(*flags, *_TINY, code=1)
        self.assertRegex(stderr.splitlines()[-1], f"^train_classifier: error: .*{message}$")
        self.assertFalse(pathlib.Path(self.model_dir).exists())

    @parameterized.parameters(
        ((), "--train, --test or --predict is required"),
        (("--train=T", "--predict=-"), "--train must be left out: --predict only labels texts"),
        (("--test=T", "--pooling=max"), "--pooling must be left out: it needs --train"),
        (("--train=T", "--segment_len=64"), "--segment_len must be left out: the backbone reads"),
        (("--train=T", "--set=train.segment_len=4"), "segment_len=4 must be left out: the"),
        (("--train=T", "--set=model.mem_len=4"), "unknown setting model.mem_len; choose from"),
        (("--train=T", "--pooling=sum"), "--pooling=sum: pooling must be one of mean, max"),
        (("--train=T", "--keep=last", "--set=text.keep=last"), "text.keep is given twice"),
    )
    def test_mistakes_in_flags(self, flags, message):
        _, stderr = self.run_program(*flags, code=2)
        self.assertIn(message, stderr.splitlines()[-1])

    def test_folders_of_models_that_do_not_fit(self):
        self.write("model/precious.txt", "x")
        train = self.write("train.tsv", "a\tx\nb\ty\n")
        _, stderr = self.run_program(f"--train={train}", *_TINY, code=1)
        self.assertIn("model_dir must be new or an empty folder, got", stderr.splitlines()[-1])
        self.assertTrue((self.folder / "model/precious.txt").exists())
        _, stderr = self.run_program("--predict=-", code=1)
        self.assertIn("model_dir must hold a config.json", stderr.splitlines()[-1])


if __name__ == "__main__":
    absltest.main()
