"""A program that answers requests, and its other end: for work that needs a process of its own.

A request is a line of JSON on the program's stdin, its answer one on stdout. One that fails is
answered with {"error": LINE}, and the next is waited for.
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

_SCRIPTS = pathlib.Path(__file__).parents[2]  # where the package `benchmarks` lies


class Child:
    """A running program; a context manager.

        with child.Child([sys.executable, "-m", "benchmarks.workers.prepare"]) as worker:
            seconds = worker.ask(tokenizer="byte")["seconds"]

    Args:
      command: what to run.
      is_foreign: whether it belongs to another interpreter, which is to find none of our modules.

    Raises:
      ValueError: it cannot be started; or, by `ask`, a request failed or the process has ended.
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

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it has nothing to save
        with contextlib.suppress(BrokenPipeError), self._process:
            pass
        self._folder.cleanup()

    def ask(self, **request: Any) -> dict[str, Any]:
        """What it answers."""
        with contextlib.suppress(BrokenPipeError):  # no answer comes, which tells more
            print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise ValueError(f"{self._name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        """Why it has ended: the last line it wrote, else its exit code."""
        code = self._process.wait()
        with open(self._stderr, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else f"the process has ended with exit code {code}"


def serve(answer: Callable[..., dict[str, Any]]) -> None:
    """Answers requests with what `answer` returns, called with their values by name."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        try:
            answered = answer(**json.loads(line))
        except Exception as error:
            answered = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(answered), file=answers)


def peak() -> int:
    """Bytes: the most that this process ever had in RAM.

    Linux tells it of this process alone; elsewhere it counts what the parent held at the start.
    """
    try:
        with open("/proc/self/status") as file:
            told = dict(line.split(":", 1) for line in file)
        return int(told["VmHWM"].split()[0]) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
