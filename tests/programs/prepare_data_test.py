"""Tests of scripts/prepare_data.py: awkward text, flags and output."""

import gzip
import json
import os
import subprocess
import sys

import pytest
from absl.testing import absltest, parameterized

import helpers
import prepared
from txl_tf.data import prepare, text, tokenizers
from txl_tf.data.recipe import Recipe

PROGRAM = str(helpers.ROOT / "scripts" / "prepare_data.py")


class ProgramCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.out = self.folder / "out"

    def file(self, content, name="a.txt"):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def call(self, *flags):
        """Runs the program; returns the finished process."""
        command = [sys.executable, PROGRAM, f"--output_dir={self.out}", *flags]
        path = f"{helpers.ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = os.environ | {"PYTHONPATH": path, "LC_ALL": "C", "PYTHONUTF8": "0"}
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", env=environment, timeout=120
        )

    def succeed(self, *flags):
        """What the program prints in the end, and its log."""
        done = self.call(*flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    def fail_with(self, message, *flags, code=1):
        """Checks for one line on stderr, a non-zero exit, and that nothing was written."""
        before = sorted(path.name for path in self.folder.iterdir())
        done = self.call(*flags)
        errors = [line for line in done.stderr.splitlines() if "warning:" not in line]
        self.assertLen(errors, 1, done.stderr)
        self.assertRegex(errors[0], f"^prepare_data: error: .*{message}")
        self.assertEqual((done.returncode, done.stdout), (code, ""))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)


