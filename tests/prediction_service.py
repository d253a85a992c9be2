"""Fake tensorflow_model_server: its gRPC and REST interfaces on top of `c_api`.

    with prediction_service.Service({"book": "EXPORTS/book"}) as service:
        service.grpc, service.rest  # "localhost:40001", "http://localhost:40002"

It serves every version of each model, and answers with the messages and codes of TF Serving.
"""

import base64
import concurrent.futures
import http.server
import json
import os
import pathlib
import re
import threading

import grpc
import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

import c_api

os.environ["no_proxy"] = "localhost"  # of clients in this process, and of those that it starts

_NOT_FOUND, _UNIMPLEMENTED = 5, 12
_HTTP = {3: 400, _NOT_FOUND: 404, _UNIMPLEMENTED: 501}
_NUMBERS = {
    "float32": types_pb2.DT_FLOAT,
    "float16": types_pb2.DT_HALF,
    "int32": types_pb2.DT_INT32,
    "int64": types_pb2.DT_INT64,
    "string": types_pb2.DT_STRING,
}
_DTYPES = {number: np.object_ if n == "string" else np.dtype(n) for n, number in _NUMBERS.items()}
_FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_STRING: "string_val",
}


class Service:
    """Server that listens within a `with` block.

    Args:
      models: name -> folder of versions.
      content: whether tensors go out as one piece of bytes, and not value by value.

    Attributes:
      grpc, rest: addresses.
      models: name -> version -> session.
      calls: the signatures that were run, with their inputs, in order.
    """

    def __init__(self, models, *, content=False):
        self.models = {
            name: {int(p.name): c_api.Session(p) for p in pathlib.Path(folder).iterdir()}
            for name, folder in models.items()
        }
        self.content = content
        self.calls = []
        self._grpc = grpc.server(
            concurrent.futures.ThreadPoolExecutor(4),
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            _Predictor(self), self._grpc
        )
        self.grpc = f"localhost:{self._grpc.add_insecure_port('localhost:0')}"
        handler = type("Handler", (_Handler,), dict(service=self))
        self._http = http.server.ThreadingHTTPServer(("localhost", 0), handler)
        self.rest = f"http://localhost:{self._http.server_address[1]}"

    def __enter__(self):
        self._grpc.start()
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._grpc.stop(0).wait()
        self._http.shutdown()
        self._http.server_close()
        for versions in self.models.values():
            for session in versions.values():
                session.close()

    def find(self, name, version=None):
        """A model -> (version, session)."""
        versions = self.models.get(name, {})
        if version is None and versions:
            version = max(versions)
        if version not in versions:
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise c_api.Error(_NOT_FOUND, f"Servable not found for request: {wanted}")
        return version, versions[version]

    def run(self, session, signature, inputs):
        self.calls.append((signature, inputs))
        return session.run(signature or "serving_default", **inputs)


class _Predictor(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, service):
        self._service = service

    def Predict(self, request, context):  # noqa: N802
        with _Aborts(context):
            version, session = self._find(request)
            inputs = {name: _array(tensor) for name, tensor in request.inputs.items()}
            found = self._service.run(session, request.model_spec.signature_name, inputs)
            answer = predict_pb2.PredictResponse()
            answer.model_spec.CopyFrom(request.model_spec)
            answer.model_spec.version.value = version
            for name in request.output_filter or found:
                if name not in found:
                    message = f"output tensor alias not found in signature: {name}"
                    raise c_api.Error(c_api.INVALID_ARGUMENT, message)
                answer.outputs[name].CopyFrom(_tensor(found[name], self._service.content))
            return answer

    def GetModelMetadata(self, request, context):  # noqa: N802
        with _Aborts(context):
            version, session = self._find(request)
            answer = get_model_metadata_pb2.GetModelMetadataResponse()
            answer.model_spec.name = request.model_spec.name
            answer.model_spec.version.value = version
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name, described in session.description["signatures"].items():
                for side in ("inputs", "outputs"):
                    infos = getattr(signatures.signature_def[name], side)
                    for key, info in described[side].items():
                        infos[key].name = info["tensor"]
                        infos[key].dtype = _NUMBERS[info["dtype"]]
            answer.metadata["signature_def"].Pack(signatures)
            return answer

    def _find(self, request):
        spec = request.model_spec
        return self._service.find(
            spec.name, spec.version.value if spec.HasField("version") else None
        )


class _Aborts:
    """Converts errors of the C API to gRPC's."""

    def __init__(self, context):
        self._context = context

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if isinstance(error, c_api.Error):
            codes = {code.value[0]: code for code in grpc.StatusCode}
            self._context.abort(codes[error.code], str(error))


