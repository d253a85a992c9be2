"""Files, local and remote, and folders that appear whole or not at all."""

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

    @parameterized.parameters("", "file://")
    def test_missing_file(self, scheme):
        with self.assertRaisesRegex(ValueError, "/x must be a file, got none of that name"):
            files.read_text(f"{scheme}{self.folder}/x")


class ReplacingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = helpers.temp_dir(self)
        self.path = f"{self.parent}/out"

    def write(self, content):
        with files.replacing(self.path) as draft:
            files.write_bytes(f"{draft}/name", content)

    def test_new_and_again(self):
        for content in (b"1", b"2"):
            self.write(content)
            self.assertEqual(files.read_text(f"{self.path}/name").encode(), content)
            self.assertEqual(files.names(f"{self.parent}"), ["out"])

    def test_an_error_leaves_what_was_there(self):
        for before in ([], ["out"]):
            with self.assertRaises(KeyboardInterrupt), files.replacing(self.path) as draft:
                files.write_bytes(f"{draft}/name", b"half")
                raise KeyboardInterrupt
            self.assertEqual(files.names(f"{self.parent}"), before)
            self.write(b"whole")
        self.assertEqual(files.read_text(f"{self.path}/name"), "whole")

    def test_what_a_killed_process_left_is_removed(self):
        files.make_folder(f"{self.path}.partial")
        files.write_bytes(f"{self.path}.partial/old", b"half")
        self.write(b"whole")
        self.assertEqual(files.names(self.path), ["name"])
        self.assertEqual(files.names(f"{self.parent}"), ["out"])

    def test_killed_between_the_renames(self):
        self.write(b"before")
        files.rename(self.path, f"{self.path}.old")
        with self.assertRaises(ValueError), files.replacing(self.path):
            raise ValueError
        self.assertEqual(files.read_text(f"{self.path}/name"), "before")


if __name__ == "__main__":
    absltest.main()
