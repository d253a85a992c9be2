"""Runs the programs of scripts/ without loading TensorFlow for each run.

The first run of a program is one of its own, from the start, as a user's. Later ones are forked
from a process in which TensorFlow is loaded and nothing of it used: each has its own arguments,
environment, files and exit code, and runs the same file as `__main__`.
"""

import atexit
import functools
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import tempfile

import helpers

TIMEOUT = 600  # seconds
LIGHT = ("prepare_data", "serving_client")  # load no TensorFlow, and are not to find it
_FOLDER = helpers.ROOT / "scripts"
_started: set[str] = set()


def run(program, *flags, stdin=b"", environment=None, fresh=False):
    """Runs a program; returns a CompletedProcess of bytes. A `fresh` run is a new process."""
    path = str(_FOLDER / f"{program}.py")
    if environment is None:
        environment = os.environ | {"PYTHONPATH": str(helpers.ROOT), "CUDA_VISIBLE_DEVICES": ""}
    if fresh or program in LIGHT or program not in _started or not hasattr(os, "fork"):
        _started.add(program)
        command = [sys.executable, path, *flags]
        options = dict(input=stdin, env=environment, timeout=TIMEOUT, capture_output=True)
        return subprocess.run(command, **options)
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in ("stdin", "stdout", "stderr")]
        pathlib.Path(names[0]).write_bytes(stdin)
        request = dict(argv=[path, *flags], env=environment, cwd=os.getcwd(), files=names)
        code = _server(os.getpid())(request)
        outputs = [pathlib.Path(name).read_bytes() for name in names[1:]]
        return subprocess.CompletedProcess(request["argv"], code, *outputs)


@functools.cache
def _server(owner):
    """Returns a function that sends a request and returns the exit code, of process `owner`."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, __file__, str(theirs.fileno())]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(helpers.ROOT), str(_FOLDER)]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
    theirs.close()
    stream = ours.makefile("rw", encoding="utf-8", errors="surrogateescape")

    def stop():
        ours.shutdown(socket.SHUT_RDWR)
        process.wait()

    atexit.register(stop)

    def ask(request):
        print(json.dumps(request), file=stream, flush=True)
        return int(stream.readline())

    return ask


def _serve(number):
    """Loads TensorFlow and forks for each request; returns in a fork, to run the request."""
    from txl_tf.cli import tf_startup_log

    tf_startup_log.install()  # before TensorFlow is imported
    import tensorflow_text  # noqa: F401

    import txl_tf.inference.generation  # noqa: F401
    import txl_tf.training.loop  # noqa: F401

    stream = socket.socket(fileno=number).makefile("rw", encoding="utf-8")
    for line in stream:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            return request
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=stream, flush=True)
    return None


def _become(request):
    """Runs the program of a request as `__main__`."""
    modes = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    for number, (name, mode) in enumerate(zip(request["files"], modes, strict=True)):
        opened = os.open(name, mode, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    level = os.environ["TF_CPP_MIN_LOG_LEVEL"]  # as `tf_startup_log` left it
    os.environ.clear()
    os.environ.update({"TF_CPP_MIN_LOG_LEVEL": level} | request["env"])
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    signal.alarm(TIMEOUT)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    if asked := _serve(int(sys.argv[1])):
        _become(asked)
