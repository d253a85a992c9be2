"""Every JSON file of ours, changed in hundreds of ways: read, or refused by file and field.

The mutations follow from a seed: at any depth a value is deleted, replaced, given another type, cut
or put in a list, a field is added, or the text of the file is cut.
"""

import copy
import json
import random

from absl.testing import absltest, parameterized

import helpers
from txl_tf import model_dir
from txl_tf.classification import config as classify_config
from txl_tf.configs.run import Config
from txl_tf.data import files, metadata, tokenizers, vocabulary
from txl_tf.export.edge.description import EdgeDescription
from txl_tf.training import data_record

_MUTATIONS = 250
_VALUES = (None, True, 0, -1, 7, 0.5, 10**400, "", "x", "none", [], [1, "a"], {}, {"a": 1})


def parents(tree):
    """Every object and list in a tree that holds something, with all of its keys."""
    if not isinstance(tree, dict | list) or not tree:
        return
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    yield tree, keys
    for key in keys:
        yield from parents(tree[key])


def mutated(text, draw):
    """The text of a JSON file with one change."""
    if draw.random() < 0.1:
        return text[: draw.randrange(len(text))]
    tree = json.loads(text)
    parent, keys = draw.choice(list(parents(tree)))
    key = draw.choice(keys)
    value = parent[key]
    kind = draw.choice(("delete", "replace", "retype", "cut", "wrap", "insert"))
    if kind == "delete":
        del parent[key]
    elif kind == "insert" and isinstance(parent, dict):
        parent[draw.choice(("more", "", key + "s"))] = draw.choice(_VALUES)
    elif kind == "retype" and isinstance(value, int | float | str):
        parent[key] = str(value) if not isinstance(value, str) else len(value)
    elif kind == "cut" and isinstance(value, str | list):
        parent[key] = value[: len(value) // 2]
    elif kind == "wrap":
        parent[key] = draw.choice(([value], {"a": value}))
    else:
        parent[key] = copy.deepcopy(draw.choice(_VALUES))
    return json.dumps(tree)


def names_in(tree):
    """All names of fields in a tree."""
    found = {key for parent, keys in parents(tree) for key in keys if isinstance(key, str)}
    return found | {"JSON"}


def write_metadata(folder):
    source = metadata.Source(name="a.txt", sha256="ab", bytes=9)
    split = metadata.SplitMetadata(shards=(5, 2), tokens=7, bytes=9, sources=(source,) * 2)
    made = metadata.Metadata(
        tokenizer={"kind": "byte", "options": {}},
        vocab_size=256,
        vocab_checksum="cd",
        splits={"train": split, "valid": split},
    )
    (folder / "metadata.json").write_text(made.to_json())
    return folder / "metadata.json", lambda: metadata.Metadata.load(folder)


def write_tokenizer(folder):
    symbols = vocabulary.Vocabulary(["<eos>", "a", "b", "<unk>"])
    tokenizers.WordTokenizer(vocabulary=symbols, lower_case=True).save(str(folder))
    return folder / "tokenizer.json", lambda: tokenizers.load(folder)


def write_config(folder):
    (folder / "config.json").write_text(Config(model=helpers.tiny_config()).to_json())
    return folder / "config.json", lambda: model_dir.read_config(str(folder))


def write_classifier(folder):
    (folder / "config.json").write_text(classify_config.start("encoder").to_json())
    read = classify_config.ClassifierConfig.from_json
    return folder / "config.json", lambda: files.read_json(str(folder / "config.json"), read)


def write_record(folder):
    split = data_record.SplitRecord(
        tokens=9,
        documents=1,
        streams=(4, 5),
        sources=("a", "b"),
        checksums=("1", "2"),
        settings={"eval.mem_len": 4},
    )
    record = data_record.DataRecord(train=split, valid=split)
    data_record.write(str(folder), record)
    return folder / "data.json", lambda: data_record.read(str(folder))


def edge_tree():
    """A description of one row of 4 tokens, 2 layers, 1 head of width 3 and 5 slots."""

    def tensor(*shape, dtype="float32"):
        return {"shape": list(shape), "dtype": dtype}

    keys, rows = tensor(1, 2, 1, 5, 3), tensor(1, dtype="int32")
    ids = tensor(1, 4, dtype="int32")
    state = dict(keys=keys, values=keys, mem_length=rows)
    inputs = dict(input_ids=ids, lengths=rows, **state)
    return dict(
        format=1,
        vocab_size=11,
        batch_size=1,
        segment_len=4,
        quantize="none",
        file=dict(bytes=3, sha256="ab"),
        tokenizer=dict(kind="byte", options={}, checksum="cd"),
        signatures=dict(
            step=dict(inputs=inputs, outputs=dict(scores=tensor(1, 4, 11), **state)),
            score=dict(
                inputs=dict(targets=ids, **inputs), outputs=dict(log_probs=tensor(1, 4), **state)
            ),
        ),
        initial_state=dict(keys=[[[0.5, 1, 2]]] * 2, values=0.0, mem_length=5),
        config=dict(model=dict(vocab_size=11)),
        report=dict(bytes=3),
    )


def write_edge(folder):
    path = folder / "model.json"
    path.write_text(json.dumps(edge_tree()))
    return path, lambda: files.read_json(str(path), EdgeDescription.from_json).initial()


WRITERS = dict(
    metadata=write_metadata,
    tokenizer=write_tokenizer,
    config=write_config,
    classifier=write_classifier,
    edge=write_edge,
    record=write_record,
)


class MutationTest(parameterized.TestCase):
    @parameterized.parameters(*WRITERS)
    def test_a_changed_file_is_read_or_refused_by_name(self, name):
        path, read = WRITERS[name](helpers.temp_dir(self))
        text, draw, refused = path.read_text(), random.Random(0), 0
        names = names_in(json.loads(text))
        read()
        for _ in range(_MUTATIONS):
            changed = mutated(text, draw)
            path.write_text(changed)
            try:
                read()
            except ValueError as error:
                refused += 1
                message = str(error)
                self.assertStartsWith(message, f"{path}: ", changed)
                told = message.removeprefix(f"{path}: ")
                self.assertTrue(any(field in told for field in names), (told, changed))
                self.assertNotIn("\n", message)
                self.assertLess(len(message), 1000)
        self.assertGreater(refused, _MUTATIONS / 2)

    @parameterized.parameters(*WRITERS)
    def test_bytes_that_are_no_text(self, name):
        path, read = WRITERS[name](helpers.temp_dir(self))
        path.write_bytes(b'{"a": "\xff"}')
        with self.assertRaisesRegex(ValueError, f"{path} must be UTF-8, got .* byte at 7"):
            read()

    def test_objects_in_objects_without_end(self):
        path, read = write_config(helpers.temp_dir(self))
        for text in ("[" * 100_000, '{"model": ' * 100_000):
            path.write_text(text)
            with self.assertRaisesRegex(ValueError, f"{path}: config must be JSON"):
                read()

    def test_a_field_twice(self):
        path, read = write_config(helpers.temp_dir(self))
        path.write_text('{"model": {"vocab_size": 11, "vocab_size": 12}}')
        with self.assertRaisesRegex(ValueError, "config must be JSON, got 'vocab_size' twice"):
            read()


class ChecksumTest(parameterized.TestCase):
    @parameterized.parameters("tokens", "shards", "unknown", "bytes", "characters", "run_tokens")
    def test_no_number_of_a_split_can_be_changed(self, name):
        folder = helpers.temp_dir(self)
        helpers.write_data(folder)
        path = folder / "metadata.json"
        tree = json.loads(path.read_text())
        split = tree["splits"]["train"]
        split[name] = split[name][::-1] if name == "shards" else split[name] + 1
        if name == "tokens":
            split["shards"][0] += 1
            split["streams"][0] += 1
        path.write_text(json.dumps(tree))
        with self.assertRaisesRegex(
            ValueError, f"{path}: checksum must match the other fields, .* was changed"
        ):
            metadata.Metadata.load(folder)

    def test_data_written_before_have_none(self):
        folder = helpers.write_data(helpers.temp_dir(self))
        path = folder / "metadata.json"
        found = metadata.Metadata.load(folder)
        tree = json.loads(path.read_text())
        del tree["checksum"]
        path.write_text(json.dumps(tree))
        self.assertEqual(metadata.Metadata.load(folder), found)

    def test_layout_and_order_of_the_file_do_not_matter(self):
        folder = helpers.write_data(helpers.temp_dir(self))
        path = folder / "metadata.json"
        found = metadata.Metadata.load(folder)
        tree = json.loads(path.read_text())
        path.write_text(json.dumps(dict(reversed(tree.items())), ensure_ascii=True))
        self.assertEqual(metadata.Metadata.load(folder), found)

    @parameterized.parameters("options", "vocabulary")
    def test_a_tokenizer_is_the_one_that_was_saved(self, what):
        path, _ = write_tokenizer(helpers.temp_dir(self))
        tree = json.loads(path.read_text())
        if what == "options":
            del tree["options"]["lower_case"]
            path.write_text(json.dumps(tree))
        else:
            (path.parent / "vocab.txt").write_text("<eos>\nb\na\n<unk>\n")
        with self.assertRaisesRegex(ValueError, f"{path}: checksum must match options and vo"):
            tokenizers.load(path.parent)
        path.write_text(json.dumps({k: v for k, v in tree.items() if k != "checksum"}))
        self.assertEqual(tokenizers.load(path.parent).vocab_size, 4)  # as before there was one


class EdgeDescriptionTest(parameterized.TestCase):
    def test_initial_state(self):
        found = EdgeDescription.from_json(json.dumps(edge_tree())).initial()
        self.assertEqual(found["keys"].shape, (1, 2, 1, 5, 3))
        self.assertEqual(found["keys"][0, 1, 0, 4].tolist(), [0.5, 1, 2])
        self.assertEqual(found["values"].sum(), 0)
        self.assertEqual(found["mem_length"].tolist(), [5])

    @parameterized.parameters(
        ("segment_len", 5, "signatures.step.inputs.input_ids must have shape \\[1, 5\\] and dtype"),
        ("format", 2, "format must be 1, got 2; export the model again"),
        ("batch_size", 2, r"signatures.step.inputs.keys.shape must be \[2, L, H, M, K\], got"),
        ("initial_state", {"keys": 0}, "initial_state must have values, got none"),
        (
            "initial_state",
            {"keys": [[[1]]], "values": 0, "mem_length": 0},
            r"initial_state.keys must be a number or numbers \[2, 1, 3\], got \[\[\[1\]\]\]",
        ),
        (
            "initial_state",
            {"keys": 0, "values": 0, "mem_length": 6},
            r"initial_state.mem_length must be a whole number in 0\.\.5, got 6",
        ),
    )
    def test_mismatches_are_rejected(self, name, value, message):
        with self.assertRaisesRegex(ValueError, message):
            EdgeDescription.from_json(json.dumps(edge_tree() | {name: value}))


if __name__ == "__main__":
    absltest.main()