def _array(tensor):
    """Of a TensorProto as clients send it."""
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    dtype = _DTYPES[tensor.dtype]
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    return np.array(list(getattr(tensor, _FIELDS[tensor.dtype])), dtype).reshape(shape)


def _tensor(value, content):
    number = next(number for number, dtype in _DTYPES.items() if dtype == value.dtype)
    tensor = tensor_pb2.TensorProto(dtype=number)
    for size in value.shape:
        tensor.tensor_shape.dim.add(size=size)
    if content and number != types_pb2.DT_STRING:
        tensor.tensor_content = value.tobytes()
    elif number == types_pb2.DT_HALF:
        tensor.half_val.extend(value.reshape(-1).view(np.uint16).tolist())
    else:
        getattr(tensor, _FIELDS[number]).extend(value.reshape(-1).tolist())
    return tensor


class _Handler(http.server.BaseHTTPRequestHandler):
    service: Service
    _path = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(?::(predict)|/(metadata))")

    def do_GET(self):  # noqa: N802
        self._answer("metadata", b"{}")

    def do_POST(self):  # noqa: N802
        self._answer("predict", self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_):
        pass

    def _answer(self, verb, body):
        try:
            code, result = 200, self._result(verb, body)
        except c_api.Error as error:
            code, result = _HTTP.get(error.code, 500), {"error": str(error)}
        content = json.dumps(result, ensure_ascii=False).encode("utf-8", "surrogateescape")
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _result(self, verb, body):
        found = self._path.fullmatch(self.path)
        if not found or verb not in found.groups():
            raise c_api.Error(_NOT_FOUND, f"Malformed request: {self.command} {self.path}")
        name, version, *_ = found.groups()
        version, session = self.service.find(name, int(version) if version else None)
        if verb == "metadata":
            return _metadata(name, version, session)
        return self._predict(session, body)

    def _predict(self, session, body):
        try:
            request = json.loads(body)
        except ValueError as error:
            raise c_api.Error(c_api.INVALID_ARGUMENT, f"JSON Parse error: {error}") from error
        signature = request.get("signature_name", "serving_default")
        described = session.description["signatures"].get(signature, {}).get("inputs")
        if described is None:
            message = f'Serving signature name: "{signature}" not found in signature def'
            raise c_api.Error(c_api.INVALID_ARGUMENT, message)
        row = "instances" in request
        given = _columns(request["instances"], described) if row else request.get("inputs")
        if given is None:
            raise c_api.Error(c_api.INVALID_ARGUMENT, "Missing 'inputs' or 'instances' key")
        if not isinstance(given, dict) or given.keys() == {"b64"}:
            given = dict.fromkeys(described, given)
        inputs = {}
        for name, info in described.items():
            if name not in given:
                message = f"Missing named input: {name} in 'inputs' object."
                raise c_api.Error(c_api.INVALID_ARGUMENT, message)
            inputs[name] = _from_json(given[name], info["dtype"])
        found = {k: _to_json(v) for k, v in self.service.run(session, signature, inputs).items()}
        if row:
            rows = [dict(zip(found, values, strict=True)) for values in zip(*found.values())]  # noqa: B905
            return {"predictions": [r if len(r) > 1 else next(iter(r.values())) for r in rows]}
        return {"outputs": found if len(found) > 1 else next(iter(found.values()))}


def _columns(instances, described):
    """Inputs by name, from one object (or one value, of an only input) a row."""
    if isinstance(instances[0], dict) and instances[0].keys() != {"b64"}:
        return {name: [row[name] for row in instances] for name in instances[0]}
    return dict.fromkeys(described, instances)


def _from_json(value, dtype):
    if dtype == "float16":
        message = "Conversion of JSON Value to type: half"
        raise c_api.Error(_UNIMPLEMENTED, message)
    if dtype == "string":
        return np.array(_strings(value), object)
    return np.array(value, dtype)


def _strings(value):
    if isinstance(value, list):
        return [_strings(item) for item in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()


def _to_json(value):
    if value.dtype == object:
        return [content.decode("utf-8", "surrogateescape") for content in value.tolist()]
    return value.tolist()


def _metadata(name, version, session):
    """As GetModelMetadata in proto3's JSON."""

    def tensor_info(info):
        number = _NUMBERS[info["dtype"]]
        shape = info["shape"]
        dims = [] if shape is None else [{"size": str(size), "name": ""} for size in shape]
        return {
            "dtype": types_pb2.DataType.Name(number),
            "tensor_shape": {"dim": dims, "unknown_rank": shape is None},
            "name": info["tensor"],
        }

    signatures = {
        signature: {
            side: {key: tensor_info(info) for key, info in described[side].items()}
            for side in ("inputs", "outputs")
        }
        for signature, described in session.description["signatures"].items()
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }
