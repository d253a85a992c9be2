"""Connections to a model of TensorFlow Serving over gRPC and REST, without TensorFlow.

server = transport.connect("localhost:8500", "book")
answer = server.predict("encode", {"text": np.array([b"Once"], object)})
"""

import contextlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from txl_tf import extras
from txl_tf.serving_client import errors, http_fetch, json_arrays, messages
from txl_tf.serving_client.errors import ServerError

Arrays = dict[str, np.ndarray]  # by name; strings are bytes of dtype object

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_PREDICT = "/tensorflow.serving.PredictionService/Predict"


class Server(Protocol):
    """Connection to one version of a served model.

    Without a requested version, the first response fixes it for later requests: a state is valid
    for the weights that computed it only.
    """

    def predict(
        self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
    ) -> Arrays:
        """Runs a signature and returns its outputs by name.

        Args:
          signature: name of the signature.
          inputs: arrays by name, of the dtypes of the signature.
          outputs: names of the outputs to return; empty for all. REST always returns all.

        Raises:
          ServerError: the request fails or is refused.
        """
        ...


def connect(
    server: str, model: str, *, version: int | None = None, timeout: float = 60.0
) -> Server:
    """Connects to a model: on "HOST:PORT" over gRPC, on "http://HOST:PORT" over REST."""
    kind = Rest if server.startswith(("http://", "https://")) else Grpc
    return kind(server, model, version, timeout)


class Grpc:
    """gRPC connection, for messages up to the 2 GB limit of the protocol."""

    def __init__(self, server: str, model: str, version: int | None, timeout: float):
        self._server, self._model, self._version, self._timeout = server, model, version, timeout
        with extras.required("serving"):
            import grpc  # here: REST does not need it

        self._grpc = grpc
        self._channel = grpc.insecure_channel(server, options=_UNLIMITED)
        self._call = self._channel.unary_unary(
            _PREDICT,
            request_serializer=messages.MESSAGES["PredictRequest"].SerializeToString,
            response_deserializer=messages.MESSAGES["PredictResponse"].FromString,
        )

    def predict(
        self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
    ) -> Arrays:
        """As in `Server`."""
        request = messages.MESSAGES["PredictRequest"]()
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        if self._version is not None:
            request.model_spec.version.value = self._version
        for name, value in inputs.items():
            request.inputs.add(key=name, value=messages.to_proto(np.asarray(value)))
        request.output_filter.extend(outputs)
        try:
            answer = self._call(request, timeout=self._timeout)
        except self._grpc.RpcError as error:
            raise self._error(error) from error
        if answer.model_spec.HasField("version"):
            self._version = answer.model_spec.version.value
        with _malformed_response(self._server):
            return {item.key: messages.from_proto(item.key, item.value) for item in answer.outputs}

    def _error(self, error: Any) -> ServerError:
        status = self._grpc.StatusCode
        code, details = error.code(), error.details() or error.code().name
        if code == status.UNAVAILABLE:
            return errors.unreachable(self._server, details)
        if code == status.DEADLINE_EXCEEDED:
            return errors.too_slow(self._server, self._timeout)
        return errors.refusal(details, invalid=code == status.INVALID_ARGUMENT)


class Rest:
    """REST connection: JSON over HTTP, without float16, always with all outputs."""

    def __init__(self, server: str, model: str, version: int | None, timeout: float):
        self._model_url = f"{server.rstrip('/')}/v1/models/{urllib.parse.quote(model)}"
        self._version = version
        self._server, self._timeout = server, timeout
        self._signatures: dict[str, Any] = {}

    def predict(
        self, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
    ) -> Arrays:
        """As in `Server`."""
        del outputs
        dtypes = self._dtypes(signature)
        try:
            lists = {k: json_arrays.to_json(k, np.asarray(inputs[k])) for k in sorted(inputs)}
        except ValueError as error:
            raise ServerError(str(error)) from error
        body = json.dumps({"signature_name": signature, "inputs": lists})
        answer = self._fetch(":predict", body.encode())
        with _malformed_response(self._server):
            found = answer["outputs"]
            if len(dtypes) == 1:  # a single output comes without its name
                found = dict.fromkeys(dtypes, found)
            return {k: json_arrays.from_json(k, found[k], dtype) for k, dtype in dtypes.items()}

    def _dtypes(self, signature: str) -> dict[str, type]:
        """Returns the dtypes of a signature's outputs, which JSON does not carry."""
        if not self._signatures:
            found = self._fetch("/metadata")
            with _malformed_response(self._server):
                self._version = int(found["model_spec"]["version"])
                self._signatures = dict(found["metadata"]["signature_def"]["signature_def"])
        if signature not in self._signatures:
            choices = ", ".join(sorted(self._signatures))
            raise ServerError(
                f"signature must be one of {choices}, got {signature!r}", invalid=True
            )
        with _malformed_response(self._server):
            infos = self._signatures[signature]["outputs"]
            return {name: messages.DTYPES[info["dtype"]][1] for name, info in infos.items()}

    def _fetch(self, ending: str, body: bytes | None = None) -> Any:
        version = "" if self._version is None else f"/versions/{self._version}"
        url = f"{self._model_url}{version}{ending}"
        return http_fetch.fetch(self._server, url, body, self._timeout)


@contextlib.contextmanager
def _malformed_response(server: str) -> Iterator[None]:
    """Converts errors in parsing a response to one that names the server."""
    try:
        yield
    except KeyError as error:
        raise ServerError(f"the answer of {server} must have {error}, got none") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ServerError(
            f"the answer of {server} must be of TensorFlow Serving: {error}"
        ) from error
