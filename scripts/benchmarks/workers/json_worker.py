"""Worker process with a JSON protocol: the client, and the serving loop of the worker.

A request is a line of JSON on the worker's stdin, its response a line on stdout. A failed request
is answered with {"error": LINE}; the worker then waits for the next.
"""

import contextlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

_SCRIPTS = pathlib.Path(__file__).parents[2]  # the parent of the package `benchmarks`


class JsonWorker:
    """Client of a worker process; a context manager that ends the process.

        with JsonWorker([sys.executable, "-m", "benchmarks.workers.prepare"]) as worker:
            seconds = worker.ask(tokenizer="byte")["seconds"]

    Args:
      command: command line of the worker.
      is_foreign: whether it runs in another environment, and must not find this project's modules.

    Raises:
      ValueError: the process cannot be started; from `ask`, a request failed or the process ended.
    """

    def __init__(self, command: Sequence[str], *, is_foreign: bool = False) -> None:
        self._name = os.path.basename(command[-1])
        environment = dict(os.environ)
        if is_foreign:
            environment.pop("PYTHONPATH", None)
            environment["PYTHONSAFEPATH"] = "1"
        else:
            found = [str(_SCRIPTS), *filter(None, [environment.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(found)
        self._folder = tempfile.TemporaryDirectory()
        self._stderr = os.path.join(self._folder.name, "stderr")
        try:
            with open(self._stderr, "w") as stderr:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=environment,
                    text=True,
                )
        except OSError as error:
            self._folder.cleanup()
            raise ValueError(f"{command[0]} must be a program, got: {error.strerror}") from error

    def __enter__(self) -> "JsonWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # there is nothing to save
        with contextlib.suppress(BrokenPipeError), self._process:
            pass
        self._folder.cleanup()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Returns the response to a request."""
        with contextlib.suppress(BrokenPipeError):  # reading the response gives a better error
            print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise ValueError(f"{self._name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        """Returns why the process ended: its last line on stderr, or else its exit code."""
        code = self._process.wait()
        with open(self._stderr, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else f"the process ended with exit code {code}"


def serve(respond: Callable[..., dict[str, Any]]) -> None:
    """Answers each request with `respond(**request)`, until stdin ends."""
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with responses
    for line in sys.stdin:
        try:
            response = respond(**json.loads(line))
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(response), file=responses)


def peak_bytes() -> int:
    """Returns the peak resident bytes of this process.

    Linux has the value of this process alone; elsewhere it may include the parent's at the fork.
    """
    try:
        with open("/proc/self/status") as file:
            status = dict(line.split(":", 1) for line in file)
        return int(status["VmHWM"].split()[0]) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
