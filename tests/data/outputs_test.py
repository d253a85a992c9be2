"""Outputs are checked before the work, locked during it, and complete or absent after it."""

import os
import signal
import subprocess
import sys

from absl.testing import absltest, parameterized

import helpers
from txl_tf.data import files, outputs

_HOLDER = """
import sys

from txl_tf.data import files, outputs

with outputs.held("output_dir", sys.argv[1]) as output, output.filled() as folder:
    files.write_bytes(f"{folder}/name", b"half")
    print("holding", flush=True)
    sys.stdin.read()
"""


def anything(name, path):
    """A check that lets everything be replaced."""


class OutputsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = str(helpers.temp_dir(self))
        self.path = f"{self.parent}/out"

    def write(self, content, path=None, check=anything):
        held = outputs.held("output_dir", path or self.path, check)
        with held as output, output.filled() as folder:
            files.write_bytes(f"{folder}/name", content)

    def held_elsewhere(self):
        """Another process that holds the output, with half of its work done."""
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"holding\n")
        return process

    def check_refused(self, message, path=None, **options):
        before = files.names(self.parent)
        with self.assertRaisesRegex(ValueError, message):
            self.write(b"x", path, **options)
        self.assertEqual(files.names(self.parent), before)

    def test_new_and_again(self):
        for content in (b"1", b"2"):
            self.write(content)
            self.assertEqual(files.read_bytes(f"{self.path}/name"), content)
            self.assertEqual(files.names(self.parent), ["out"])

    def test_an_error_leaves_what_was_there(self):
        for before in ([], ["out"]):
            held = outputs.held("x", self.path, anything)
            with self.assertRaises(KeyError), held as output, output.filled() as draft:
                files.write_bytes(f"{draft}/name", b"half")
                raise KeyError
            self.assertEqual(files.names(self.parent), before)
            self.write(b"whole")
        self.assertEqual(files.read_text(f"{self.path}/name"), "whole")

    def test_folders_above_are_made_and_go_with_a_failure(self):
        with self.assertRaises(KeyError), outputs.held("x", f"{self.parent}/a/b/c") as output:
            self.assertTrue(files.is_folder(f"{self.parent}/a/b"))
            raise KeyError
        self.assertEqual(files.names(self.parent), [])
        self.write(b"whole", f"{self.parent}/a/b/c")
        self.assertEqual(output.path, f"{self.parent}/a/b/c")
        self.assertEqual(files.read_text(f"{output.path}/name"), "whole")

    def test_what_users_have_beside_it_stays(self):
        names = ["out.old", "out.partial", ".out.old", ".out.12345678.old", ".out.x.txl_tf-draft"]
        for name in names:
            files.make_folder(f"{self.parent}/{name}")
            files.write_bytes(f"{self.parent}/{name}/thesis", b"years of work")
        files.write_bytes(f"{self.parent}/.out.txl_tf-lock", b"not of ours")
        for content in (b"1", b"2"):
            self.write(content)
        for name in names:
            self.assertEqual(files.names(f"{self.parent}/{name}"), ["thesis"])
        self.assertCountEqual(files.names(self.parent), ["out", ".out.txl_tf-lock", *names])
        self.assertEqual(files.read_text(f"{self.parent}/.out.txl_tf-lock"), "not of ours")

    def test_another_process_is_refused_and_its_leftovers_are_removed(self):
        process = self.held_elsewhere()
        message = f"output_dir must be written by one process at a time, got {self.path} while an"
        self.check_refused(message)
        self.write(b"beside", f"{self.parent}/ou")  # another name is another output
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertLen(files.names(self.parent), 3)  # of them a lock and a draft
        self.write(b"whole")
        self.assertEqual(files.names(self.parent), ["ou", "out"])
        self.assertEqual(files.names(self.path), ["name"])

    def test_killed_between_the_renames(self):
        self.write(b"before")
        files.rename(self.path, f"{self.parent}/.out.0123abcd.txl_tf-old")
        with self.assertRaises(KeyError), outputs.held("x", self.path, anything):
            raise KeyError
        self.assertEqual(files.read_text(f"{self.path}/name"), "before")

    def test_a_failure_between_the_renames(self):
        self.write(b"before")
        rename = files.rename

        def fail(source, target):
            if source.endswith("draft"):
                raise OSError("no")
            rename(source, target)

        with absltest.mock.patch.object(files, "rename", fail), self.assertRaises(OSError):
            self.write(b"after")
        self.assertEqual(files.names(self.parent), ["out"])
        self.assertEqual(files.read_text(f"{self.path}/name"), "before")

    def test_what_comes_while_it_works_is_not_replaced(self):
        refused = self.assertRaisesRegex(ValueError, "x must be new or an empty folder, got")
        with refused, outputs.held("x", self.path) as output, output.filled():
            files.make_folder(self.path)
            files.write_bytes(f"{self.path}/thesis", b"years of work")
        self.assertEqual(files.names(self.path), ["thesis"])
        self.assertEqual(files.names(self.parent), ["out"])

    def test_links_and_empty_folders(self):
        os.symlink("target", f"{self.parent}/link")
        self.write(b"1", f"{self.parent}/link")
        self.write(b"2", f"{self.parent}/link/")
        self.assertEqual(files.names(self.parent), ["link", "target"])
        self.assertEqual(files.read_text(f"{self.parent}/link/name"), "2")
        os.mkdir(self.path, 0o700)
        self.write(b"3", check=outputs.check_new)
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o700)

    def test_links_that_lead_nowhere(self):
        for name, target in (("one", "other"), ("other", "one"), ("dangling", "missing")):
            os.symlink(target, f"{self.parent}/{name}")
        self.check_refused("output_dir .* got a loop of symbolic links at", f"{self.parent}/one/")
        for name in ("one", "dangling"):
            message = f"{self.parent}/{name} is a broken symbolic link"
            self.check_refused(message, f"{self.parent}/{name}/a/b")

    def test_a_folder_in_place_of_a_small_file(self):
        os.mkdir(self.path)
        with self.assertRaisesRegex(ValueError, f"{self.path} must be a file, got a folder"):
            outputs.write(self.path, b"x")
        self.assertEqual(files.names(self.parent), ["out"])

    def test_refused_before_the_work(self):
        files.write_bytes(self.path, b"a file")
        self.check_refused(
            f"output_dir must be new or an empty folder, got {self.path}$",
            None,
            check=outputs.check_new,
        )
        self.check_refused(
            f"must lie in a folder, got {self.path}/a/b: {self.path} is a file", f"{self.path}/a/b"
        )
        self.check_refused("must not be a mount point, got /; name a folder in it", "/")
        self.check_refused("must have none of .* got .*/run.1.; choose", f"{self.parent}/run[1]")
        with self.assertRaisesRegex(ValueError, "output_dir must be a path, got ''"):
            outputs.resolve("output_dir", "")

    def test_the_working_directory(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.parent)
        self.check_refused(
            "output_dir must not be the working directory, got .*; name another", "."
        )
        self.write(b"whole", "relative")
        self.assertEqual(files.names("."), ["relative"])
        self.assertEqual(outputs.resolve("model_dir", ".", filled=True), os.path.realpath("."))

    def test_a_single_file(self):
        files.make_folder(f"{self.parent}/.name.0123abcd.txl_tf-draft")
        for content in (b"1", b"2"):
            outputs.write(f"{self.parent}/name", content)
            self.assertEqual(files.read_bytes(f"{self.parent}/name"), content)
            self.assertEqual(files.names(self.parent), ["name"])

    def test_remote_folders(self):
        self.path = f"file://{self.path}"  # TensorFlow knows file:// as it knows gs://
        for content in (b"1", b"2"):
            self.write(content)
            self.assertEqual(files.read_bytes(f"{self.path}/name"), content)
        self.assertEqual(files.names(self.parent), ["out"])


if __name__ == "__main__":
    absltest.main()
