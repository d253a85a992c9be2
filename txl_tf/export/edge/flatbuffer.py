"""The TFLite file format: listing a model's operators, and rewriting its tensors."""

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np

from txl_tf import extras

with extras.required("edge"):
    import flatbuffers  # type: ignore[import-untyped]
    from ai_edge_litert import schema_py_generated as schema

_MAGIC = b"TFL3"
_NAMES = {code: name for name, code in vars(schema.BuiltinOperator).items() if name.isupper()}


class Flatbuffer:
    """A .tflite file as mutable objects.

    Args:
      data: the contents of the file.

    Attributes:
      model: a schema.ModelT.
    """

    def __init__(self, data: bytes):
        self.model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)

    def kind(self, operator) -> str:
        """Returns the name of an operator, as "FULLY_CONNECTED"; of a custom one, its own."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        number = max(code.builtinCode, code.deprecatedBuiltinCode)
        if number == schema.BuiltinOperator.CUSTOM:
            return code.customCode.decode()
        return _NAMES[number]

    def of_kind(self, wanted: str) -> list[tuple[Any, Any]]:
        """Returns (subgraph, operator) for each operator of a kind, in order."""
        return [(graph, operator) for graph, operator, kind in self.operators() if kind == wanted]

    def operators(self) -> Iterator[tuple[Any, Any, str]]:
        """Yields (subgraph, operator, kind) for each operator."""
        for graph in self.model.subgraphs:
            for operator in graph.operators or []:
                yield graph, operator, self.kind(operator)

    def constant(self, tensor, kind: int, dtype) -> np.ndarray | None:
        """Returns the values of a constant tensor of this schema.TensorType, or None for others."""
        data = self.model.buffers[tensor.buffer].data
        if tensor.type != kind or data is None or not len(data):
            return None
        return np.frombuffer(bytes(data), dtype).reshape(tensor.shape)

    def add_buffer(self, values: np.ndarray) -> int:
        """Appends a buffer with the values; returns its index."""
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(values.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        return len(self.model.buffers) - 1

    def drop_unused_buffers(self) -> None:
        """Empties unreferenced buffers; the indices of the others stay."""
        used = {tensor.buffer for graph in self.model.subgraphs for tensor in graph.tensors}
        used |= {entry.buffer for entry in self.model.metadata or []}
        for number, buffer in enumerate(self.model.buffers):
            if number not in used:
                buffer.data = None

    def pack(self) -> bytes:
        """Returns the contents of the file, with equal quantization parameters stored once."""
        known: dict[Any, _Shared] = {}
        tensors = [tensor for graph in self.model.subgraphs for tensor in graph.tensors]
        scales = [tensor.quantization for tensor in tensors]
        for tensor in filter(lambda tensor: tensor.quantization is not None, tensors):
            shared = _Shared(tensor.quantization)
            tensor.quantization = known.setdefault(shared.key, shared)
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), _MAGIC)
        for tensor, own in zip(tensors, scales, strict=True):
            tensor.quantization = own
        return bytes(builder.Output())


class _Shared:
    """Quantization parameters of several tensors, written once."""

    def __init__(self, quantization: Any) -> None:
        self._quantization = quantization
        self._offset: int | None = None
        fields = sorted(vars(quantization).items())
        self.key = tuple((name, np.asarray(value).tobytes()) for name, value in fields)

    def Pack(self, builder):  # noqa: N802 - name in the generated classes
        """Returns its offset in the file, writing it first if necessary."""
        if self._offset is None:
            self._offset = self._quantization.Pack(builder)
        return self._offset


def count_ops(data: bytes) -> dict[str, int]:
    """Returns the count of each operator over all signatures, sorted by name."""
    kinds = collections.Counter(kind for _, _, kind in Flatbuffer(data).operators())
    return dict(sorted(kinds.items()))


def not_built_in(ops: dict[str, int]) -> list[str]:
    """Returns the operators that a standard interpreter lacks."""
    return [name for name in ops if name not in _NAMES.values()]
