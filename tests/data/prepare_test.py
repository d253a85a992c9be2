"""Text files to shards, through the library."""

import gzip
import io
import os
import shutil
from unittest import mock

import numpy as np
import pytest
from absl import logging
from absl.testing import absltest, parameterized

import helpers
import prepared
from txl_tf.data import encoding_passes, files, metadata, outputs, prepare, shards, text, tokenizers
from txl_tf.data.recipe import Recipe


class PrepareCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)
        self.out = str(self.folder / "out")

    def file(self, content, name="train.txt"):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def prepare(self, *contents, recipe=None, num_workers=1, overwrite=False, **fields):
        """Prepares texts as the train split; `fields` are the recipe's."""
        names = [self.file(content, f"{i}.txt") for i, content in enumerate(contents)]
        return prepare.prepare(
            {"train": text.find(names)},
            self.out,
            recipe or Recipe(**fields),
            num_workers=num_workers,
            overwrite=overwrite,
        )

    def words(self, split="train"):
        tokenizer = tokenizers.load(self.out)
        return " ".join(tokenizer.symbol(i) for i in prepared.stream(self.out, split)[0])


class SplitsTest(PrepareCase):
    def test_paths_and_globs(self):
        """As a program of a user has them: a path, a list, a `pathlib.Path`, no recipe."""
        one, two = self.file("abc", "1.txt"), self.file("de", "2.txt")
        self.file("f", "valid")
        splits = {
            "train": str(self.folder / "*.txt"),
            "valid": [self.folder / "valid"],
            "test": self.folder / "2.txt",
        }
        made, _ = prepare.prepare(splits, self.folder / "out")
        self.assertEqual(made.tokenizer["kind"], "byte")
        self.assertEqual([made.split(s).tokens for s in splits], [5, 1, 2])
        sources = {"train": text.find([one, two]), "valid": [self.folder / "valid"], "test": two}
        self.assertEqual(prepare.prepare(sources, self.out).status, "reused")

    def test_a_path_that_is_not_there(self):
        with self.assertRaisesRegex(ValueError, "/none"):
            prepare.prepare({"train": "/none"}, self.out)
        self.assertFalse(files.exists(self.out))


