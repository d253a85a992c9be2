"""Fake HTTP and gRPC servers with given responses, for tests of clients."""

import concurrent.futures
import contextlib
import http.server
import json
import os
import threading
import time

import grpc

from txl_tf.serving_client import messages

os.environ["no_proxy"] = "localhost"
_SIGNATURES = {
    "score": dict(log_probs="DT_FLOAT", num_tokens="DT_INT32"),
    "generate": dict(text="DT_STRING"),
    "encode": dict(ids="DT_INT32", lengths="DT_INT32"),
    "decode": dict(text="DT_STRING"),
    "step": dict(scores="DT_FLOAT", mems="DT_FLOAT", mem_length="DT_INT32"),
    "initial_state": dict(mems="DT_FLOAT", mem_length="DT_INT32"),
}
METADATA = {
    "model_spec": {"version": "1"},
    "metadata": {
        "signature_def": {
            "signature_def": {
                name: {"outputs": {key: {"dtype": dtype} for key, dtype in outputs.items()}}
                for name, outputs in _SIGNATURES.items()
            }
        }
    },
}


@contextlib.contextmanager
def rest(answers, metadata=METADATA, drip=0.0):
    """Yields the address of an HTTP server with the given `answers` by signature, as JSON values.

    Bytes are sent as they are. With `drip`, a byte comes each so many seconds.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            self.send(metadata)

        def do_POST(self):  # noqa: N802
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send(answers[body["signature_name"]])

        def send(self, body):
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):  # who waits no longer has gone
                for start in range(len(content)) if drip else ():
                    self.wfile.write(content[start : start + 1])
                    time.sleep(drip)
                self.wfile.write(b"" if drip else content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def grpc_server(outputs, delay=0.0):
    """Yields the address of a gRPC server that answers all requests with these TensorProtos."""
    answer = messages.MESSAGES["PredictResponse"]()
    for name, tensor in outputs.items():
        answer.outputs.add(key=name).value.CopyFrom(tensor)

    def predict(request, context):
        time.sleep(delay)
        return answer.SerializeToString()

    handler = grpc.unary_unary_rpc_method_handler(predict)
    service = "tensorflow.serving.PredictionService"
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {"Predict": handler})]
    )
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(0)
