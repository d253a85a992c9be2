"""Tests of txl_tf.export.edge.operators."""

import pathlib

import runtime_test
from absl.testing import absltest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from txl_tf.export.edge import operators


class OperatorsTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = pathlib.Path(runtime_test.exported()[1]).read_bytes()

    def test_operators_are_counted(self):
        ops = operators.count(self.data)
        self.assertEqual((ops["SOFTMAX"], ops["LOG_SOFTMAX"]), (4, 1))
        self.assertEqual(list(ops), sorted(ops))
        self.assertEmpty(operators.not_built_in(ops))

    def test_custom_operators_are_not_built_in(self):
        model = operators.read(self.data)
        code = model.operatorCodes[0]
        code.builtinCode, code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM, 32
        code.customCode = b"FlexErf"
        ops = operators.count(flatbuffer_utils.convert_object_to_bytearray(model))
        self.assertEqual(operators.not_built_in(ops), ["FlexErf"])

    def test_one_projection_to_scores_in_each_signature(self):
        self.assertLen(operators.output_projections(self.data), 2)


if __name__ == "__main__":
    absltest.main()