class ResultTest(PrepareCase):
    def test_metadata(self):
        made, status = self.prepare("a b\nc é\n", gzip.compress(b"a"), tokenizer="word")
        split = made.split("train")
        self.assertEqual(status, "built")
        self.assertEqual(metadata.Metadata.load(self.out), made)
        self.assertEqual(made.tokenizer["kind"], "word")
        self.assertEqual(made.tokenizer["options"]["end_of_line"], "eos")
        self.assertEqual((made.vocab_size, split.tokens, split.shards), (6, 8, (8,)))
        self.assertEqual((split.bytes, split.characters, split.unknown), (11, 10, 0))
        self.assertEqual((split.documents, split.streams), (2, (8,)))
        self.assertEqual([source.name for source in split.sources], ["0.txt", "1.txt"])
        self.assertEqual(split.sources[1].bytes, os.path.getsize(self.folder / "1.txt"))
        self.assertEqual(made.vocab_checksum, tokenizers.load(self.out).checksum)
        self.assertEqual(self.words(), "a b <eos> c é <eos> a <eos>")  # files are not glued
        self.assertEqual(prepared.stream(self.out)[1], [0, 6])

    def test_splits_and_unknown(self):
        sources = {
            split: text.find([self.file(content, f"{split}.txt")])
            for split, content in dict(test="q q", valid="a q", train="a b a <unk> x<eos>y").items()
        }
        made, _ = prepare.prepare(sources, self.out, Recipe(tokenizer="word"))
        self.assertEqual(list(made.splits), ["train", "valid", "test"])
        self.assertEqual(self.words("valid"), "a <unk> <eos>")
        self.assertEqual([s.unknown for s in made.splits.values()], [0, 1, 2])
        everything = Recipe(tokenizer="word", vocab_from="all")
        made, status = prepare.prepare(sources, self.out, everything)
        self.assertEqual((status, made.split("test").unknown), ("rebuilt", 0))

    def test_bytes_are_those_that_the_tokens_stand_for(self):
        content = "\ufeffé\n\nb\n"
        for fields, expected in (
            (dict(tokenizer="byte"), (9, 6)),
            (dict(tokenizer="byte", options=dict(drop_newlines=True)), (6, 3)),
            (dict(tokenizer="char"), (6, 5)),
            (dict(tokenizer="char", options=dict(drop_newlines=True)), (3, 2)),
            (dict(tokenizer="word"), (6, 5)),
            (dict(tokenizer="word", options=dict(blank_lines="drop")), (5, 4)),
            (dict(tokenizer="word", options=dict(end_of_line="none")), (4, 3)),
        ):
            split = self.prepare(content, **fields).metadata.split("train")
            self.assertEqual((split.bytes, split.characters), expected, fields)

    def test_many_unknown_words_are_logged(self):
        content = " ".join(["a"] * 100 + [f"w{i}" for i in range(800)])
        for min_count, unknown in ((0, 0), (2, 800)):
            with self.assertLogs(level="WARNING") as logs:
                logging.warning("first")
                made, _ = self.prepare(content, tokenizer="word", min_count=min_count)
            split = made.split("train")
            self.assertEqual((split.tokens, split.unknown), (901, unknown))
            told = [line for line in logs.output if "symbols outside the vocabulary" in line]
            self.assertLen(told, int(unknown > 0))
        self.assertIn("train: 800 of 901 tokens (88.8%) are symbols", told[0])

    @parameterized.parameters(
        ("file", "none", [0, 7]), ("line", "none", [0, 2, 3, 5, 7, 9]), ("none", "none", [0])
    )
    def test_documents(self, boundary, end_of_line, expected):
        del end_of_line
        made, _ = self.prepare("a\n\nb\nc\n", "d\ne", document_boundary=boundary)
        self.assertEqual(prepared.stream(self.out)[1], expected)
        self.assertEqual(made.split("train").documents, len(expected))

    def test_documents_without_tokens_are_none(self):
        options = dict(end_of_line="none")
        fields = dict(tokenizer="word", options=options, document_boundary="line")
        made, _ = self.prepare("\n\na\n \nb c\n\n", " \n", "d", **fields)
        self.assertEqual(prepared.stream(self.out)[1], [0, 1, 3])
        self.assertEqual(made.split("train").documents, 3)

    def test_blank_line_documents(self):
        self.prepare("a\n\n\nb\n", "c\n", document_boundary="blank_line", tokenizer="word")
        self.assertEqual(self.words(), "a <eos> <eos> <eos> b <eos> c <eos>")
        self.assertEqual(prepared.stream(self.out)[1], [0, 4, 6])


class ReuseTest(PrepareCase):
    def test_same_and_changed(self):
        fields = dict(tokenizer="word")
        self.assertEqual(self.prepare("a b", **fields).status, "built")
        before = prepared.contents(self.out)
        made, status = self.prepare("a b", **fields)
        self.assertEqual((status, made.split("train").tokens), ("reused", 3))
        self.assertEqual(self.prepare("a c", **fields).status, "rebuilt")
        self.assertNotEqual(prepared.contents(self.out), before)
        self.assertEqual(self.prepare("a c", min_count=2, **fields).status, "rebuilt")
        self.assertEqual(self.prepare("a c", min_count=2, **fields).status, "reused")
        self.assertEqual(self.prepare("a c", "d", min_count=2, **fields).status, "rebuilt")

    def test_overwrite(self):
        self.prepare("a b")
        self.assertEqual(self.prepare("a b", overwrite=True).status, "rebuilt")

    def test_number_of_workers_is_no_change(self):
        self.prepare("a b")
        self.assertEqual(self.prepare("a b", num_workers=2).status, "reused")

    @parameterized.parameters("train-00000-of-00001.tfrecord", "vocab.txt", "metadata.json")
    def test_damage_is_repaired(self, name):
        self.prepare("a b", tokenizer="char")
        before = prepared.contents(self.out)
        os.remove(f"{self.out}/{name}")
        self.assertEqual(self.prepare("a b", tokenizer="char").status, "rebuilt")
        self.assertEqual(prepared.contents(self.out), before)

    def test_changed_vocabulary(self):
        self.prepare("a b", tokenizer="char")
        with open(f"{self.out}/vocab.txt", "w") as file:
            file.write("b\na\n<unk>\n")
        self.assertEqual(self.prepare("a b", tokenizer="char").status, "rebuilt")

    def test_vocabulary_of_another_folder(self):
        self.prepare("a b a", tokenizer="word")
        first = tokenizers.load(self.out)
        self.out = str(self.folder / "second")
        vocab = str(self.folder / "out")
        made, _ = self.prepare("b q", vocab=vocab)
        self.assertEqual(tokenizers.load(self.out), first)
        self.assertEqual(made.vocab_checksum, first.checksum)
        self.assertEqual(self.words(), "b <unk> <eos>")


