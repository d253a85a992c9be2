"""Fake metadata server of a Google Compute Engine VM."""

import http.server
import threading

_FOLDER = "/computeMetadata/v1/instance/"


class MetadataServer:
    """Fake metadata server on a free local port; a context manager.

    Attributes:
      host: for GCE_METADATA_HOST.
      answers: value name -> its text, or an HTTP status; may be changed at any time.
      asked: how many values were asked for.
    """

    def __init__(self):
        self.answers = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.asked = 0
        handler = type("Handler", (_Handler,), dict(service=self))
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.host = f"127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    service: MetadataServer

    def do_GET(self):  # noqa: N802
        self.service.asked += 1
        answer = self.service.answers.get(self.path.removeprefix(_FOLDER), 404)
        if self.headers["Metadata-Flavor"] != "Google":
            answer = 403
        if isinstance(answer, int):
            self.send_error(answer)
            return
        self.send_response(200)
        self.send_header("Metadata-Flavor", "Google")
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_):
        pass
