"""Examples in the docstrings of public names run and print what they say.

They may use `np`, `tf` and `txl_tf`, and in the working directory the texts `texts/*.txt` and
`valid.txt`, their data in `data` and a model in `model`.
"""

import contextlib
import doctest
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest

import helpers
import trained
import txl_tf


def public_objects():
    """Returns the public classes and functions by name, with those in public tables."""
    found = {name: getattr(txl_tf, name) for name in txl_tf.__all__}
    tables = {name: value for name, value in found.items() if isinstance(value, dict)}
    for table, kinds in tables.items():
        del found[table]
        found |= {f"{table}[{kind!r}]": value for kind, value in kinds.items()}
    return found


class ExamplesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(helpers.temp_dir(self))
        (self.folder / "texts").mkdir()
        for path in ("texts/a.txt", "texts/b.txt", "valid.txt"):
            (self.folder / path).write_text(trained.TEXT)
        trained.describe(self.folder, trained.prepare_data(self.folder))

    def test_docstring_examples(self):
        finder, num_run = doctest.DocTestFinder(recurse=False), 0
        runner = doctest.DocTestRunner(verbose=False)
        with contextlib.chdir(self.folder):
            for name, value in public_objects().items():
                for example in finder.find(value, name, globs=dict(np=np, tf=tf, txl_tf=txl_tf)):
                    with self.subTest(name):
                        report = []
                        result = runner.run(example, out=report.append)
                        self.assertEqual(result.failed, 0, "".join(report))
                        num_run += result.attempted
        self.assertGreater(num_run, 20)


if __name__ == "__main__":
    absltest.main()
