"""Ways to a model of TensorFlow Serving: gRPC and REST, NumPy arrays in and out.

    server = serving_transport.connect("localhost:8500", "book", version=None, timeout=60)
    answer = server.predict("encode", {"text": np.array([b"Once"], object)})

No TensorFlow: see `serving_messages`.
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

import serving_messages

Arrays = dict[str, np.ndarray]  # strings are objects of bytes

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
            request_serializer=serving_messages.MESSAGES["PredictRequest"].SerializeToString,
            response_deserializer=serving_messages.MESSAGES["PredictResponse"].FromString,
        )

    def predict(
        self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
    ) -> Arrays:
        """As in `Server`."""
        request = serving_messages.MESSAGES["PredictRequest"]()
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        if self._version is not None:
            request.model_spec.version.value = self._version
        for name, value in inputs.items():
            request.inputs.add(key=name, value=serving_messages.tensor_of(np.asarray(value)))
        request.output_filter.extend(outputs)
        try:
            answer = self._call(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise self._error(error) from error
        if answer.model_spec.HasField("version"):
            self._version = answer.model_spec.version.value
        return {item.key: serving_messages.array_of(item.value) for item in answer.outputs}

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
        return {name: serving_messages.DTYPES[info["dtype"]][1] for name, info in infos.items()}

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
    return _each(value.tolist(), _base64)


def _base64(content: str | bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(serving_messages.bytes_of(content)).decode()}


def _from_list(found: Any, dtype: type) -> np.ndarray:
    if dtype is np.object_:
        return np.array(_each(found, serving_messages.bytes_of), dtype)
    return np.array(found, dtype)


def _each(nested: Any, function: Any) -> Any:
    return [_each(item, function) for item in nested] if _is_list(nested) else function(nested)


def _is_list(item: Any) -> bool:
    return isinstance(item, list)
