"""Ways to a model of TensorFlow Serving: gRPC and REST, NumPy arrays in and out.

    server = serving_transport.connect("localhost:8500", "book", version=None, timeout=60)
    answer = server.predict("encode", {"text": np.array([b"Once"], object)})

No TensorFlow: its package of messages, tensorflow-serving-api, would load all of it. The few
messages that are needed are described below; they are the same bytes on the wire.
"""

import base64
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Arrays = dict[str, np.ndarray]  # strings are objects of bytes

_DTYPES: dict[str, tuple[int, type]] = {  # name: (number, NumPy's)
    "DT_FLOAT": (1, np.float32),
    "DT_INT32": (3, np.int32),
    "DT_STRING": (7, np.object_),
    "DT_INT64": (9, np.int64),
    "DT_BOOL": (10, np.bool_),
    "DT_HALF": (19, np.float16),
}
_BY_NUMBER = dict(_DTYPES.values())
_NUMBERS = {np.dtype(dtype): number for number, dtype in _DTYPES.values()}
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_PREDICT = "/tensorflow.serving.PredictionService/Predict"


class ServerError(ValueError):
    """What a server answered instead of a result, or that it did not answer.

    Attributes:
      invalid: whether the request was at fault.
    """

    def __init__(self, message: str, *, invalid: bool = False):
        super().__init__(message)
        self.invalid = invalid


class Server(Protocol):
    """One version of a model on a server: the one asked for, else that which answers first.

    Later requests go to the same version, as a state means nothing to other weights.
    """

    def predict(
        self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
    ) -> Arrays:
        """Runs a signature.

        Args:
          signature: its name.
          inputs: arrays of the dtypes that the signature has.
          outputs: those that are wanted, where the way allows a choice; none is all.

        Raises:
          ServerError: there is no answer, or a refusal.
        """
        ...


def connect(server: str, model: str, *, version: int | None, timeout: float) -> Server:
    """The model on "HOST:PORT" by gRPC, on "http://HOST:PORT" by REST."""
    kind = Rest if server.startswith(("http://", "https://")) else Grpc
    return kind(server, model, version, timeout)