class RefusalTest(PrepareCase):
    def refuse(self, message, *contents, **fields):
        self.prepare("before")
        before = prepared.contents(self.out)
        with self.assertRaisesRegex(ValueError, message):
            self.prepare(*contents, **fields)
        self.assertEqual(prepared.contents(self.out), before)
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("out")], ["out"])

    def test_no_tokens(self):
        self.refuse("train must hold text, got no tokens in .*0.txt", b"")
        self.refuse("got no tokens in .*0.txt, .*1.txt", b"", b"", tokenizer="word")
        none = dict(tokenizer="word", options=dict(end_of_line="none"))
        self.refuse("train must hold text, got no tokens in 0.txt", b" \n\n", **none)
        self.refuse("got no tokens in 0.txt", gzip.compress(b""), tokenizer="char")

    def test_errors_late_in_the_text(self):
        late = prepared.text(20_000).encode() * 100 + b"\xff"
        offset = len(late) - 1
        for tokenizer in ("word", "char"):
            message = f"0.txt must be UTF-8, got byte 0xff at offset {offset}"
            self.refuse(message, late, tokenizer=tokenizer)

    def test_unknown_symbols(self):
        self.prepare("ab\n", tokenizer="char", options=dict(unknown="error"))
        vocab, self.out = self.out, str(self.folder / "second")
        with self.assertRaisesRegex(ValueError, "0.txt: text must hold only symbols .* got 'q'"):
            self.prepare("aq", vocab=vocab)
        self.assertFalse(os.path.exists(self.out))

    def test_text_that_changes_between_the_passes(self):
        contents = iter([b"a b", b"a c"])
        source = text.Source("x", 3, lambda: io.BytesIO(next(contents)))
        with self.assertRaisesRegex(
            ValueError, "x must not change between passes, got other content"
        ):
            prepare.prepare({"train": [source]}, self.out, Recipe(tokenizer="word"))

    def test_output_dir(self):
        source = {"train": text.find([self.file("a")])}
        with self.assertRaisesRegex(ValueError, "output_dir must be a folder, got the file .*txt"):
            prepare.prepare(source, str(self.folder / "train.txt"), Recipe())
        with self.assertRaisesRegex(ValueError, "only prepared data, got .*/train.txt"):
            prepare.prepare(source, str(self.folder), Recipe())
        self.assertTrue((self.folder / "train.txt").exists())

    def test_what_others_call_like_ours_stays(self):
        marks = "and no metadata.json or preparation.json"
        for name, message in (
            ("images.tfrecord", "only prepared data, got .*/images.tfrecord"),
            ("train-00000-of-00001.tfrecord", f"or be empty, got .*out with train-0.* {marks}"),
            ("vocab.txt", f"data or be empty, got .*out with vocab.txt {marks}"),
        ):
            (self.folder / "out").mkdir()
            self.file("years of work", f"out/{name}")
            with self.subTest(name), self.assertRaisesRegex(ValueError, message):
                self.prepare("a")
            self.assertEqual(os.listdir(self.out), [name])
            shutil.rmtree(self.out)

    def test_another_process_that_prepares_it(self):
        self.prepare("before")
        before = prepared.contents(self.out)
        with outputs.held("output_dir", self.out, lambda name, path: None, any_name=True):
            self.assertEqual(self.prepare("before").status, "reused")
            message = f"written by one process at a time, got {self.out} while another one"
            with self.assertRaisesRegex(ValueError, message):
                self.prepare("after")
        self.assertEqual(prepared.contents(self.out), before)
        self.assertEqual(self.prepare("after").status, "rebuilt")

    def test_what_users_have_beside_it_stays(self):
        for name in ("out.old", "out.partial"):
            self.file("years of work", "thesis.txt")
            (self.folder / name).mkdir()
            (self.folder / "thesis.txt").rename(self.folder / name / "thesis.txt")
        for content, status in (("a", "built"), ("b", "rebuilt")):
            self.assertEqual(self.prepare(content).status, status)
        for name in ("out.old", "out.partial"):
            self.assertEqual(os.listdir(self.folder / name), ["thesis.txt"])

    def test_a_folder_with_letters_of_patterns(self):
        """Nothing here is read by patterns: one beside the other is right."""
        for name, content in (("out1", "a"), ("out[1]", "bb"), ("out*", "ccc")):
            self.out = str(self.folder / name)
            self.assertEqual(self.prepare(content).status, "built")
        for name, tokens in (("out1", 1), ("out[1]", 2), ("out*", 3)):
            found = metadata.Metadata.load(str(self.folder / name))
            self.assertEqual(found.splits["train"].tokens, tokens)

    def test_empty_folder_and_symbolic_link(self):
        (self.folder / "real").mkdir()
        (self.folder / "out").symlink_to(self.folder / "real")
        self.assertEqual(self.prepare("a").status, "built")
        self.assertTrue((self.folder / "out").is_symlink())
        self.assertTrue((self.folder / "real" / "metadata.json").exists())

    def test_arguments(self):
        with self.assertRaisesRegex(
            ValueError, "text must be given for at least one of train, valid, test"
        ):
            prepare.prepare({"train": []}, self.out, Recipe())
        with self.assertRaisesRegex(ValueError, "num_workers must be at least 1, got 0"):
            self.prepare("a", num_workers=0)
        valid = {"valid": text.find([self.file("a")])}
        with self.assertRaisesRegex(ValueError, "train must be given to build a vocabulary"):
            prepare.prepare(valid, self.out, Recipe(tokenizer="word"))
        self.assertEqual(prepare.prepare(valid, self.out, Recipe()).status, "built")


