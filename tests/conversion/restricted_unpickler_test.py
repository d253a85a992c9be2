"""Pickles are read as data, and run no code."""

import argparse
import collections
import json
import pickle

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import pickled
from pickled import Bytes2, Raw, build, call, dumps, made, new
from txl_tf.conversion.torch_reader import allowlist, restricted_unpickler


class PlainTest(pickled.PickleFileTest):
    @parameterized.parameters(range(6))
    def test_plain_values_of_every_protocol(self, protocol):
        value = dict(a=[1, -2.5, None, True, 2**70, "ü\ud800"], b=((1,), ()), c={1, 2}, d={3: {}})
        value["e"] = b"\x00\xff" if protocol else "no bytes"
        value["same"] = value["a"]
        found = self.load(pickle.dumps(value, protocol))
        self.assertEqual(found, value)
        self.assertIs(found["same"], found["a"])

    @parameterized.parameters(range(6))
    def test_dicts_of_all_kinds(self, protocol):
        ordered = collections.OrderedDict(b=1, a=2)
        by_default = collections.defaultdict(int, x=1)
        value = [ordered, collections.Counter("aab"), by_default]
        found = self.load(pickle.dumps(value, protocol))
        self.assertEqual(found, [dict(b=1, a=2), dict(a=2, b=1), dict(x=1)])
        self.assertEqual(list(found[0]), ["b", "a"])
        self.assertEqual([type(v) for v in found], [dict] * 3)

    @parameterized.product(
        protocol=(0, 1, 2, 3, 4), order=("C", "F"), dtype=("<i8", ">f4", "|u1", "?")
    )
    def test_arrays(self, protocol, order, dtype):
        value = np.array(np.arange(12).reshape(3, 4) % 5, dtype, order=order)
        found = self.load(pickle.dumps({"x": value, "y": np.float32(1.5)}, protocol))
        self.assertEqual(found["y"], 1.5)
        np.testing.assert_array_equal(allowlist.array(found["x"]), value)
        self.assertEqual(allowlist.array(found["x"]).dtype, value.dtype)

    @parameterized.parameters(range(6))
    def test_objects_are_records(self, protocol):
        found = self.load(pickle.dumps(argparse.Namespace(lr=0.5, name="x"), protocol))
        self.assertIsInstance(found, allowlist.Record)
        self.assertEqual(found.path, "argparse.Namespace")
        self.assertEqual(found.fields, dict(lr=0.5, name="x"))

    def test_strings_of_python_2_are_utf_8_or_bytes(self):
        found = self.load(dumps([Bytes2("café".encode()), Bytes2(b"\xff"), "Ã©"]))
        self.assertEqual(found, ["café", b"\xff", "Ã©"])

    def test_long_strings_are_passed_over(self):
        value = ["a" * 99, b"b" * 99, Bytes2(b"c" * 99), "d"]
        self.assertEqual(self.load(dumps(value), longest=50), ["", b"", "", "d"])

    def test_attributes_of_dicts_are_dropped(self):
        self.assertEqual(self.load(dumps(build({"a": 1}, {"_metadata": 2}))), {"a": 1})

    def test_other_file_systems(self):
        self.path.write_bytes(dumps({"a": "b" * 100_000}))
        self.assertEqual(restricted_unpickler.load(f"file://{self.path}"), {"a": "b" * 100_000})

    def test_deep_nesting_is_no_danger(self):
        depth = 50_000
        self.load(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".")
        self.load(b"\x80\x02" + b")" + b"\x85" * depth + b".")
        key = Raw(b")" + b"\x85" * depth)  # whose hash, taken in C, would end the process
        for value in ({Raw(b"N"): 1, key: 1}, call("collections.Counter", [(key, 1)])):
            self.refuse(dumps(value), "text or numbers as keys, got tuple")
        for opcodes in (b"}%sNs", b"\x8f(%s\x90", b"(%s\x91", b"(%sNd"):
            self.refuse(b"\x80\x04" + opcodes % key.code + b".", "as keys, got tuple")

    def test_a_high_place_in_the_memo_takes_no_memory(self):
        self.assertEqual(self.load(b"\x80\x02]r\xff\xff\xff\xff."), [])

    def test_reads_what_python_2_wrote(self):
        folder = helpers.shared("golden/D2_cache_python2")
        for case in ("wt103", "text8"):
            corpus = restricted_unpickler.load(str(folder / case / "cache.pkl"))
            expected = json.loads((folder / case / "expected.json").read_text())
            fields = corpus.fields["vocab"].fields
            self.assertEqual(fields["idx2sym"], expected["idx2sym"])
            self.assertEqual(fields["sym2idx"], {s: i for i, s in enumerate(fields["idx2sym"])})
            counts = [fields["counter"].get(s, 0) for s in fields["idx2sym"]]
            self.assertEqual(counts, expected["counts"])
            ids = np.load(folder / case / "io.npz")
            for split in ids.files:
                found = allowlist.array(corpus.fields[split])
                np.testing.assert_array_equal(found, ids[split])


class DamageTest(pickled.PickleFileTest):
    def test_every_cut_is_refused(self):
        value = made("data_utils.Corpus", vocab=made("vocabulary.Vocab", idx2sym=["a", "b"]))
        for data in (
            dumps([value, Bytes2(b"abc"), b"bytes", 2**80, call("collections.Counter", {"a": 1})]),
            pickle.dumps({"a": [np.arange(3), argparse.Namespace(x=1)]}, 4),
            pickle.dumps({"a": [1, 2.5, "text", b"bytes"]}, 0),
        ):
            self.load(data)
            for end in range(len(data)):
                self.refuse(data[:end], "must be a whole file of a pickle, got damage")

    def test_noise_never_crashes(self):
        draw = np.random.default_rng(0)
        value = made("data_utils.Corpus", vocab={"a": [1, 2.5, Bytes2(b"x"), (b"y",)]}, n=None)
        whole = dumps([value, call("collections.OrderedDict", [["a", 1]]), new("utils.a.B", "x")])
        for _ in range(500):
            data = bytearray(whole)
            for place in draw.integers(2, len(data), size=draw.integers(1, 4)):
                data[place] = draw.integers(256)
            try:
                self.load(bytes(data))
            except ValueError as error:
                self.assertStartsWith(str(error), str(self.path))

    def test_what_is_not_a_file_is_rejected(self):
        for path, message in ((self.path, "got no such file"), (self.folder, "got a folder")):
            with self.assertRaisesRegex(ValueError, f"{path} must be a file, {message}"):
                restricted_unpickler.load(str(path))


if __name__ == "__main__":
    absltest.main()
