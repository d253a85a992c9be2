"""Hostile pickles are rejected by name, and run nothing."""

import builtins
import functools
import operator
import os
import pickle
import struct

from absl.testing import absltest, parameterized

import pickled
from pickled import Do, Global, Raw, build, call, dumps, made, new
from txl_tf.conversion.torch_reader import allowlist


class Attack:
    """What a pickle says to call when it is loaded."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


class HostileTest(pickled.PickleFileTest):
    def attacks(self):
        """Functions that could create the canary, with arguments."""
        touch = f"touch {self.canary}"
        run = f"open({str(self.canary)!r}, 'w')"
        yield r"(posix|nt)\.system", Attack(os.system, touch)
        yield r"\.eval", Attack(eval, run)
        yield r"\.exec", Attack(exec, run)
        yield r"\.open", Attack(open, str(self.canary), "w")
        yield r"\.getattr", Attack(getattr, "", "x")
        yield r"\.__import__", Attack(builtins.__import__, "os")
        yield r"operator\.methodcaller", operator.methodcaller("touch")
        yield r"functools\.partial", functools.partial(os.system, touch)

    def test_the_canary_works(self):
        pickle.loads(pickle.dumps(Attack(os.system, f"touch {self.canary}")))
        self.assertTrue(self.canary.exists())

    @parameterized.parameters(range(6))
    def test_calls_are_refused_by_name(self, protocol):
        for name, attack in self.attacks():
            for value in (attack, {"state": [1, ({"w": attack},)]}):
                self.refuse(pickle.dumps(value, protocol), f"plain data only, got \\S*{name}")

    @parameterized.parameters(
        "os.system",
        "posix.system",
        "subprocess.Popen",
        "builtins.getattr",
        "__builtin__.eval",
        "builtins.type",
        "builtins.bytearray",
        "collections.deque",
        "collections.OrderedDict.__init__",
        "torch.load",
        "torch.hub.load",
        "torch._utils.import_module",
        "torch.storage._load_from_bytes",
        "torch.nn.functional.relu",
        "torch.nn.modules_of_mine.Linear",
        "numpy.load",
        "numpy.core.multiarray._vec_string",
        "utilsx.Vocab",
        "pickle.loads",
        "runpy.run_path",
        "codecs.encode",
    )
    def test_other_names_are_refused(self, path):
        self.refuse(dumps(call(path, "x")), f"plain data only, got {path}$")
        self.refuse(dumps(Global(path)), f"plain data only, got {path}$")

    @parameterized.parameters(
        ("torch.nn.modules", "os.system"),
        ("utils", "vocabulary.os.system"),
        ("collections", "OrderedDict.__class__"),
        ("torch.nn.modules.module", "Module.__init__.__globals__"),
    )
    def test_names_reach_into_nothing(self, module, name):
        stacked = Do((module, name), b"\x93")
        self.refuse(dumps(Do((stacked, ("x",)), b"R")), f"got {module}.{name}$")

    def test_names_are_shown_short_and_on_a_line(self):
        stacked = Do(("os\n\x1b[31m", "x" * 1000), b"\x93")
        self.refuse(dumps(stacked), r"got 'os\\n\\x1b\[31m\.x{50,90}$")

    def test_all_ways_to_call(self):
        touch = f"touch {self.canary}"
        for value in (
            new("os.system", touch),
            Do((Global("os.system"), (touch,), {}), b"\x92"),
            Raw(b"(" + pickled.code(touch) + b"ios\nsystem\n"),
            Raw(b"(cos\nsystem\n" + pickled.code(touch) + b"o"),
        ):
            self.refuse(dumps(value), r"plain data only, got os\.system")
        for opcode in (b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00", b"\x97", b"\x98"):
            self.refuse(dumps(Raw(opcode)), "registered or external object")
        self.refuse(dumps(Raw(b"\x96" + bytes(8))), "registered or external object")

    def test_only_names_are_called(self):
        for function in ("os.system", 3, made("vocabulary.Vocab"), call("collections.Counter")):
            self.refuse(dumps(Do((function, ("x",)), b"R")), "must only call allowed names")
        self.refuse(dumps(call("builtins.list", "x")), "as a name only, got a call of it")
        arguments = Do((Global("vocabulary.Vocab"), ["x"]), b"R")
        self.refuse(dumps(arguments), "must only call allowed names")

    def test_state_is_data(self):
        """Neither __setstate__ nor __class__ nor __dict__ of a record means anything."""
        tricks = {"__setstate__": Global("builtins.set"), "__class__": "x", "__dict__": {"y": 1}}
        record = self.load(dumps(made("vocabulary.Vocab", **tricks)))
        self.assertIs(type(record), allowlist.Record)
        self.assertEqual(list(record.fields), list(tricks))
        self.assertFalse(hasattr(record, "y"))
        again = build(made("vocabulary.Vocab", **tricks), {"x": 1})
        self.refuse(dumps(again), "set the state of objects once, got one for Record")
        for target in (Global("collections.OrderedDict"), Global("utils.x.Y"), [], "x", 3):
            self.refuse(dumps(build(target, tricks)), "must set the state of objects once")
        slots = (None, {"__reduce__": 1})
        self.assertEqual(self.load(dumps(build(new("utils.x.Y"), slots))).fields, {})

    def test_items_go_into_plain_containers_only(self):
        record = new("utils.x.Dict")
        for value, kind in (
            (Do((record, "a", 1), b"s"), "dict"),
            (Do((Global("collections.Counter"), Raw(b"("), "a", 1), b"u"), "dict"),
            (Do((record, 1), b"a"), "list"),
            (Do((record, Raw(b"("), 1), b"e"), "list"),
            (Do((record, Raw(b"("), 1), b"\x90"), "set"),
        ):
            self.refuse(dumps(value), f"must fill a {kind}, got a (Record|Name)")

    def test_arguments_that_do_not_fit(self):
        for value in (
            call("collections.Counter", 1, 2, 3),
            call("collections.OrderedDict", [(1, 2, 3)]),
            call("numpy.core.multiarray.scalar", "f4", b""),
            call("torch._utils._rebuild_tensor_v2"),
            call("_codecs.encode", 3, "latin1"),
        ):
            self.refuse(dumps(value), "must be a whole file of a pickle, got damage: ")
        self.refuse(dumps(call("_codecs.encode", "x", "zip")), "in latin1, got zip")
        based = call("copyreg._reconstructor", Global("utils.X"), Global("builtins.int"), 3)
        self.refuse(dumps(based), "objects derived from object")
        self.refuse(dumps(pickled.persistent("storage")), "got one with external parts")
        storage = made("torch.nn.modules.Storage")
        tensor = call("torch._utils._rebuild_tensor_v2", storage, 0, (1,), (1,), False, {})
        self.refuse(dumps(tensor), "make tensors of storages, got Record")

    def test_arrays_that_are_none_are_refused(self):
        dtype = build(call("numpy.dtype", "i4", 0, 1), (3, "<", None, None, None, -1, -1, 0))
        empty = call("numpy.core.multiarray._reconstruct", Global("numpy.ndarray"), (0,), b"b")
        for state in (None, (1, (3,), dtype, False, bytes(8)), (1, 2), (1, (2,), 3, False, b"x")):
            found = self.load(dumps(build(empty, state)))
            with self.assertRaisesRegex(ValueError, "must hold whole arrays of numbers, got dam"):
                allowlist.array(found)

    def test_arrays_of_objects_are_refused(self):
        dtype = build(call("numpy.dtype", "O8", 0, 1), (3, "|", None, None, None, -1, -1, 63))
        scalar = call("numpy.core.multiarray.scalar", dtype, b"x")
        self.refuse(dumps(scalar), "arrays of numbers, got dtype O8")

    @parameterized.parameters(
        (b"B", "<I", 2**32 - 1),
        (b"T", "<i", 2**31 - 1),
        (b"X", "<I", 2**32 - 1),
        (b"\x8b", "<i", 2**31 - 1),
        (b"\x8d", "<Q", 2**63),
        (b"\x8e", "<Q", 2**60),
        (b"\x95", "<Q", 2**60),
    )
    def test_absurd_lengths_take_no_memory(self, opcode, layout, size):
        data = b"\x80\x04" + opcode + struct.pack(layout, size) + b"abc."
        self.refuse(data, "must be a whole file of a pickle, got damage")


if __name__ == "__main__":
    absltest.main()
