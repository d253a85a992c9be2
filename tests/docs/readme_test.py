"""README.md and docs/ are correct: commands and code run, flags, links and presets exist."""

import ast
import os
import pathlib
import re
import shlex
import subprocess
import sys
from importlib import metadata

import pytest
from absl.testing import absltest
from packaging import requirements

import helpers
from txl_tf.configs import presets

_PAGES = [helpers.ROOT / "README.md", *sorted((helpers.ROOT / "docs").glob("*.md"))]
_EDGE_PAGE = helpers.ROOT / "docs" / "edge.md"
_SENTENCE = "Once upon a time number {} of the {} went to see the sea, and saw that it was so.\n"
# A few steps will do to see that the commands go through.
_SHORT = {r"--train_steps=\d+": "--train_steps=4 --set=train.warmup_steps=1 --nojit"}


def blocks(page, language):
    """The fenced blocks of a page in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def link_distributions(site, names):
    """Puts distributions, and what they require, into a folder."""
    waiting, done = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        found = metadata.distribution(name)
        for top in {path.parts[0] for path in found.files}:
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(found.locate_file(top))
        for required in map(requirements.Requirement, found.requires or ()):
            if required.marker is None or required.marker.evaluate({"extra": ""}):
                waiting.append(required.name)


class ReadmeTest(absltest.TestCase):
    def test_flags_exist(self):
        scripts, programs = helpers.ROOT / "scripts", helpers.ROOT / "txl_tf" / "cli"
        files = [path for path in scripts.iterdir() if path.is_file()]
        files += [*(scripts / "benchmarks").rglob("*.py"), *programs.glob("*.py")]
        source = "\n".join(path.read_text() for path in files)
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

    def test_help_is_printed_as_it_is_written(self):
        """A backslash at the end of a command's line is eaten where a docstring is not raw."""
        programs = (helpers.ROOT / "txl_tf" / "cli").glob("*.py")
        for path in [*programs, helpers.ROOT / "scripts" / "benchmarks" / "run.py"]:
            source = path.read_text()
            self.assertIn(ast.get_docstring(ast.parse(source), clean=False), source, path.name)

    def test_code_has_its_imports(self):
        """Each block of the README stands alone; those of another page read on."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        for page in _PAGES:
            found = blocks(page, "python")
            for number, code in enumerate(found if page.stem == "README" else ["".join(found)]):
                (folder / f"{page.stem}_{number}.py").write_text(code)
        command = [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--isolated",
            "--select=F821",
            str(folder),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)

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
            return done.stdout

        for page in _PAGES:
            for block in blocks(page, "bash"):
                for pattern, short in _SHORT.items():
                    block = re.sub(pattern, short, block)
                run("bash", "-euo", "pipefail", "-c", block)
            code = "\n".join(blocks(page, "python"))
            if page.stem == "edge":
                self.run_on_a_device(folder, code, run)
            else:
                run("python", "-c", code)

    def run_on_a_device(self, folder, code, run):
        """Runs code with what the page has installed, and no more."""
        (commands,) = (b for b in blocks(_EDGE_PAGE, "sh") if "pip install" in b)
        named, project = re.findall(r"^pip install ([^#\n]+)", commands, re.MULTILINE)
        self.assertEqual(project.split(), ["--no-deps", "txl_tf-*.whl"])
        site = folder / "site"
        site.mkdir()
        (site / "txl_tf").symlink_to(helpers.ROOT / "txl_tf")
        link_distributions(site, named.split())
        code = f"import sys; sys.path.append({str(site)!r})\n{code}\nprint(sorted(sys.modules))"
        loaded = run("python", "-I", "-S", "-c", code)
        self.assertIn("'ai_edge_litert'", loaded)
        self.assertNotIn("'tensorflow'", loaded)


if __name__ == "__main__":
    absltest.main()
