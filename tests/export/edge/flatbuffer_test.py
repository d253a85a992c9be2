"""Tests of export/flatbuffer.py."""

import pathlib

import numpy as np
import runtime_test
from absl.testing import absltest
from ai_edge_litert import schema_py_generated as schema

from txl_tf.export.edge import flatbuffer


class FlatbufferTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = pathlib.Path(runtime_test.exported()[1]).read_bytes()

    def test_packing_changes_nothing(self):
        found = flatbuffer.Flatbuffer(self.data)
        self.assertEqual(found.pack(), found.pack())
        again = flatbuffer.Flatbuffer(found.pack())
        for (graph, operator, kind), (other, same, its) in zip(
            found.operators(), again.operators(), strict=True
        ):
            self.assertEqual((kind, list(operator.inputs)), (its, list(same.inputs)))
            for number in operator.inputs:
                values = [
                    fb.constant(g.tensors[number], schema.TensorType.FLOAT32, np.float32)
                    for fb, g in ((found, graph), (again, other))
                ]
                np.testing.assert_array_equal(*values)

    def test_equal_scales_are_stored_once(self):
        found = flatbuffer.Flatbuffer(self.data)
        plain = len(found.pack())
        tensors = [tensor for graph in found.model.subgraphs for tensor in graph.tensors]
        for tensor in tensors:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.full(1000, 0.5, np.float32)
        self.assertLess(len(found.pack()) - plain, 2 * 4 * 1000)
        tensors[0].quantization.scale = np.full(1000, 0.25, np.float32)
        again = flatbuffer.Flatbuffer(found.pack()).model.subgraphs[0].tensors
        self.assertEqual([again[i].quantization.scale[0] for i in (0, 1)], [0.25, 0.5])

    def test_operators_are_counted(self):
        ops = flatbuffer.count_ops(self.data)
        self.assertEqual((ops["SOFTMAX"], ops["LOG_SOFTMAX"]), (4, 1))
        self.assertEqual(list(ops), sorted(ops))
        self.assertEmpty(flatbuffer.not_built_in(ops))

    def test_operators_that_are_not_built_in_are_told(self):
        found = flatbuffer.Flatbuffer(self.data)
        code = found.model.operatorCodes[0]
        code.builtinCode, code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM, 32
        code.customCode = b"FlexErf"
        ops = flatbuffer.count_ops(found.pack())
        self.assertEqual(flatbuffer.not_built_in(ops), ["FlexErf"])


if __name__ == "__main__":
    absltest.main()