class WarningTest(PrepareCase):
    def test_warnings(self):
        with self.assertLogs(level="WARNING") as logs:
            self.prepare("\n\n\n", "", tokenizer="word")
        self.assertIn("no tokens in", logs.output[0])
        self.assertIn("train holds a single distinct token, 3 times", logs.output[1])
        self.assertEqual(self.words(), "<eos> <eos> <eos>")
        source = text.find([self.file("a b")])
        with self.assertLogs(level="WARNING") as logs:
            prepare.prepare({"train": source, "valid": source}, self.out, Recipe())
        self.assertIn("train.txt is in both train and valid", logs.output[0])


class ParallelTest(PrepareCase):
    def check(self, *workers, **fields):
        contents = [prepared.text(40_000, seed) for seed in range(5)]
        folders = []
        with mock.patch.object(prepare, "_WORTH_WORKERS", 0):
            for num_workers in workers:
                self.out = str(self.folder / f"out{num_workers}")
                self.prepare(*contents, num_workers=num_workers, **fields)
                folders.append(prepared.contents(self.out))
        for folder in folders[1:]:
            self.assertEqual(folder, folders[0])

    def test_any_number_of_workers_writes_the_same_bytes(self):
        self.check(1, 2, tokenizer="word", document_boundary="blank_line")

    @parameterized.parameters(
        (dict(tokenizer="byte", document_boundary="line"),),
        (dict(tokenizer="char"),),
        (dict(tokenizer="word"),),
        (dict(tokenizer="sentencepiece", vocab_size=400),),
        (dict(tokenizer="word", shuffle_sentences=2, document_boundary="line"),),
    )
    @pytest.mark.slow
    def test_also_with_other_options(self, fields):
        self.check(1, 2, 3, **fields)

    def test_several_pieces_and_shards(self):
        content = prepared.text(30_000) * 100
        made, _ = self.prepare(content, tokenizer="char")
        split = made.split("train")
        self.assertEqual(split.shards, (1 << 20, 1 << 20, split.tokens - (1 << 21)))
        tokens, starts = prepared.stream(self.out)
        self.assertEqual(tokenizers.load(self.out).decode(tokens), content)
        self.assertEqual(starts, [0])


