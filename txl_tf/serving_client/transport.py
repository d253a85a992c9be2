"""Ways to a model of TensorFlow Serving: gRPC and REST, NumPy arrays in and out.

    server = transport.connect("localhost:8500", "book", version=None, timeout=60)
    answer = server.predict("encode", {"text": np.array([b"Once"], object)})

No TensorFlow: see `messages`.
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

Arrays = dict[str, np.ndarray]  # strings are objects of bytes

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_PREDICT = "/tensorflow.serving.PredictionService/Predict"


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
        with extras.required("serving"):
            import grpc  # here, as REST does without it

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
            request.inputs.add(key=name, value=messages.tensor_of(np.asarray(value)))
        request.output_filter.extend(outputs)
        try:
            answer = self._call(request, timeout=self._timeout)
        except self._grpc.RpcError as error:
            raise self._error(error) from error
        if answer.model_spec.HasField("version"):
            self._version = answer.model_spec.version.value
        with _sensible(self._server):
            return {item.key: messages.array_of(item.key, item.value) for item in answer.outputs}

    def _error(self, error: Any) -> ServerError:
        status = self._grpc.StatusCode
        code, details = error.code(), error.details() or error.code().name
        if code == status.UNAVAILABLE:
            return errors.unreachable(self._server, details)
        if code == status.DEADLINE_EXCEEDED:
            return errors.too_slow(self._server, self._timeout)
        return errors.refusal(details, invalid=code == status.INVALID_ARGUMENT)


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
        try:
            lists = {k: json_arrays.to_json(k, np.asarray(inputs[k])) for k in sorted(inputs)}
        except ValueError as error:
            raise ServerError(str(error)) from error
        body = json.dumps({"signature_name": signature, "inputs": lists})
        answer = self._fetch(":predict", body.encode())
        with _sensible(self._server):
            found = answer["outputs"]
            if len(dtypes) == 1:  # an only output goes without its name
                found = dict.fromkeys(dtypes, found)
            return {k: json_arrays.from_json(k, found[k], dtype) for k, dtype in dtypes.items()}

    def _dtypes(self, signature: str) -> dict[str, type]:
        """Returns the outputs of a signature and their dtypes, which JSON does not have."""
        if not self._known:
            found = self._fetch("/metadata")
            with _sensible(self._server):
                self._version = int(found["model_spec"]["version"])
                self._known = dict(found["metadata"]["signature_def"]["signature_def"])
        if signature not in self._known:
            choices = ", ".join(sorted(self._known))
            raise ServerError(
                f"signature must be one of {choices}, got {signature!r}", invalid=True
            )
        with _sensible(self._server):
            infos = self._known[signature]["outputs"]
            return {name: messages.DTYPES[info["dtype"]][1] for name, info in infos.items()}

    def _fetch(self, ending: str, body: bytes | None = None) -> Any:
        version = "" if self._version is None else f"/versions/{self._version}"
        url = f"{self._model_url}{version}{ending}"
        return http_fetch.fetch(self._server, url, body, self._timeout)


@contextlib.contextmanager
def _sensible(server: str) -> Iterator[None]:
    """Turns what goes wrong in reading an answer into an error that names the server."""
    try:
        yield
    except KeyError as error:
        raise ServerError(f"the answer of {server} must have {error}, which it has not") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ServerError(
            f"the answer of {server} must be of TensorFlow Serving: {error}"
        ) from error
