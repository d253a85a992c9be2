"""Runs a program: quiet TensorFlow startup, one-line errors, logs on stderr.

A program's module ends with

    def run() -> NoReturn:
        entry_point.run(main)


    if __name__ == "__main__":
        run()
"""

import contextlib
import functools
import logging as python_logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any, NoReturn

from absl import app, flags, logging

from txl_tf import extras
from txl_tf.cli import exits, streams, tf_startup_log

_TERMINATED = 128 + signal.SIGTERM  # the convention of shells
_GRACE_SECONDS = 20

_TRACEBACK = flags.DEFINE_bool("traceback", False, "Show the traceback of an error.")


def run(main: Callable[[list[str]], Any], texts: Sequence[str] = ()) -> NoReturn:
    """Parses the flags, calls `main(argv)` and exits.

    --help shows the docstring of the module that defines `main`, and the flags defined there.
    A path in a flag may begin with ~, which shells do not expand in --flag=~. `texts` names the
    string flags that are not paths.

    A ValueError, OSError or TensorFlow error of `main` becomes one line on stderr and exit code
    1; a mistake in the flags or an `app.UsageError` becomes one line and exit code 2; Ctrl-C one
    line and 130, SIGTERM one line and 143. Any other exception is a bug and keeps its traceback.
    """
    tf_startup_log.install()
    streams.name_errors("stdout", "standard output")
    streams.use_utf8(sys.stdout, "backslashreplace")
    parser = functools.partial(_parse_flags, sys.modules[main.__module__], texts)
    try:
        app.run(
            functools.partial(_guarded, main),
            flags_parser=functools.partial(_guarded, parser),
        )
    except SystemExit as end:
        if end.code in (None, 0):
            raise
        _leave(end.code if isinstance(end.code, int) else 1)
    except Exception:  # a bug
        sys.excepthook(*sys.exc_info())
        _leave(1)
    raise AssertionError("app.run always exits")


def _leave(code: int) -> NoReturn:
    """Ends the process after a failure without waiting for its threads.

    A traceback keeps objects alive, and Python would wait for their threads, for example those of
    a collective operation that waits for a worker that has failed.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
            stream.flush()
    python_logging.shutdown()
    os._exit(code)


@contextlib.contextmanager
def advising(kind: type[ValueError], advice: str) -> Iterator[None]:
    """Appends this program's advice to errors of a kind, which the library cannot know."""
    try:
        yield
    except kind as error:
        raise ValueError(f"{error}; {advice}") from error


def log_devices() -> None:
    """Logs what TensorFlow computes on: "devices: 2 GPU (NVIDIA A100), 1 CPU (8 cores)"."""
    import tensorflow as tf  # here, so that programs without tensors start at once

    kinds = {kind: tf.config.list_physical_devices(kind) for kind in ("TPU", "GPU", "CPU")}
    found = []
    for kind, devices in kinds.items():
        if kind == "CPU":
            details = f" ({_num_cores()} cores)"
        else:
            names = [tf.config.experimental.get_device_details(d) for d in devices]
            unique = sorted({name.get("device_name", "") for name in names} - {""})
            details = f" ({', '.join(unique)})" if unique else ""
        if devices:
            found.append(f"{len(devices)} {kind}{details}")
    logging.info("devices: %s", ", ".join(found))


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # what this process may use, not what the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _parse_flags(program: ModuleType, texts: Sequence[str], argv: list[str]) -> list[str]:
    logging.get_absl_handler().setFormatter(_LogFormatter())
    logging.get_absl_handler().addFilter(_is_for_users)
    flags.DEFINE_flag(_HelpFlag(program))
    try:
        arguments = flags.FLAGS(argv)
    except flags.Error as error:
        required = r"flag --(\w+)=None: Flag --\w+ must have a value other than None\."
        _exit_with_usage(re.sub(required, r"flag --\1 is required", str(error)))
    if len(arguments) > 1:
        _exit_with_usage(f"unexpected arguments: {' '.join(arguments[1:])}")
    for name in sorted(set(flags.FLAGS) - set(texts)):
        flag = flags.FLAGS[name]
        if flag.present and "" in (flag.value if isinstance(flag.value, list) else [flag.value]):
            _exit_with_usage(f"flag --{name} must have a value, got none")
        if (expanded := _expanded(flag.value)) != flag.value:
            flag.value = expanded
    return arguments


def _expanded(value: Any) -> Any:
    if isinstance(value, list):
        return [_expanded(part) for part in value]
    return os.path.expanduser(value) if isinstance(value, str) else value


def _guarded(main: Callable[[list[str]], Any], argv: list[str]) -> Any:
    """Calls `main`; turns errors that users can cause into one line and an exit code."""
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        result = main(argv)
        sys.stdout.flush()  # raises here if the pipe is closed, not at exit
        return result
    except app.UsageError as error:
        _exit_with_usage(str(error))
    except KeyboardInterrupt:
        exits.leave(exits.INTERRUPTED, "interrupted")
    except _Terminated:
        exits.leave(_TERMINATED, "terminated")
    except BrokenPipeError:  # the reader has closed the pipe, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except _expected_errors() as error:
        if flags.FLAGS[_TRACEBACK.name].value:  # perhaps before all are parsed
            raise
        exits.leave(1, f"error: {describe(error)}")


class _Terminated(BaseException):
    """Raised on SIGTERM, so that unfinished outputs are removed."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Raises `_Terminated`; ends the process if that takes too long, or on a second SIGTERM."""

    def give_up() -> None:
        print(f"{exits.name()}: terminated", file=sys.stderr)
        _leave(_TERMINATED)

    timer = threading.Timer(_GRACE_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise _Terminated


def _expected_errors() -> tuple[type[Exception], ...]:
    tensorflow = sys.modules.get("tensorflow")  # never loaded: it cannot have failed
    expected = (ValueError, OSError, extras.MissingExtraError)
    return (*expected, *([tensorflow.errors.OpError] if tensorflow else []))


def describe(error: Exception) -> str:
    """Returns the line of an error message that gives the cause.

    Keras and TensorFlow wrap messages in stack frames, graph node names and argument lists.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = str(getattr(error, "message", error))
    text = re.sub(r"\x1b\[\d*m", "", text)  # Keras prints in bold
    text = re.sub(r"\[\[.*?\]\]|\{\{.*?\}\}|\[Op:\w+\]( name:.*)?", "", text)
    text = text.partition("\n\nArguments received by")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0] == "in user code:":  # a traceback of a tf.function: the cause ends it
        return re.sub(r"^\w+(Error|Exception): ", "", lines[-1])
    wrapping = ("Exception encountered when", "Graph execution error", "Detected at node", 'File "')
    frames = ("<stack traces", "Stack trace for op", "(0) ", "(1) ", "Original stack trace")
    causes = [line for line in lines if not line.startswith((*wrapping, *frames))]
    return causes[0] if causes else type(error).__name__


def _exit_with_usage(message: str) -> NoReturn:
    exits.leave(2, f"error: {' '.join(message.split())}; see --help")


class _HelpFlag(flags.BooleanFlag):
    """Prints the docstring and the flags of the program, and exits with code 0."""

    def __init__(self, program: ModuleType) -> None:
        super().__init__("help", False, "Show this help.", short_name="?", allow_override=True)
        self._program = program

    def parse(self, argument: Any) -> None:
        if self._parse(argument):
            print((self._program.__doc__ or "").strip(), "\n\nFlags:", sep="")
            print(flags.FLAGS.module_help(self._program).partition(":\n")[2])
            print("\n--traceback shows the traceback of an error; --helpfull lists all flags.")
            sys.stdout.flush()  # where it cannot be written, that shows here
            sys.exit(0)


def _is_for_users(record: python_logging.LogRecord) -> bool:
    """Whether a record is not one of TensorFlow's internal INFO lines."""
    inside = f"{os.sep}tensorflow{os.sep}" in record.pathname
    return record.levelno > python_logging.INFO or not inside


class _LogFormatter(python_logging.Formatter):
    """Formats the time and the message, with the level if it is above INFO."""

    def format(self, record: python_logging.LogRecord) -> str:
        level = record.levelname.lower() + ": " if record.levelno > python_logging.INFO else ""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{clock} {level}{super().format(record)}"
