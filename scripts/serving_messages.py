"""The messages of TensorFlow Serving that its client needs, without TensorFlow.

The package that has all of them, tensorflow-serving-api, would load all of TensorFlow. The few that
are needed are described here; they are the same bytes on the wire.
"""

import base64
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DTYPES: dict[str, tuple[int, type]] = {  # name: (number, NumPy's)
    "DT_FLOAT": (1, np.float32),
    "DT_INT32": (3, np.int32),
    "DT_STRING": (7, np.object_),
    "DT_INT64": (9, np.int64),
    "DT_BOOL": (10, np.bool_),
    "DT_HALF": (19, np.float16),
}
_BY_NUMBER = dict(DTYPES.values())
_NUMBERS = {np.dtype(dtype): number for number, dtype in DTYPES.values()}


def bytes_of(content: str | bytes | dict[str, str]) -> bytes:
    """A string as it goes over the wire; in JSON, bytes may be in base 64."""
    if isinstance(content, dict):
        return base64.b64decode(content["b64"])
    return content.encode() if isinstance(content, str) else content


def tensor_of(value: np.ndarray) -> Any:
    """A TensorProto."""
    strings = value.dtype.kind in "OSU"
    tensor = MESSAGES["TensorProto"](dtype=7 if strings else _NUMBERS[value.dtype])
    for size in value.shape:
        tensor.tensor_shape.dim.add(size=size)
    if strings:
        tensor.string_val.extend(bytes_of(item) for item in value.reshape(-1).tolist())
    else:
        tensor.tensor_content = value.astype(value.dtype.newbyteorder("<")).tobytes()
    return tensor


def array_of(tensor: Any) -> np.ndarray:
    """The array of a TensorProto, whichever of its fields the values are in."""
    dtype = np.dtype(_BY_NUMBER[tensor.dtype])
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.tensor_content:
        stored = np.frombuffer(tensor.tensor_content, dtype.newbyteorder("<"))
        return stored.astype(dtype).reshape(shape)
    values: Any = getattr(tensor, _VALUES[tensor.dtype])
    if dtype == np.float16:  # as the numbers of their bits
        values = np.array(values, np.uint16).view(np.float16)
    elif dtype == np.object_:
        values = list(values)
    size = int(np.prod(shape))
    filled = np.empty([size], dtype)
    filled[: len(values)] = values
    if 0 < len(values) < size:  # the last one stands for all that follow
        filled[len(values) :] = values[-1]
    return filled.reshape(shape)


_VALUES = {
    1: "float_val",
    3: "int_val",
    7: "string_val",
    9: "int64_val",
    10: "bool_val",
    19: "half_val",
}

# Of the messages of TensorFlow Serving the fields that are used here: name, number, kind; "*" is
# repeated. A map is, on the wire, a repeated pair.
_FIELDS = {
    "Dim": "size 1 int64",
    "TensorShape": "dim 2 Dim*",
    "TensorProto": "dtype 1 int32, tensor_shape 2 TensorShape, tensor_content 4 bytes, "
    "half_val 13 int32*, float_val 5 float*, int_val 7 int32*, string_val 8 bytes*, "
    "int64_val 10 int64*, bool_val 11 bool*",
    "Item": "key 1 string, value 2 TensorProto",
    "Version": "value 1 int64",
    "ModelSpec": "name 1 string, version 2 Version, signature_name 3 string",
    "PredictRequest": "model_spec 1 ModelSpec, inputs 2 Item*, output_filter 3 string*",
    "PredictResponse": "outputs 1 Item*, model_spec 2 ModelSpec",
}


def _messages() -> dict[str, Any]:
    """The classes of these messages, apart from any others of the same names."""
    file = descriptor_pb2.FileDescriptorProto(
        name="serving_transport.proto", package="serving_transport", syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, number, kind in (field.split() for field in fields.split(", ")):
            field = described.field.add(name=name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _FIELDS:
                field.type, field.type_name = field.TYPE_MESSAGE, f".serving_transport.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"serving_transport.{name}")
        )
        for name in _FIELDS
    }


MESSAGES = _messages()
