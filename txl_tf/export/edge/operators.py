"""Operators of a .tflite file."""

import collections
from typing import Any

from txl_tf import extras

with extras.required("edge"):
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

_CUSTOM = "CUSTOM"


def read(data: bytes) -> Any:
    """Returns the model in the contents of a file, a `schema.ModelT`."""
    return flatbuffer_utils.read_model_from_bytearray(bytearray(data))


def kind(model: Any, operator: Any) -> str:
    """Returns the name of an operator, as "FULLY_CONNECTED"; of a custom one, its own."""
    name = flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
    if name != _CUSTOM:
        return name
    return model.operatorCodes[operator.opcodeIndex].customCode.decode()


def count(data: bytes) -> dict[str, int]:
    """Returns the count of each operator over all signatures, sorted by name."""
    model = read(data)
    kinds = (kind(model, op) for graph in model.subgraphs for op in graph.operators)
    return dict(sorted(collections.Counter(kinds).items()))


def not_built_in(ops: dict[str, int]) -> list[str]:
    """Returns the operators that a standard interpreter lacks."""
    return [name for name in ops if name not in vars(schema.BuiltinOperator)]


def output_projections(data: bytes) -> list[str]:
    """Returns the result names of matmuls after the last layer: no attention or norm follows."""
    model, names = read(data), []
    for graph in model.subgraphs:
        needed: set[int] = set()  # tensors that feed attention or a norm
        for operator in reversed(graph.operators):
            name = kind(model, operator)
            if name in ("BATCH_MATMUL", "RSQRT") or needed.intersection(operator.outputs):
                needed.update(operator.inputs)
            elif name == "FULLY_CONNECTED":
                names.append(graph.tensors[operator.outputs[0]].name.decode())
    return names