class AwkwardTextTest(ProgramCase):
    """Text as it comes: what becomes of it, through the library, and what is refused."""

    def symbols(self, content, tokenizer="word", invalid_utf8="error", **options):
        """The tokens of one text, as a list of symbols."""
        source = text.find([self.file(content)])
        asked = Recipe(tokenizer=tokenizer, invalid_utf8=invalid_utf8, options=options)
        prepare.prepare({"train": source}, str(self.out), asked)
        found = tokenizers.load(self.out)
        return [found.symbol(i) for i in prepared.stream(self.out)[0]]

    @parameterized.parameters(
        ("a\n\nb\n", "a <eos> <eos> b <eos>"),  # empty lines
        ("a b\r\nc\r\n", "a b <eos> c <eos>"),  # Windows line ends
        ("a\rb\n", "a b <eos>"),  # a lone carriage return is white space
        ("\ufeffa b\n", "a b <eos>"),  # byte-order mark
        ("a \ufeff\n", "a \ufeff <eos>"),  # kept anywhere else
        ("a b", "a b <eos>"),  # no line end at the end
        ("a\u2028b\n", "a b <eos>"),  # white space, but no line end
        ("a\x85b\x1cc\xa0d\n", "a b c d <eos>"),
        ("\n\n\n", "<eos> <eos> <eos>"),
        (gzip.compress(b"a b\n"), "a b <eos>"),
        ("32 101 116\n32", "32 101 116 <eos> 32 <eos>"),  # enwik8 as decimal words
        ("a x<eos>y <eos>\n", "a x<eos>y <eos> <eos>"),
    )
    def test_words(self, content, expected):
        self.assertEqual(self.symbols(content), expected.split(" "))

    def test_blank_lines(self):
        self.assertEqual(
            self.symbols("a\n\n \nb\n", blank_lines="drop"), ["a", "<eos>", "b", "<eos>"]
        )

    def test_white_space_of_ascii(self):
        content = "a\xa0b c\u3000d\te\n\xa0\n \n"
        asked = dict(white_space="ascii", blank_lines="drop")
        expected = ["a\xa0b", "c\u3000d", "e", "<eos>", "\xa0", "<eos>"]
        self.assertEqual(self.symbols(content, **asked), expected)
        found = prepared.metadata(self.out)["tokenizer"]["options"]
        self.assertEqual(found, found | asked)
        flags = (f"--train={self.file(content)}", "--tokenizer=word", "--blank_lines=drop")
        self.assertEqual(self.succeed(*flags, "--white_space=ascii")[0]["status"], "reused")
        self.assertEqual(self.succeed(*flags)[0]["vocab_size"], 7)
        message = "white_space must be left out for tokenizer char"
        self.fail_with(message, flags[0], "--tokenizer=char", "--white_space=ascii")
        vocab, self.out = self.out, self.folder / "second"
        message = "white_space must be 'unicode' as in .*, got 'ascii'"
        self.fail_with(message, flags[0], f"--vocab={vocab}", "--white_space=ascii")

    def test_files_are_not_glued(self):
        sources = text.find([self.file("a b", "1.txt"), self.file("c", "2.txt")])
        prepare.prepare({"train": sources}, str(self.out), Recipe(tokenizer="word"))
        found = tokenizers.load(self.out)
        ids, starts = prepared.stream(self.out)
        self.assertEqual([found.symbol(i) for i in ids], ["a", "b", "<eos>", "c", "<eos>"])
        self.assertEqual(starts, [0, 3])

    def test_a_name_that_is_not_utf8(self):
        path = os.fsencode(self.folder) + b"/caf\xe9.txt"
        with open(path, "wb") as file:
            file.write(b"a b")
        for pattern in (os.fsdecode(path), f"{self.folder}/*.txt"):
            made, _ = self.succeed(f"--train={pattern}")
        self.assertEqual(made["status"], "reused")
        (source,) = prepared.metadata(self.out)["splits"]["train"]["sources"]
        self.assertEqual(source["name"], r"caf\xe9.txt")

    def test_nul_bytes(self):
        self.assertEqual(self.symbols("a\x00b c\n"), ["a\x00b", "c", "<eos>"])

    def test_invalid_utf8(self):
        path = self.file(b"a \xff b\n")
        flags = (f"--train={path}", "--tokenizer=word")
        told = f"{path} must be UTF-8, got byte 0xff at offset 2; .*; --invalid_utf8=replace puts"
        self.fail_with(told, *flags)
        replaced = self.symbols(b"a \xff b\n", invalid_utf8="replace")
        self.assertEqual(replaced, ["a", "\ufffd", "b", "<eos>"])

    def test_empty_file(self):
        path = self.file("")
        self.fail_with(f"train must hold text, got no tokens in {path}", f"--train={path}")

    def test_only_white_space_is_warned_of(self):
        path = self.file(" \n \n")
        _, log = self.succeed(f"--train={path}", "--tokenizer=word")
        self.assertIn("warning: train holds a single distinct token, 2 times", log)

    def test_text_without_spaces_is_warned_of(self):
        lines = "".join(f"{chr(0x4E00 + i)}{chr(0x5E00 + i)}\n" for i in range(50))
        _, log = self.succeed(f"--train={self.file(lines)}", "--tokenizer=word")
        self.assertIn("warning: 50 of 50 words are distinct", log)
        self.assertIn("a tokenizer of characters, bytes or subwords may suit it better", log)

    def test_bytes(self):
        every = bytes(range(256))
        for content in (b"ab\nc", b"ab\r\n", every, b"\xef\xbb\xbfa"):
            self.symbols(content, tokenizer="byte")
            self.assertEqual(prepared.stream(self.out)[0], list(content))
            self.assertEqual(tokenizers.load(self.out).decode_bytes(list(content)), content)

    def test_characters(self):
        family = "👨‍👩‍👧‍👦 e\u0301\tab\n"
        self.assertEqual(self.symbols(family, tokenizer="char"), list(family))
        ids, _ = prepared.stream(self.out)
        self.assertEqual(tokenizers.load(self.out).decode(ids), family)
        self.assertEqual(self.symbols("ab\n", "char", end_of_line="eos"), ["a", "b", "<eos>"])

    def test_lower_case_is_recorded(self):
        self.assertEqual(self.symbols("A \u0130\n", lower_case=True), ["a", "i\u0307", "<eos>"])
        self.assertTrue(prepared.metadata(self.out)["tokenizer"]["options"]["lower_case"])
        self.assertEqual(
            tokenizers.load(self.out).encode("A\n").tolist(), prepared.stream(self.out)[0][::2]
        )
        self.assertEqual(self.symbols("A\n"), ["A", "<eos>"])

    def test_enwik8_of_the_original(self):
        self.assertEqual(self.symbols("a\nb\n", "byte", drop_newlines=True), ["a", "b"])

    def test_unseen_words_are_unknown(self):
        train = self.file("a b a <unk> <eos> x<eos>y", "train.txt")
        valid = self.file("a q", "valid.txt")
        made, _ = self.succeed(f"--train={train}", f"--valid={valid}", "--tokenizer=word")
        found = tokenizers.load(self.out)
        ids, _ = prepared.stream(self.out, "valid")
        self.assertEqual([found.symbol(i) for i in ids], ["a", "<unk>", "<eos>"])
        self.assertEqual(made["splits"]["valid"]["unknown"], 1)
        self.assertEqual(found.encode("a q").tolist(), ids)  # serving agrees

    def test_vocabulary_file(self):
        vocab = self.file("a\n\nb\n", "list.txt")
        flags = (f"--train={self.file('a')}", "--tokenizer=word", f"--vocab={vocab}")
        self.fail_with(f"{vocab}:2 must hold a symbol, got a blank line", *flags)

    def test_extended_vocabulary(self):
        flags = f"--train={self.file('a b')}", "--tokenizer=char"
        self.succeed(*flags)
        known = tokenizers.load(self.out)
        first, self.out = self.out, self.folder / "second"
        flags = f"--train={self.file('bad')}", f"--extend_vocab={first}"
        made, _ = self.succeed(*flags)
        self.assertEqual((made["status"], made["vocab_size"]), ("built", 5))
        self.assertEqual(tokenizers.load(self.out).symbols, (*known.symbols, "d"))
        self.assertEqual(self.succeed(*flags)[0]["status"], "reused")

    @pytest.mark.slow
    def test_remote_path(self):
        path = self.file("a b\n")
        self.assertEqual(self.succeed(f"--train=file://{path}")[0]["splits"]["train"]["tokens"], 4)

    def test_reused_and_rebuilt(self):
        path = self.file("a b\n")
        flags = (f"--train={path}", "--tokenizer=word")
        found = [self.succeed(*flags)[0]["status"] for _ in range(2)]
        found.append(self.succeed(*flags, "--lower_case")[0]["status"])
        self.file("a c\n")
        found.append(self.succeed(*flags, "--lower_case")[0]["status"])
        found.append(self.succeed(*flags, "--lower_case", "--overwrite")[0]["status"])
        self.assertEqual(found, ["built", "reused", "rebuilt", "rebuilt", "rebuilt"])