class Grpc:
    """The binary way, for messages of any size up to the 2 GB of the protocol."""

    def __init__(self, server: str, model: str, version: int | None, timeout: float):
        self._server, self._model, self._version, self._timeout = server, model, version, timeout
        self._channel = grpc.insecure_channel(server, options=_UNLIMITED)
        self._call = self._channel.unary_unary(
            _PREDICT,
            request_serializer=_MESSAGES["PredictRequest"].SerializeToString,
            response_deserializer=_MESSAGES["PredictResponse"].FromString,
        )

    def predict(
        self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
    ) -> Arrays:
        """As in `Server`."""
        request = _MESSAGES["PredictRequest"]()
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        if self._version is not None:
            request.model_spec.version.value = self._version
        for name, value in inputs.items():
            request.inputs.add(key=name, value=_tensor(np.asarray(value)))
        request.output_filter.extend(outputs)
        try:
            answer = self._call(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._error(error) from error
        if answer.model_spec.HasField("version"):
            self._version = answer.model_spec.version.value
        return {item.key: _array(item.value) for item in answer.outputs}

    def _error(self, error: Any) -> ServerError:
        code, details = error.code(), error.details() or error.code().name
        if code == grpc.StatusCode.UNAVAILABLE:
            return _unreachable(self._server, details)
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return _too_slow(self._server, self._timeout)
        return _refusal(details, invalid=code == grpc.StatusCode.INVALID_ARGUMENT)


class Rest:
    """The readable way: JSON over HTTP. It has no float16, and answers with all outputs."""

    def __init__(self, server: str, model: str, version: int | None, timeout: float):
        self._model_url = f"{server.rstrip('/')}/v1/models/{urllib.parse.quote(model)}"
        self._version = version
        self._server, self._timeout = server, timeout
        self._known: dict[str, Any] = {}

    def predict(
        self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
    ) -> Arrays:
        """As in `Server`."""
        del outputs
        dtypes = self._dtypes(signature)
        lists = {name: _list(name, np.asarray(inputs[name])) for name in sorted(inputs)}
        body = json.dumps({"signature_name": signature, "inputs": lists})
        found = self._fetch(":predict", body.encode())["outputs"]
        if len(dtypes) == 1:  # an only output goes without its name
            found = dict.fromkeys(dtypes, found)
        return {name: _from_list(found[name], dtype) for name, dtype in dtypes.items()}

    def _dtypes(self, signature: str) -> dict[str, type]:
        """What a signature answers: JSON does not tell."""
        if not self._known:
            found = self._fetch("/metadata")
            self._version = int(found["model_spec"]["version"])
            self._known = found["metadata"]["signature_def"]["signature_def"]
        if signature not in self._known:
            choices = ", ".join(sorted(self._known))
            raise ServerError(
                f"signature must be one of {choices}, got {signature!r}", invalid=True
            )
        infos = self._known[signature]["outputs"]
        return {name: _DTYPES[info["dtype"]][1] for name, info in infos.items()}

    def _fetch(self, ending: str, body: bytes | None = None) -> dict[str, Any]:
        version = "" if self._version is None else f"/versions/{self._version}"
        url = f"{self._model_url}{version}{ending}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise _refusal(_reason(error), invalid=error.code == 400) from error
        except TimeoutError as error:
            raise _too_slow(self._server, self._timeout) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _too_slow(self._server, self._timeout) from error
            raise _unreachable(self._server, error.reason) from error
        except (http.client.HTTPException, ConnectionError, json.JSONDecodeError) as error:
            raise _unreachable(self._server, error or type(error).__name__) from error


def _refusal(message: str, *, invalid: bool) -> ServerError:
    """What the server says, without the wrapping of checks inside its graph."""
    found = re.match(r"assertion failed: \[(.*)\]$", message, re.MULTILINE)
    return ServerError(found[1] if found else message, invalid=invalid)


def _unreachable(server: str, reason: object) -> ServerError:
    return ServerError(f"server must answer at {server}, got: {reason}")


def _too_slow(server: str, timeout: float) -> ServerError:
    return ServerError(f"server {server} must answer within timeout {timeout:g} s, got nothing")


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):  # not of TensorFlow Serving
        return f"{error.url} answered {error.code} {error.reason}"


def _list(name: str, value: np.ndarray) -> Any:
    """An array as nested lists for JSON, its strings in base 64."""
    if value.dtype == np.float16:
        raise ServerError(
            f"{name} must not be float16 over REST, which has none; use gRPC (--server=HOST:PORT)"
        )
    if value.dtype.kind not in "OSU":
        return value.tolist()
    return _each(value.tolist(), lambda s: {"b64": base64.b64encode(_bytes(s)).decode()})


def _from_list(found: Any, dtype: type) -> np.ndarray:
    if dtype is np.object_:
        return np.array(_each(found, _bytes), dtype)
    return np.array(found, dtype)


def _each(nested: Any, function: Any) -> Any:
    return [_each(item, function) for item in nested] if _is_list(nested) else function(nested)


def _is_list(item: Any) -> bool:
    return isinstance(item, list)


def _bytes(content: str | bytes | dict[str, str]) -> bytes:
    if isinstance(content, dict):
        return base64.b64decode(content["b64"])
    return content.encode() if isinstance(content, str) else content


def _tensor(value: np.ndarray) -> Any:
    """A TensorProto."""
    strings = value.dtype.kind in "OSU"
    tensor = _MESSAGES["TensorProto"](dtype=7 if strings else _NUMBERS[value.dtype])
    for size in value.shape:
        tensor.tensor_shape.dim.add(size=size)
    if strings:
        tensor.string_val.extend(_bytes(item) for item in value.reshape(-1).tolist())
    else:
        tensor.tensor_content = value.astype(value.dtype.newbyteorder("<")).tobytes()
    return tensor


def _array(tensor: Any) -> np.ndarray:
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


_MESSAGES = _messages()
