"""What README.md and docs/ say is true: commands and code run, flags, links and presets exist."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from absl.testing import absltest

import helpers
from txl_tf import presets

_PAGES = [helpers.ROOT / "README.md", *sorted((helpers.ROOT / "docs").glob("*.md"))]
_SENTENCE = "Once upon a time number {} of the {} went to see the sea, and saw that it was so.\n"
# A few steps will do to see that the commands go through.
_SHORT = {r"--train_steps=\d+": "--train_steps=4 --set=train.warmup_steps=1 --nojit"}


def blocks(page, language):
    """The fenced blocks of a page in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


class ReadmeTest(absltest.TestCase):
    def test_flags_exist(self):
        scripts = [path for path in (helpers.ROOT / "scripts").iterdir() if path.is_file()]
        source = "\n".join(path.read_text() for path in scripts)
        known = set(re.findall(r'"(\w+)"', source)) | set(re.findall(r"--(\w+)", source))
        for page in _PAGES:
            named = re.findall(r"--(?:no)?([a-z]\w+)", page.read_text())
            self.assertContainsSubset(set(named), known | {"help", "logdir", "force"}, page.name)

    def test_set_fields_exist(self):
        config = presets.preset("tiny")
        for page in _PAGES:
            field = r"(?:`|--set=)(model|data|train|eval)\.(?!json\b|py\b)(\w+)"
            named = re.findall(field, page.read_text())
            for section, field in named:
                self.assertTrue(hasattr(getattr(config, section), field), f"{section}.{field}")

    def test_links_lead_somewhere(self):
        for page in _PAGES:
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_every_preset_is_listed(self):
        section = _PAGES[0].read_text().partition("## Presets")[2].partition("\n## ")[0]
        listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        self.assertCountEqual(listed, presets.names())

    @pytest.mark.slow
    def test_commands_and_code_run(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "book").mkdir()
        for split, lines in (("train", 500), ("valid", 50), ("test", 50)):
            text = "".join(_SENTENCE.format(i, split) for i in range(lines))
            (folder / "book" / f"{split}.txt").write_text(text)
        (folder / "reviews").mkdir()
        for split in ("train", "valid", "test"):
            lines = [f"{'bad' if i % 2 else 'good'}\tReview {i}.\\nRead it.\n" for i in range(8)]
            (folder / "reviews" / f"{split}.tsv").write_text("".join(lines))
        (folder / "reviews" / "new.txt").write_text("Such a book.\nAnother.\n")
        (folder / "scripts").symlink_to(helpers.ROOT / "scripts")
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        run_python = bin_folder / "python"
        run_python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        run_python.chmod(0o755)
        environment = os.environ | {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(helpers.ROOT),
        }

        def run(*command):
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
            )
            self.assertEqual(done.returncode, 0, f"{command[-1]}\n{done.stderr}")

        for page in _PAGES:
            for block in blocks(page, "bash"):
                for pattern, short in _SHORT.items():
                    block = re.sub(pattern, short, block)
                run("bash", "-euo", "pipefail", "-c", block)
            run("python", "-c", "\n".join(blocks(page, "python")))


if __name__ == "__main__":
    absltest.main()
