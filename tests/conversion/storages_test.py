"""Tests of PyTorch storages: dtypes, tensor views, and rejected files."""

import numpy as np
from absl.testing import absltest, parameterized

import pickled
import torch_written
from pickled import persistent, storage, tensor, vector
from torch_written import FORMATS, NUMBERS

TYPES = dict(
    Double="float64",
    Float="float32",
    Half="float16",
    Long="int64",
    Int="int32",
    Short="int16",
    Char="int8",
    Byte="uint8",
)


class StoragesTest(torch_written.TorchFileTest):
    @parameterized.product(form=list(FORMATS), kind=list(TYPES))
    def test_types(self, form, kind):
        expected = np.array([1, 2, 100, 0, 3], TYPES[kind])
        data = expected.astype(expected.dtype.newbyteorder("<")).tobytes()
        options = dict(kinds={"k": kind}) if form == "legacy" else {}
        found = self.load(form, vector("k", 5, kind), {"k": data}, **options)
        np.testing.assert_array_equal(found, expected)
        self.assertEqual(found.dtype, expected.dtype)

    @parameterized.parameters(*FORMATS)
    def test_bfloat16_becomes_float32(self, form):
        expected = np.array([1.0, -2.5, 3e38, 0.0, 1.5, 7.0, -0.125], "<f4")
        expected = (expected.view("<u4") & np.uint32(0xFFFF0000)).view("<f4")
        data = expected.view("<u2")[1::2].tobytes()
        options = dict(kinds={"k": "BFloat16"}) if form == "legacy" else {}
        found = self.load(form, vector("k", 7, "BFloat16"), {"k": data}, **options)
        np.testing.assert_array_equal(found, expected)
        self.assertEqual(found.dtype, "float32")

    @parameterized.parameters(*FORMATS)
    def test_booleans_are_0_or_1(self, form):
        found = self.load(form, vector("k", 3, "Bool"), {"k": b"\x00\x01\x02"}, **self.bools(form))
        np.testing.assert_array_equal(found.view("uint8"), [0, 1, 1])

    def bools(self, form):
        return dict(kinds={"k": "Bool"}) if form == "legacy" else {}

    @parameterized.product(
        form=list(FORMATS),
        case=[
            ((4, 6), (6, 1), 0),
            ((6, 4), (1, 6), 0),
            ((2, 3, 4), (12, 1, 3), 0),
            ((5,), (4,), 3),
            ((3, 2), (7, 2), 5),
            ((), (), 23),
            ((0, 3), (3, 1), 0),
            ((1, 2), (2**60, 1), 22),
        ],
    )
    def test_views(self, form, case):
        size, stride, offset = case
        found = self.load(form, tensor(storage("0", 24), size, stride, offset))
        expected = np.zeros(size, "float32")
        for index in np.ndindex(*size):
            place = offset + sum(i * s for i, s in zip(index, stride, strict=True))
            expected[index] = NUMBERS[place]
        np.testing.assert_array_equal(found, expected)
        self.assertEqual(found.shape, size)

    @parameterized.parameters(*FORMATS)
    def test_shared_storages_stay_shared(self, form):
        whole = storage("0", 24)
        parts = {"a": tensor(whole, (24,), (1,)), "b": tensor(whole, (4,), (1,), 20)}
        found = self.load(form, parts)
        self.assertTrue(np.shares_memory(found["a"], found["b"]))
        np.testing.assert_array_equal(found["a"][20:], found["b"])

    def test_parts_of_storages_in_old_files(self):
        part = storage("0", 24, view=(("1", 4, 6),))
        value = [tensor(part, (6,), (1,)), tensor(part, (2,), (1,), 4)]
        first, second = self.load("legacy", value)
        np.testing.assert_array_equal(first, NUMBERS[4:10])
        np.testing.assert_array_equal(second, NUMBERS[8:10])
        self.write("legacy", tensor(storage("0", 24, view=(("1", 20, 6),)), (6,), (1,)), {})
        self.refuse("must view parts inside their storage of 24 numbers")

    @parameterized.product(form=list(FORMATS), numel=[10**12, 2**62, 2**80, -1, True, "24"])
    def test_absurd_storages_take_no_memory(self, form, numel):
        self.write(form, tensor(storage("0", numel), (2,), (1,)), {"0": NUMBERS.tobytes()})
        self.refuse("storages no larger than the file, got 0 of ")

    @parameterized.product(
        form=list(FORMATS),
        case=[
            ((25,), (1,), 0),
            ((24,), (1,), 1),
            ((2,), (24,), 0),
            ((2,), (2**61,), 0),
            ((10**12,), (0,), 0),
            ((10**6, 10**6), (0, 0), 0),
            ((1,), (1,), 24),
            ((2,), (-1,), 3),
            ((-2,), (1,), 0),
            ((2, 2), (1,), 0),
            ((1.0,), (1,), 0),
            ([2], [1], 0),
            ((2,), (1,), -1),
            ((1,) * 33, (1,) * 33, 0),
            (2**70, 1, 0),
        ],
    )
    def test_tensors_outside_their_storage(self, form, case):
        size, stride, offset = case
        value = tensor(storage("0", 24), size, stride, offset)
        self.write(form, value, {"0": NUMBERS.tobytes()})
        self.refuse("must hold tensors (inside|with)")

    @parameterized.parameters(*FORMATS)
    def test_storages_that_do_not_fit(self, form):
        twice = [storage("0", 24), storage("0", 12, "Double")]
        self.write(form, twice, {"0": NUMBERS.tobytes()})
        self.refuse("storages of one type and size, got two of 0")
        self.write(form, vector("0", 24), {"1": NUMBERS.tobytes()})
        self.refuse("must hold (the storage archive/data/0, got none|each storage .*got 1)")
        self.write(form, vector("0", 20), {"0": NUMBERS.tobytes()})
        self.refuse("must hold (80 bytes in 0, got 96|20 numbers in 0, got 24)")
        many = [vector(str(i), 24) for i in range(100)]
        self.write(form, many, {"0": NUMBERS.tobytes()} if form == "legacy" else {})
        self.refuse("must hold (storages no larger than the file|the storage)")
        self.write(form, persistent("storage", 3, "0", "cpu", 24), {})
        self.refuse("storages of a known type")
        for pid in ("text", ("file", "x"), ()):
            self.write(form, pickled.Do((pid,), b"Q"), {})
            self.refuse("only refer to storages")
        self.write(form, tensor(storage(["0"], 24), (2,), (1,)), {})
        self.refuse("must name its storages by text, got list")

    def test_missing_storages_of_old_files(self):
        self.write("legacy", vector("0", 24), {})
        self.refuse("must hold the storage 0, got none")


if __name__ == "__main__":
    absltest.main()