class FlagsTest(ProgramCase):
    def test_files_and_globs(self):
        for name in ("b1.txt", "b2.txt", "c.txt"):
            self.file(name[0], name)
        made, _ = self.succeed(f"--train={self.folder}/c.txt,{self.folder}/b*.txt")
        self.assertEqual(bytes(prepared.stream(self.out)[0]), b"cbb")
        repeated = [f"--train={self.folder}/{name}.txt" for name in ("b2", "c")]
        self.succeed(*repeated)
        self.assertEqual(bytes(prepared.stream(self.out)[0]), b"bc")
        self.assertEqual(made["splits"]["train"]["documents"], 3)
        self.succeed(f"--train={self.file('d', 'd, e.txt')}", f"--train={self.file('f', ',f')}")
        self.assertEqual(bytes(prepared.stream(self.out)[0]), b"df")

    def test_summary(self):
        path = self.file("é b\n")
        made, log = self.succeed(f"--train={path}", f"--test={path}")
        split = dict(tokens=5, documents=1, unknown=0, bytes=5, characters=4)
        self.assertEqual(
            made,
            dict(
                output_dir=str(self.out),
                status="built",
                tokenizer="byte",
                vocab_size=256,
                splits=dict(train=split, test=split),
            ),
        )
        self.assertIn(f"warning: {path} is in both train and test", log)

    def test_builtin_corpus(self):
        made, log = self.succeed("--builtin_corpus")
        self.assertEqual(log, "")
        self.assertEqual(set(made["splits"]), {"train", "valid", "test"})
        self.assertGreater(made["splits"]["train"]["tokens"], 250_000)
        self.fail_with(
            "--builtin_corpus must be the only text, got --train too",
            "--builtin_corpus",
            "--train=x",
            code=2,
        )

    @parameterized.parameters(
        (["--train=/no/such.txt"], "/no/such.txt must be a file, got no such file", 1),
        ([], "text must be given for at least one of train, valid, test, got none", 1),
        (["--tokenizer=bpe"], "flag --tokenizer=bpe", 2),
        (["--nonsense"], "Unknown command line flag 'nonsense'", 2),
        (["--builtin_corpus", "--lower_case"], "lower_case must be left out for tokenizer byte", 1),
        (["--builtin_corpus", "--num_workers=0"], "num_workers must be at least 1, got 0", 1),
    )
    def test_refuses(self, flags, message, code):
        self.fail_with(message, *flags, code=code)

    def test_output_dir_that_is_a_file(self):
        self.out = self.file("a", "out")
        self.fail_with("output_dir must be a folder, got the file", "--builtin_corpus")

    @pytest.mark.slow
    @parameterized.parameters("unicode", "ascii")
    def test_workers(self, white_space):
        content = prepared.text(30_000).replace(" the", "\u3000the")
        path = self.file(content * 300)  # enough to be worth processes
        flags = (f"--train={path}", "--tokenizer=word", f"--white_space={white_space}")
        self.succeed(*flags, "--num_workers=2")
        two = prepared.contents(self.out)
        self.succeed(*flags, "--num_workers=1", "--overwrite")
        self.assertEqual(prepared.contents(self.out), two)


if __name__ == "__main__":
    absltest.main()
