"""Protocol messages of TensorFlow Serving, without TensorFlow.

The package tensorflow-serving-api would load all of TensorFlow. The few messages that a client
needs are described here; they are the same bytes on the wire.
"""

import math
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DTYPES: dict[str, tuple[int, type]] = {  # name: (enum value, NumPy dtype)
    "DT_FLOAT": (1, np.float32),
    "DT_INT32": (3, np.int32),
    "DT_STRING": (7, np.object_),
    "DT_INT64": (9, np.int64),
    "DT_BOOL": (10, np.bool_),
    "DT_HALF": (19, np.float16),
}
_BY_NUMBER = dict(DTYPES.values())
_NUMBERS = {np.dtype(dtype): number for number, dtype in DTYPES.values()}
_MAX_BYTES = 2**31  # of a tensor: the limit of a whole message
_MAX_SHOWN = 60  # characters of a value in an error message


def abbreviated(value: object) -> str:
    """Returns the `repr` of a value, shortened for error messages."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def bytes_of(content: str | bytes) -> bytes:
    """Returns a string as UTF-8; bytes are unchanged."""
    return content.encode() if isinstance(content, str) else content


def to_proto(value: np.ndarray) -> Any:
    """Returns an array as a TensorProto."""
    strings = value.dtype.kind in "OSU"
    tensor = MESSAGES["TensorProto"](dtype=7 if strings else _NUMBERS[value.dtype])
    for size in value.shape:
        tensor.tensor_shape.dim.add(size=size)
    if strings:
        tensor.string_val.extend(bytes_of(item) for item in value.reshape(-1).tolist())
    else:
        tensor.tensor_content = value.astype(value.dtype.newbyteorder("<")).tobytes()
    return tensor


def from_proto(name: str, tensor: Any) -> np.ndarray:
    """Returns the array of a TensorProto, whichever field holds its values.

    Raises:
      ValueError: the dtype is not one of `DTYPES`, or the values do not fit the shape.
    """
    if tensor.dtype not in _BY_NUMBER:
        choices = ", ".join(DTYPES)
        raise ValueError(f"{name} must be one of {choices}, got dtype number {tensor.dtype}")
    dtype = np.dtype(_BY_NUMBER[tensor.dtype])
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    size = math.prod(shape)
    if min(shape, default=0) < 0 or size * dtype.itemsize > _MAX_BYTES:
        raise ValueError(
            f"{name} must have at most {_MAX_BYTES} bytes, got shape {abbreviated(shape)} "
            f"of {dtype}"
        )
    if tensor.tensor_content:
        if len(tensor.tensor_content) != size * dtype.itemsize or dtype == np.object_:
            got = f"{len(tensor.tensor_content)} bytes"
            raise ValueError(
                f"{name} must fill its shape {abbreviated(shape)} of {dtype}, got {got}"
            )
        stored = np.frombuffer(tensor.tensor_content, dtype.newbyteorder("<"))
        return stored.astype(dtype).reshape(shape)
    values: Any = list(getattr(tensor, _VALUES[tensor.dtype]))
    if len(values) > size:
        raise ValueError(
            f"{name} must fill its shape {abbreviated(shape)}, got {len(values)} values"
        )
    if dtype == np.float16:  # stored as integers with the same bits
        values = np.array(values, np.int64).astype(np.uint16).view(np.float16)
    # The last value is repeated to fill the shape; without values it is 0 or an empty string.
    rest = values[-1] if len(values) else (b"" if dtype == np.object_ else 0)
    filled = np.full([size], rest, dtype)
    filled[: len(values)] = values
    return filled.reshape(shape)


_VALUES = {
    1: "float_val",
    3: "int_val",
    7: "string_val",
    9: "int64_val",
    10: "bool_val",
    19: "half_val",
}

# The fields used here of each message: name, number, type; "*" is repeated. On the wire, a map is a
# repeated pair.
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
    """Returns the message classes, in a descriptor pool of their own to avoid name clashes."""
    file = descriptor_pb2.FileDescriptorProto(
        name="serving_client.proto", package="serving_client", syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, number, kind in (field.split() for field in fields.split(", ")):
            field = described.field.add(name=name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _FIELDS:
                field.type, field.type_name = field.TYPE_MESSAGE, f".serving_client.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"serving_client.{name}"))
        for name in _FIELDS
    }


MESSAGES = _messages()
