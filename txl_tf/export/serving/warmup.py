"""Warm-up requests, which TF Serving runs before a version is ready."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from txl_tf import extras
from txl_tf.data.tokenizers import Tokenizer

with extras.required("serving"):
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

FILE_NAME = "tf_serving_warmup_requests"
_TOKENS = (1, 16)  # tokens per row, as in generation and in reading


def write(
    path: str,
    name: str,
    description: dict[str, Any],
    functions: Mapping[str, Callable[..., Mapping[str, Any]]],
    text: str,
) -> None:
    """Writes one or two requests per signature, as a TFRecord of `PredictionLog`.

    Each request is run first: a server would not load a version that fails one.

    Args:
      name: of the model.
      description: as in `model.json`.
      functions: the signatures.
      text: a valid text for the model; see `text_of`.

    Raises:
      ValueError: a request fails, or its result is NaN or infinite.
    """
    with tf.io.TFRecordWriter(path) as writer, _unoptimized():
        for signature, inputs in requests(description, text):
            _run(signature, functions[signature], inputs)
            request = predict_pb2.PredictRequest(inputs=inputs)
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def text_of(tokenizer: Tokenizer) -> str:
    """Returns a printable text of one known token, or "" if there is none."""
    for token_id in range(tokenizer.vocab_size):
        text = tokenizer.decode([token_id])
        if text.isprintable() and _is_known(tokenizer, text):
            return text
    return ""


def _is_known(tokenizer: Tokenizer, text: str) -> bool:
    try:
        ids = tokenizer.encode(text)
    except ValueError:  # for example, lower case makes it another symbol
        return False
    return len(ids) > 0 and tokenizer.unknown_id not in ids


@contextlib.contextmanager
def _unoptimized() -> Iterator[None]:
    """Disables graph optimisation: it takes longer than running a graph once or twice."""
    name = "disable_meta_optimizer"
    before = tf.config.optimizer.get_experimental_options().get(name, False)
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({name: before})


def _run(signature: str, function: Callable[..., Mapping[str, Any]], inputs) -> None:
    tensors = {name: tf.constant(tf.make_ndarray(proto)) for name, proto in inputs.items()}
    try:
        results = function(**tensors)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(f"signature {signature} must run, got: {error.message}") from error
    for name, value in results.items():
        if value.dtype.is_floating and not np.isfinite(value).all():
            raise ValueError(f"signature {signature} must give finite {name}, got NaN or infinity")


def requests(
    description: dict[str, Any], text: str
) -> Iterator[tuple[str, dict[str, tensor_pb2.TensorProto]]]:
    """Yields (signature, inputs): one row with an empty state."""
    state = {name: _zeros(spec) for name, spec in description["state"].items()}
    texts = _proto(np.array([text.encode()], object))
    yield "initial_state", {"batch_size": _proto([1])}
    for size in _TOKENS:
        for signature, dtype in (("step", "int32"), ("step_int64", "int64")):
            ids = _proto(np.zeros([1, size], dtype))
            yield signature, state | {"input_ids": ids, "lengths": _proto(np.array([size], dtype))}
    yield "score", {"text": texts}
    yield "encode", {"text": texts}
    yield "decode", {"ids": _proto(np.zeros([1, 1], "int32")), "lengths": _proto([1])}
    if "generate" in description["signatures"]:
        numbers = dict(length=2, top_k=0, seed=0)
        yield (
            "generate",
            {
                "prompts": texts,
                "temperature": _proto([1.0]),
                "top_p": _proto([1.0]),
                **{name: _proto([value]) for name, value in numbers.items()},
            },
        )


def _proto(values) -> tensor_pb2.TensorProto:
    return tf.make_tensor_proto(values)  # lists are int32 or float32


def _zeros(spec: dict[str, Any]) -> tensor_pb2.TensorProto:
    """Returns one row of zeros, stored as a single broadcast value to keep the file small."""
    dtype = tf.dtypes.as_dtype(spec["dtype"])
    shape = tf.TensorShape([1, *spec["shape"][1:]])
    proto = tf.make_tensor_proto(0, dtype, [min(shape.num_elements(), 1)])  # empty without memory
    proto.tensor_shape.CopyFrom(shape.as_proto())
    return proto
