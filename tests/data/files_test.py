"""Tests of local and remote files."""

import os
import re

from absl.testing import absltest, parameterized

import helpers
from txl_tf.data import files


class FilesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)

    @parameterized.parameters("", "file://")  # TensorFlow knows file:// as it knows gs://
    def test_a_life_of_a_file(self, scheme):
        folder = f"{scheme}{self.folder}"
        files.make_folder(f"{folder}/a/b")
        files.write_bytes(f"{folder}/a/b/one", "é\r\n".encode())
        self.assertEqual(files.read_text(f"{folder}/a/b/one"), "é\r\n")
        self.assertEqual(files.size(f"{folder}/a/b/one"), 4)
        files.write_bytes(f"{folder}/a/b/two", b"2")
        self.assertEqual(files.names(f"{folder}/a/b"), ["one", "two"])
        self.assertEqual(files.names(f"{folder}/a"), ["b"])
        self.assertEqual(files.glob(f"{folder}/a/*/t*"), [f"{folder}/a/b/two"])
        self.assertTrue(files.is_folder(f"{folder}/a/b"))
        self.assertFalse(files.is_folder(f"{folder}/a/b/one"))
        files.rename(f"{folder}/a/b/one", f"{folder}/a/b/two")
        self.assertEqual(files.read_text(f"{folder}/a/b/two"), "é\r\n")
        files.remove(f"{folder}/a/b/two")
        self.assertFalse(files.exists(f"{folder}/a/b/two"))
        files.remove_folder(f"{folder}/a")
        self.assertFalse(files.exists(f"{folder}/a"))

    @parameterized.parameters("", "file://")
    def test_patterns(self, scheme):
        for name in ("a.txt", "x/b.txt", "x/y/c.txt", "x/y/d.md", ".h/e.txt", "x/.f.txt"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text("")
        for pattern, expected in (
            ("*.txt", "a.txt"),
            ("**/*.txt", "a.txt x/b.txt x/y/c.txt"),
            ("x/**/c.txt", "x/y/c.txt"),
            ("**/y/**/*", "x/y/c.txt x/y/d.md"),
            ("**", "a.txt x x/b.txt x/y x/y/c.txt x/y/d.md"),
            ("**/**/c.*", "x/y/c.txt"),
            ("**.txt", "a.txt"),  # not a whole name: as "*"
            ("no/**/*", ""),
        ):
            found = files.glob(f"{scheme}{self.folder}/{pattern}")
            below = [path.removeprefix(f"{scheme}{self.folder}/") for path in found]
            self.assertEqual(below, expected.split(), pattern)

    def test_remote_is_what_names_a_file_system(self):
        self.assertTrue(files.is_remote("gs://bucket/name"))
        self.assertFalse(files.is_remote("/some/path"))
        self.assertEqual(files.resolved("gs://bucket/name/"), "gs://bucket/name")

    def test_invalid_utf8_names_the_file_and_the_byte(self):
        files.write_bytes(f"{self.folder}/x", b"ab\xff")
        with self.assertRaisesRegex(ValueError, "/x must be UTF-8, got an invalid byte at 2"):
            files.read_text(f"{self.folder}/x")

    @parameterized.parameters("s3", "https", "hdfs")
    def test_a_scheme_that_nobody_reads_is_named(self, scheme):
        message = f"path must be local or begin with one of .*gs://.*, got {scheme}://a/b"
        with self.assertRaisesRegex(ValueError, message):
            files.exists(f"{scheme}://a/b")

    @parameterized.parameters("[", "]", "*", "?", "\\")
    def test_letters_of_patterns(self, letter):
        for path in (f"run{letter}1", f"{letter}/run", f"gs://bucket/{letter}/run"):
            message = (
                rf"model_dir must have none of .* treat as wildcards, got {re.escape(path)}; ch"
            )
            with self.assertRaisesRegex(ValueError, message):
                files.check_plain("model_dir", path)
        files.check_plain("model_dir", "run 1/{a}-ü,é/~")

    def test_a_name_that_is_no_utf8(self):
        with self.assertRaisesRegex(ValueError, r"model_dir must .* UTF-8, got 'run\\udcff'"):
            files.check_plain("model_dir", os.fsdecode(b"run\xff"))

    def test_neighbours_whose_names_are_no_utf8(self):
        open(os.fsencode(f"{self.folder}/a") + b"\xff", "w").close()
        self.assertEqual(files.names(str(self.folder)), ["a\udcff"])
        for read in (files.names, lambda path: files.glob(f"{path}/**/b")):
            with self.assertRaisesRegex(ValueError, "names at file://.* must be UTF-8, got .*xff'"):
                read(f"file://{self.folder}")

    @parameterized.parameters("", "file://")
    def test_a_folder_is_no_file(self, scheme):
        path = f"{scheme}{self.folder}"
        with self.assertRaisesRegex(ValueError, f"{path} must be a file, got a folder"):
            files.read_bytes(path)

    def test_a_link_stands_for_its_target(self):
        os.symlink("there", f"{self.folder}/link")  # which is not there yet
        expected = os.path.realpath(f"{self.folder}/there")
        self.assertEqual(files.resolved(f"{self.folder}/link/"), expected)
        self.assertEqual(files.resolved(f"{self.folder}/a/b/../c"), f"{self.folder}/a/b/../c")
        self.assertEqual(files.resolved("run/"), "run")
        self.assertEqual(files.resolved("."), os.getcwd())

    @parameterized.parameters("", "file://")
    def test_missing_file(self, scheme):
        with self.assertRaisesRegex(ValueError, "/x must be a file, got no such file"):
            files.read_text(f"{scheme}{self.folder}/x")


if __name__ == "__main__":
    absltest.main()
