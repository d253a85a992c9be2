"""Requests that TF Serving runs before it says that a version is ready."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

FILE_NAME = "tf_serving_warmup_requests"
_TOKENS = (1, 16)  # of a row: as when generating, and as when reading


def write(path: str, name: str, description: dict[str, Any]) -> None:
    """Writes a request or two for each signature, as a TFRecord of `PredictionLog`.

    Args:
      name: of the model.
      description: as in `model.json`.
    """
    with tf.io.TFRecordWriter(path) as writer:
        for signature, inputs in requests(description):
            request = predict_pb2.PredictRequest(inputs=inputs)
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def requests(
    description: dict[str, Any],
) -> Iterator[tuple[str, dict[str, tensor_pb2.TensorProto]]]:
    """Signatures and inputs: one row, read by an empty state."""
    state = {name: _zeros(told) for name, told in description["state"].items()}
    text = _proto(np.array([b"a"], object))
    yield "initial_state", {"batch_size": _proto([1])}
    for size in _TOKENS:
        for signature, dtype in (("step", "int32"), ("step_int64", "int64")):
            ids = _proto(np.zeros([1, size], dtype))
            yield signature, state | {"input_ids": ids, "lengths": _proto(np.array([size], dtype))}
    yield "score", {"text": text}
    yield "encode", {"text": text}
    yield "decode", {"ids": _proto(np.zeros([1, 1], "int32")), "lengths": _proto([1])}
    if "generate" in description["signatures"]:
        numbers = dict(length=2, top_k=0, seed=0)
        yield (
            "generate",
            {
                "prompts": text,
                "temperature": _proto([1.0]),
                "top_p": _proto([1.0]),
                **{name: _proto([value]) for name, value in numbers.items()},
            },
        )


def _proto(values) -> tensor_pb2.TensorProto:
    return tf.make_tensor_proto(values)  # lists are int32 or float32


def _zeros(told: dict[str, Any]) -> tensor_pb2.TensorProto:
    """One row of zeros. A single number stands for all: the file need not hold a whole state."""
    dtype = tf.dtypes.as_dtype(told["dtype"])
    proto = tf.make_tensor_proto(0, dtype, [1])
    shape = tf.TensorShape([1, *told["shape"][1:]])
    proto.tensor_shape.CopyFrom(shape.as_proto())
    return proto
