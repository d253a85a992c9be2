"""scripts/getdata.sh on small archives that stand in for the public ones."""

import hashlib
import os
import pathlib
import re
import subprocess
import tarfile
import zipfile

from absl.testing import absltest, parameterized

import helpers

_LM1B = "1-billion-word-language-modeling-benchmark-r13output"
_TEXT = bytes(range(200)) * 5  # 1000 bytes; not UTF-8, as enwik8 at a cut need not be


class GetDataTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path)
        self.homes, self.data = self.root / "homes", self.root / "my data"
        self.homes.mkdir()

    def zip_archive(self, name, **members):
        path = self.homes / name
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return path

    def get(self, *arguments, archive=None):
        checksum = hashlib.sha256(archive.read_bytes()).hexdigest() if archive else None
        return subprocess.run(
            [
                "bash",
                str(helpers.ROOT / "scripts" / "getdata.sh"),
                f"--output_dir={self.data}",
                f"--base_url=file://{self.homes}",
                *([f"--sha256={checksum}"] if archive else []),
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def read(self, *path):
        return self.data.joinpath(*path).read_bytes()

    @parameterized.parameters(
        ("enwik8", 1, [900, 50, 50], "--tokenizer=byte --drop_newlines"),
        ("text8", 3001, [2_700_900, 150_050, 150_050], "--tokenizer=char --unknown=error"),
    )
    def test_splits_the_hutter_corpora(self, name, times, sizes, hint):
        archive = self.zip_archive(f"{name}.zip", **{name: _TEXT * times})
        done = self.get(name, archive=archive)
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = [self.read(name, f"{part}.txt") for part in ("train", "valid", "test")]
        self.assertEqual([len(part) for part in parts], sizes)
        self.assertEqual(b"".join(parts), _TEXT * times)
        self.assertEqual(os.listdir(self.data), [name])
        self.assertIn(f"--train='{self.data}/{name}/train.txt'", done.stdout)
        self.assertIn(f" {hint} ", done.stdout)

    @parameterized.parameters("wikitext-103", "wikitext-2")
    def test_takes_wikitext_as_it_is(self, name):
        path = self.homes / f"{name}-v1.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for part in ("train", "valid", "test"):
                archive.writestr(f"{name}/wiki.{part}.tokens", f" \n = {part} = \n")
        self.assertEqual(self.get(name, archive=path).returncode, 0)
        for part in ("train", "valid", "test"):
            self.assertEqual(self.read(name, f"{part}.txt"), f" \n = {part} = \n".encode())

    def test_lays_out_the_billion_words(self):
        source = self.root / _LM1B
        for folder, file in (
            ("training-monolingual.tokenized.shuffled", "news.en-00001-of-00100"),
            ("training-monolingual.tokenized.shuffled", "news.en-00099-of-00100"),
            ("heldout-monolingual.tokenized.shuffled", "news.en.heldout-00000-of-00050"),
            ("heldout-monolingual.tokenized.shuffled", "news.en.heldout-00001-of-00050"),
        ):
            (source / folder).mkdir(parents=True, exist_ok=True)
            (source / folder / file).write_text(file)
        path = self.homes / f"{_LM1B}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(source, _LM1B)
        done = self.get("lm1b", archive=path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertCountEqual(
            os.listdir(self.data / "lm1b" / "train"),
            ["news.en-00001-of-00100", "news.en-00099-of-00100"],
        )
        for part in ("valid", "test"):
            self.assertEqual(self.read("lm1b", f"{part}.txt"), b"news.en.heldout-00000-of-00050")
        self.assertIn(f"--train='{self.data}/lm1b/train/*'", done.stdout)

    def test_what_is_there_is_left_alone(self):
        archive = self.zip_archive("text8.zip", text8=_TEXT)
        self.get("text8", archive=archive)
        archive.unlink()
        done = self.get("text8")
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"text8: is in {self.data}/text8 already", done.stderr)
        self.assertIn("prepare_data.py", done.stdout)

    def test_another_checksum_is_refused_and_nothing_stays(self):
        self.zip_archive("text8.zip", text8=_TEXT)
        done = self.get("text8")  # held to the published checksum
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(
            done.stderr,
            r"getdata: error: text8: sha256 of text8.zip must be a6640522\w+, got \w{64}\n\Z",
        )
        self.assertEqual(os.listdir(self.data), [])

    def test_a_missing_archive_is_reported_with_its_address(self):
        done = self.get("enwik8")
        self.assertEqual(done.returncode, 1)
        told = f"getdata: error: enwik8: could not fetch file://{self.homes}/enwik8.zip: "
        self.assertIn(told, done.stderr)
        self.assertEqual(os.listdir(self.data), [])

    @parameterized.parameters("readme.txt", "wikitext-2/wiki.test.tokens")
    def test_an_archive_without_all_parts_is_refused(self, member):
        archive = self.homes / "wikitext-2-v1.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(member, "a")
        done = self.get("wikitext-2", archive=archive)
        self.assertEqual(done.returncode, 1)
        told = (
            "getdata: error: wikitext-2: cannot lay out wikitext-2-v1.zip: mv: .*wiki.train.tokens"
        )
        self.assertRegex(done.stderr.splitlines()[-1], told)
        self.assertEqual(done.stderr.count("mv: "), 1)
        self.assertEqual(os.listdir(self.data), [])

    def test_an_invalid_archive_is_reported(self):
        archive = self.homes / "text8.zip"
        archive.write_bytes(b"no archive")
        done = self.get("text8", archive=archive)
        told = r"getdata: error: text8: cannot lay out text8.zip: .*text8.zip is not a zip file"
        self.assertRegex(done.stderr.splitlines()[-1], told)
        self.assertEqual(os.listdir(self.data), [])

    def test_hints_are_the_commands_of_the_documentation(self):
        script = (helpers.ROOT / "scripts/getdata.sh").read_text()
        models = (helpers.ROOT / "docs/models.md").read_text().replace("\\\n", " ")
        for name, hint in re.findall(r'\b([a-z\d-]+)\)\n[^;]*?hint="(.*?)"', script):
            command = re.search(rf"^.*prepare_data.py .*=data/{name}/train.txt.*$", models, re.M)
            if command is not None:
                kept = re.findall(r"--(?!train|valid|test|output_dir)\S+", command[0])
                self.assertEqual(hint.split(), kept, name)

    @parameterized.parameters(
        (["ptb"], "unknown corpus ptb; choose from enwik8, text8, wikitext-103, wikitext-2, lm1b"),
        ([], "name a corpus: enwik8, text8, wikitext-103, wikitext-2, lm1b"),
        (["text8", "--fast"], "unknown flag --fast"),
        (["text8", "enwik8", "--sha256=00"], "--sha256 goes with one corpus"),
        (["text8", "ptb"], "unknown corpus ptb; choose from "),
    )
    def test_mistakes_are_one_line_before_anything_is_fetched(self, arguments, message):
        done = self.get(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertStartsWith(done.stderr, f"getdata: error: {message}")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse(self.data.exists())


if __name__ == "__main__":
    absltest.main()
