"""Conversion of a model to a .tflite file, in float32 or quantised."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from txl_tf import extras
from txl_tf.export.edge.flatbuffer import Flatbuffer

with extras.required("edge"):
    from ai_edge_litert import schema_py_generated as schema

# Yields representative inputs of signatures, as (signature, inputs).
Calibration = Callable[[], Iterator[tuple[str, Mapping[str, np.ndarray]]]]


def convert(folder: str, signatures: list[str], quantize: str, calibration: Calibration) -> bytes:
    """Returns the .tflite file of a SavedModel with static shapes.

    Args:
      folder: of the SavedModel.
      signatures: names of those to convert.
      quantize: a name in `QUANTIZATIONS`.
      calibration: used by int8 only.

    Raises:
      ValueError: the model needs operators that TFLite lacks.
    """

    def make_converter():
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=signatures)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        return converter

    try:
        data = QUANTIZATIONS[quantize](make_converter, calibration)
    except ConverterError as error:
        lines = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
        raise ValueError(f"model must convert to TFLite builtins, got: {lines[0]}") from error
    flatbuffer = Flatbuffer(data)
    flatbuffer.drop_unused_buffers()
    return flatbuffer.pack()


def _float32(make_converter, calibration: Calibration) -> bytes:
    del calibration
    return make_converter().convert()


def _float16(make_converter, calibration: Calibration) -> bytes:
    """Stores weights in float16, dequantised to float32 where a device has no float16."""
    del calibration
    converter = make_converter()
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def _dynamic(make_converter, calibration: Calibration) -> bytes:
    """Stores weights in int8; activations are quantised by the range of each call."""
    del calibration
    converter = make_converter()
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _int8(make_converter, calibration: Calibration) -> bytes:
    """Quantises matmuls with weights to int8 activations, by the calibrated ranges.

    Everything between two activations stays float32: attention's own matmuls, softmax, norms, sums.
    In int8 a masked score of -1e30 alone would leave no resolution for the others. Other weights
    (embeddings, distances, output projections) are as in `_dynamic`.
    """
    plain = Flatbuffer(make_converter().convert())
    others = {kind for *_, kind in plain.operators()} - {"FULLY_CONNECTED"}
    converter = make_converter()
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = calibration
    debugger = tf.lite.experimental.QuantizationDebugger(
        converter=converter,
        debug_dataset=calibration,
        debug_options=tf.lite.experimental.QuantizationDebugOptions(
            denylisted_ops=sorted(others), denylisted_nodes=_output_projections(plain)
        ),
    )
    flatbuffer = Flatbuffer(debugger.get_nondebug_quantized_model())
    _drop_round_trips(flatbuffer)
    _store_as_int8(flatbuffer, plain)
    return flatbuffer.pack()


QUANTIZATIONS: dict[str, Callable[[Any, Calibration], bytes]] = {
    "none": _float32,
    "float16": _float16,
    "dynamic": _dynamic,
    "int8": _int8,
}


def _output_projections(flatbuffer: Flatbuffer) -> list[str]:
    """Returns the result names of matmuls after the last layer: no attention or norm follows."""
    names = []
    for graph in flatbuffer.model.subgraphs:
        needed: set[int] = set()  # tensors that feed attention or a norm
        for operator in reversed(graph.operators):
            kind = flatbuffer.kind(operator)
            if kind in ("BATCH_MATMUL", "RSQRT") or needed.intersection(operator.outputs):
                needed.update(operator.inputs)
            elif kind == "FULLY_CONNECTED":
                names.append(graph.tensors[operator.outputs[0]].name.decode())
    return names


def _drop_round_trips(flatbuffer: Flatbuffer) -> None:
    """Removes QUANTIZE and DEQUANTIZE pairs that only round-trip a tensor.

    The quantizer leaves them after a LOG_SOFTMAX with several readers, clipped at -16.
    """
    for graph in flatbuffer.model.subgraphs:
        kinds = [flatbuffer.kind(operator) for operator in graph.operators]
        steps = list(zip(graph.operators, kinds, strict=True))
        sources = {op.outputs[0]: op.inputs[0] for op, kind in steps if kind == "QUANTIZE"}
        trips = [
            op
            for op, kind in steps
            if kind == "DEQUANTIZE" and op.inputs[0] in sources
            if op.outputs[0] not in graph.outputs
        ]
        direct = {op.outputs[0]: sources[op.inputs[0]] for op in trips}
        kept = [op for op in graph.operators if all(op is not trip for trip in trips)]
        for operator in kept:
            operator.inputs = [direct.get(number, number) for number in operator.inputs]
        read = {number for operator in kept for number in operator.inputs} | {*graph.outputs}
        graph.operators = [
            op for op in kept if flatbuffer.kind(op) != "QUANTIZE" or op.outputs[0] in read
        ]


def _store_as_int8(flatbuffer: Flatbuffer, plain: Flatbuffer) -> None:
    """Stores the weights that are still float32 as int8, as in the dynamic range form.

    A table is the right side of EMBEDDING_LOOKUP and FULLY_CONNECTED, with one scale per row, or of
    BATCH_MATMUL, with a single scale. Lookup tables are taken from the `plain` model: calibration
    adds a zero point, which the operator does not support.
    """
    lookups = iter([graph.tensors[op.inputs[1]] for graph, op in plain.of_kind("EMBEDDING_LOOKUP")])
    stored: dict[Any, Any] = {}  # the int8 form of each buffer
    for kind in ("EMBEDDING_LOOKUP", "FULLY_CONNECTED", "BATCH_MATMUL"):
        for graph, operator in flatbuffer.of_kind(kind):
            tensor = graph.tensors[operator.inputs[1]]
            values = flatbuffer.constant(tensor, schema.TensorType.FLOAT32, np.float32)
            key = (kind == "BATCH_MATMUL", tensor.buffer)
            if kind == "EMBEDDING_LOOKUP":
                original = next(lookups)
                values = plain.constant(original, schema.TensorType.FLOAT32, np.float32)
            if values is None:
                continue
            if key not in stored:
                axes = None if kind == "BATCH_MATMUL" else 1
                scales = np.abs(values).max(axis=axes, keepdims=True) / np.float32(127)
                scales[scales == 0] = 1.0
                small = _shared_int8(flatbuffer, values, scales)
                stored[key] = small or _quantized(flatbuffer, values, scales)
            small = stored[key]
            tensor.type, tensor.buffer = small.type, small.buffer
            tensor.quantization = small.quantization


def _shared_int8(flatbuffer: Flatbuffer, values: np.ndarray, scales: np.ndarray) -> Any:
    """Returns an int8 tensor of the same values, if a table with two uses already has one."""
    for tensor in (tensor for graph in flatbuffer.model.subgraphs for tensor in graph.tensors):
        quantization = tensor.quantization
        stored = flatbuffer.constant(tensor, schema.TensorType.INT8, np.int8)
        if stored is None or stored.shape != values.shape or quantization.scale is None:
            continue
        if quantization.quantizedDimension or len(quantization.scale) != scales.size:
            continue
        if np.any(quantization.zeroPoint):
            continue
        stored_scales = np.asarray(quantization.scale, np.float32).reshape(scales.shape)
        if (np.abs(stored * stored_scales - values) <= stored_scales).all():
            return tensor
    return None


def _quantized(flatbuffer: Flatbuffer, values: np.ndarray, scales: np.ndarray) -> Any:
    """Returns a new int8 tensor of these values."""
    tensor = schema.TensorT()
    tensor.type = schema.TensorType.INT8
    tensor.buffer = flatbuffer.add_buffer(np.round(values / scales).astype(np.int8))
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale = scales.reshape(-1)
    tensor.quantization.zeroPoint = np.zeros(scales.size, np.int64)
    tensor.quantization.quantizedDimension = 0
    return tensor