class LongLineTest(PrepareCase):
    @parameterized.parameters("byte", "char", "word", "sentencepiece")
    def test_one_long_line_gives_the_ids_of_short_lines(self, tokenizer):
        """Subword pieces may differ at a cut after a space, which begins a piece elsewhere."""
        content = (prepared.text(25_000) * 60).replace("\n", " ").strip()
        size = 400 if tokenizer == "sentencepiece" else None
        self.prepare(content, tokenizer=tokenizer, vocab_size=size)
        found = tokenizers.load(self.out)
        ids, _ = prepared.stream(self.out)
        if tokenizer == "word":
            self.assertEqual(ids, found.encode(content).tolist())
        else:
            self.assertEqual(found.decode(ids), content)


class ShuffleTest(PrepareCase):
    def test_draws_of_the_original(self):
        """One generator for all files; each shuffle starts from the order before."""
        files_of_lines = [[f"{name}{i}" for i in range(9)] for name in "ab"]
        contents = ["\n".join(lines) for lines in files_of_lines]
        fields = dict(tokenizer="word", shuffle_sentences=2, document_boundary="line")
        made, _ = self.prepare(*contents, **fields)
        generator = np.random.RandomState(123456)
        expected = []
        for lines in files_of_lines:
            for _ in range(2):
                generator.shuffle(lines)
                expected += [word for line in lines for word in (line, "<eos>")]
        self.assertEqual(self.words(), " ".join(expected))
        split = made.split("train")
        self.assertEqual((split.streams, split.tokens), ((18,) * 4, 72))
        self.assertEqual(split.bytes, 2 * sum(len(content) + 1 for content in contents))
        self.assertEqual(prepared.stream(self.out)[1], list(range(0, 72, 2)))

    @parameterized.parameters(("file", [0, 18, 36, 54]), ("none", [0]))
    def test_documents(self, boundary, expected):
        content = "\n".join(map(str, range(9)))
        fields = dict(tokenizer="word", shuffle_sentences=2, document_boundary=boundary)
        self.prepare(content, content, **fields)
        self.assertEqual(prepared.stream(self.out)[1], expected)

    def test_only_the_train_split(self):
        path = self.file("a\nb\nc\n")
        splits = {split: text.find([path]) for split in ("train", "valid")}
        made, _ = prepare.prepare(splits, self.out, Recipe(tokenizer="word", shuffle_sentences=3))
        self.assertEqual([s.tokens for s in made.splits.values()], [18, 6])
        self.assertEqual(self.words("valid"), "a <eos> b <eos> c <eos>")


class RemoteTest(PrepareCase):
    def test_every_path_may_be_remote(self):
        self.file("a b\n", "in.txt")
        out = f"file://{self.folder}/remote"
        sources = {"train": text.find([f"file://{self.folder}/in.*"])}
        for expected in ("built", "reused"):
            made, status = prepare.prepare(sources, out, Recipe(tokenizer="word"))
            self.assertEqual(status, expected)
        self.assertEqual(tokenizers.load(out).checksum, made.vocab_checksum)
        self.assertEqual(prepared.stream(self.folder / "remote")[0], [1, 2, 0])
        self.assertEqual(files.names(str(self.folder)), ["in.txt", "remote"])


class EncodedTest(absltest.TestCase):
    def test_writer_carries_a_beginning_to_the_next_piece(self):
        folder = str(helpers.temp_dir(self))
        with encoding_passes.SplitWriter(folder, "train") as writer:
            for ids, starts in (([1, 2], [0, 2]), ([], [0]), ([3], []), ([4], [])):
                ids = np.array(ids, np.int32)
                writer.write(encoding_passes.Encoded(ids, np.array(starts, int), 0, 0, 0, False))
        self.assertEqual(prepared.stream(folder), ([1, 2, 3, 4], [0, 2]))
        self.assertEqual(writer.metadata([], keep_streams=False).documents, 2)
        self.assertEqual(writer.metadata([], keep_streams=False).run_tokens, 8192)
        self.assertEqual(shards.SHARD_TOKENS, 1 << 20)


if __name__ == "__main__":
    absltest.main()
