"""PyTorch files are read without PyTorch."""

import pickle
import struct
import zipfile

import numpy as np
import safetensors.numpy
from absl.testing import absltest, parameterized

import helpers
import pickled
import torch_written
from pickled import Global, Raw, build, call, dumps, made, persistent, vector
from torch_written import FORMATS, NUMBERS
from txl_tf.conversion.torch_reader import torch_files


def state(**storages):
    """A state dict of vectors, and its storages."""
    values = {name: vector(name, len(data) // 4) for name, data in storages.items()}
    ordered = pickled.Do(
        (call("collections.OrderedDict"), Raw(b"("), *sum(values.items(), ())), b"u"
    )
    return build(ordered, {"_metadata": call("collections.OrderedDict")}), storages


class LoadTest(torch_written.TorchFileTest):
    @parameterized.parameters(*FORMATS)
    def test_what_else_stands_in_checkpoints(self, form):
        parameter = call("torch._utils._rebuild_parameter", vector("0", 24), True, {})
        value = {
            "weights": [parameter],
            "size": call("torch.Size", (2, 3)),
            "device": call("torch.device", "cuda", 0),
            "dtype": Global("torch.float16"),
            "args": made("argparse.Namespace", n_layer=2),
            "nested": {"step": 7, "lr": 0.5, "none": None},
        }
        found = self.load(form, value)
        np.testing.assert_array_equal(found["weights"][0], NUMBERS)
        self.assertEqual(found["size"], (2, 3))
        self.assertEqual(found["device"], "cuda")
        self.assertEqual(found["args"].fields, dict(n_layer=2))
        self.assertEqual(found["nested"], value["nested"])

    def test_byte_order_of_the_archive(self):
        big = NUMBERS.astype(">f4").tobytes()
        for order, data in (("big", big), ("little", NUMBERS), (None, NUMBERS)):
            storages = {"0": bytes(data)}
            found = self.load("zip", vector("0", 24), storages, byteorder=order)
            np.testing.assert_array_equal(found, NUMBERS)
        halves = NUMBERS.view("<u2")[1::2].astype(">u2").tobytes()
        value = vector("0", 24, "BFloat16")
        found = self.load("zip", value, {"0": halves}, byteorder="big")
        np.testing.assert_array_equal(found, (NUMBERS.view("u4") >> 16 << 16).view("f4"))
        self.write("zip", vector("0", 24), {"0": bytes(data)}, byteorder="odd")
        self.refuse("byteorder little or big, got odd")

    @parameterized.parameters("archive/", "model/", "")
    def test_any_folder_of_the_archive(self, root):
        found = self.load("zip", vector("0", 24), root=root)
        np.testing.assert_array_equal(found, NUMBERS)

    @parameterized.parameters(*FORMATS)
    def test_tensors_may_be_left_out(self, form):
        path = self.write(form, {"a": vector("0", 24), "b": "text"}, {"0": NUMBERS.tobytes()})
        self.assertEqual(torch_files.load(path, tensors=False), {"a": None, "b": "text"})

    @parameterized.parameters(*FORMATS)
    def test_other_file_systems(self, form):
        self.write(form, vector("0", 24), {"0": NUMBERS.tobytes()})
        np.testing.assert_array_equal(torch_files.load(f"file://{self.path}"), NUMBERS)

    def test_formats_are_recognised_by_their_first_bytes(self):
        for form in FORMATS:
            self.assertTrue(torch_files.is_torch(self.write(form, [], {})))
        for data in (b"", b"PK", b"text\n", pickle.dumps({"a": 1}), pickle.dumps(1)):
            self.path.write_bytes(data)
            self.assertFalse(torch_files.is_torch(str(self.path)))


class StateDictTest(torch_written.TorchFileTest):
    @parameterized.product(
        form=list(FORMATS), holders=[(), ("model_state",), ("state_dict",), ("model", "state_dict")]
    )
    def test_finds_the_tensors(self, form, holders):
        value, storages = state(a=bytes(8), b=NUMBERS.tobytes())
        for holder in reversed(holders):
            value = {"epoch": 3, holder: value, "optimizer": {"state": {0: {"step": 1}}}}
        found = torch_files.state_dict(self.write(form, value, storages))
        self.assertEqual(list(found), ["a", "b"])
        np.testing.assert_array_equal(found["b"], NUMBERS)

    def module(self, path, parameters, modules=(), buffers=(), **fields):
        kinds = dict(_parameters=parameters, _buffers=dict(buffers), _modules=dict(modules))
        return made(path, training=True, _forward_hooks={}, **kinds, **fields)

    @parameterized.parameters(*FORMATS)
    def test_finds_the_tensors_of_a_pickled_module(self, form):
        shared = call("torch._utils._rebuild_parameter", vector("0", 24), True, {})
        inner = self.module("torch.nn.modules.linear.Linear", {"weight": shared, "bias": None})
        hidden = dict(_non_persistent_buffers_set={"mask": 1})
        buffers = {"inv_freq": vector("1", 2), "mask": vector("1", 2), "unset": None}
        layers = self.module("torch.nn.modules.container.ModuleList", {}, {"0": inner, "1": None})
        value = self.module(
            "mem_transformer.MemTransformerLM", {"u": shared}, {"layers": layers}, buffers, **hidden
        )
        if form == "legacy":  # which stores the source code of classes
            name = persistent("module", Global("mem_transformer.MemTransformerLM"), "x.py", "code")
            value = build(pickled.Do((name, ()), b"\x81"), value.values[1])
        storages = {"0": NUMBERS.tobytes(), "1": bytes(8)}
        found = torch_files.state_dict(self.write(form, {"model": value}, storages))
        self.assertEqual(list(found), ["u", "inv_freq", "layers.0.weight"])
        np.testing.assert_array_equal(found["layers.0.weight"], NUMBERS)

    def test_what_holds_no_tensors_is_refused(self):
        for value, message in (
            ([1], "tensors by name, got list"),
            ({}, "tensors by name, got none"),
            ({"epoch": 1}, "tensors by name, got int as entry epoch"),
            ({"a": vector("0", 24), 3: vector("0", 24)}, "got ndarray as entry 3"),
            (made("argparse.Namespace", a=1), "got argparse.Namespace without parameters"),
            (self.module("utils.A", {}, {"b": 3}), "got int without parameters"),
        ):
            self.write("zip", value, {"0": NUMBERS.tobytes()})
            self.refuse(message, torch_files.state_dict)

    def test_checkpoints_without_end_are_refused(self):
        self.write("zip", Raw(b"}q\x01" + pickled.code("model") + b"h\x01s"), {})
        self.refuse("tensors by name, got dict as entry model", torch_files.state_dict)

    def test_modules_without_end_are_refused(self):
        memo = b"(ctorch.nn.modules\nX\noq\x01}(" + pickled.code("_parameters") + b"}"
        loop = memo + pickled.code("_modules") + b"}(" + pickled.code("a") + b"h\x01" + b"uub"
        self.write("zip", Raw(loop), {})
        self.refuse("got torch.nn.modules.X without parameters", torch_files.state_dict)
        value = self.module("torch.nn.modules.X", {})
        code = pickled.code(value) + b"q\x00"
        for level in range(1, 40):  # a tree of 2 ** 40 nodes
            fields = pickled.code("_parameters") + b"}" + pickled.code("_modules") + b"}("
            fields += b"".join(pickled.code(n) + b"h" + bytes([level - 1]) for n in "ab")
            code += b"(ctorch.nn.modules\nX\no}(" + fields + b"uub" + b"q" + bytes([level])
        self.write("zip", Raw(code), {})
        self.refuse("must hold at most 100000 tensors, got more", torch_files.state_dict)


class RefusalTest(torch_written.TorchFileTest):
    @parameterized.parameters(*FORMATS)
    def test_every_cut_is_refused(self, form):
        value, storages = state(a=bytes(8), b=NUMBERS.tobytes())
        self.write(form, value, storages)
        data = self.path.read_bytes()
        for end in range(len(data)):
            self.path.write_bytes(data[:end])
            self.refuse("must (be whole|be a whole file|be a file|hold)")

    @parameterized.parameters(*FORMATS)
    def test_noise_never_crashes(self, form):
        draw = np.random.default_rng(0)
        value, storages = state(a=bytes(8), b=NUMBERS.tobytes())
        self.write(form, value, storages)
        whole = self.path.read_bytes()
        for _ in range(500):
            data = bytearray(whole)
            for place in draw.integers(len(data), size=draw.integers(1, 4)):
                data[place] = draw.integers(256)
            self.path.write_bytes(data)
            try:
                torch_files.load(str(self.path))
            except ValueError as error:
                self.assertStartsWith(str(error), str(self.path))

    @parameterized.parameters(*FORMATS)
    def test_code_is_refused_by_name_and_not_run(self, form):
        canary = self.path.parent / "canary"
        attack = call("posix.system", f"touch {canary}")
        for value in (attack, {"model": {"a": vector("0", 24), "b": [attack]}}):
            self.write(form, value, {"0": NUMBERS.tobytes()})
            for read in (torch_files.load, torch_files.state_dict):
                self.refuse(r"tensors and plain data only, got posix\.system$", read)
        self.assertFalse(canary.exists())

    def test_code_in_the_other_pickles_of_old_files(self):
        canary = self.path.parent / "canary"
        attack = dumps(call("posix.system", f"touch {canary}"))
        head = [dumps(pickled.MAGIC), dumps(1001), dumps({}), dumps([]), dumps([])]
        for i in range(5):
            self.path.write_bytes(b"".join(head[:i]) + attack)
            self.refuse(r"tensors and plain data only, got posix\.system$")
        self.assertFalse(canary.exists())

    def test_archives_of_other_kinds(self):
        self.write("zip", vector("0", 24), {"0": bytes(96)}, compression=zipfile.ZIP_DEFLATED)
        self.refuse("uncompressed members, got archive/\\S+ compressed")
        with zipfile.ZipFile(self.path, "w") as archive:
            archive.writestr("notes.txt", "x")
        self.refuse("must hold one data.pkl, got 0")
        self.path.write_bytes(pickle.dumps({"a": 1}))
        self.refuse("must be a whole file of PyTorch")
        self.path.write_bytes(dumps(1) + dumps(2) + dumps(3))
        self.refuse("must be a file of torch.save, got another pickle")

    def test_changed_numbers_of_an_archive_are_seen(self):
        self.write("zip", vector("0", 24), {"0": NUMBERS.tobytes()})
        data = bytearray(self.path.read_bytes())
        data[data.index(struct.pack("<f", 17.0))] ^= 1
        self.path.write_bytes(data)
        self.refuse("got damage: BadZipFile Bad CRC-32")


class GoldenTest(parameterized.TestCase):
    @parameterized.parameters(
        "P1_attn0_adaptive/model_state.pt",
        "P2_attn1_learned_relative/model_state.pt",
        "P5_hf_transfo_xl/pytorch_model.bin",
    )
    def test_equals_the_safetensors_beside_it(self, name):
        path = helpers.shared(f"golden/{name}")
        found = torch_files.state_dict(str(path))
        expected = safetensors.numpy.load_file(path.parent / "model.safetensors")
        self.assertContainsSubset(expected, found)
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value)
        ties = {key for key in found.keys() - expected.keys() if "crit.out" not in key}
        self.assertEqual(ties, set())


if __name__ == "__main__":
    absltest.main()
