"""Filters TensorFlow's start-up messages from stderr; other output passes.

Some C++ messages are printed before any log level applies, such as that no CUDA library was found.
`install`, called before TensorFlow is imported, filters them.
"""

import contextlib
import importlib.abc
import importlib.util
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator

_STARTUP = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|[IW]0000 "  # below errors, before logging is initialized
    r"|E0000 .*failed call to cuInit.*\(303\)"  # no CUDA driver
)


@contextlib.contextmanager
def without_startup_messages() -> Iterator[None]:
    """Captures stderr, that of C++ included, and prints it at the end without start-up messages."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held.read().decode(errors="replace").splitlines():
                if not _STARTUP.match(line):
                    print(line, file=sys.stderr)


class _QuietFinder(importlib.abc.MetaPathFinder):
    """Import finder that loads one module, once, without its start-up messages."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname, path=None, target=None):
        """As in the base class."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_quietly(module: types.ModuleType) -> None:
                with without_startup_messages():
                    load(module)
                    if fullname == "tensorflow":
                        module.get_logger().setLevel("WARNING")  # INFO is internal
                        module.config.list_physical_devices()  # warns if CUDA is missing

            spec.loader.exec_module = load_quietly
        return spec


def install() -> None:
    """Filters the start-up messages of TensorFlow and Keras, if they are not loaded yet."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only, once levels apply
    for name in ("tensorflow", "keras"):  # keras looks for devices
        finders = [finder for finder in sys.meta_path if isinstance(finder, _QuietFinder)]
        if name not in sys.modules and name not in (finder.name for finder in finders):
            sys.meta_path.insert(0, _QuietFinder(name))
