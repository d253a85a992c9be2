"""Keeps TensorFlow's start-up chatter off the terminal; whatever else it says gets through.

Some of its C++ messages come before any log level applies: that no CUDA library was found, and
that logging has not begun. `install`, called before TensorFlow is imported, filters them.
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

_CHATTER = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|[IW]0000 "  # below errors, logged before the start
    r"|E0000 .*failed call to cuInit.*\(303\)"  # there is no CUDA driver at all
)


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Holds back what is written to stderr, by C++ too, and then lets through all but chatter."""
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
                if not _CHATTER.match(line):
                    print(line, file=sys.stderr)


class _QuietFinder(importlib.abc.MetaPathFinder):
    """Finds one module as usual, once, and makes its loading quiet."""

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
                with without_chatter():
                    load(module)
                    if fullname == "tensorflow":
                        module.get_logger().setLevel("WARNING")  # below, it tells its inner steps
                        module.config.list_physical_devices()  # complains of a missing CUDA

            spec.loader.exec_module = load_quietly
        return spec


def install() -> None:
    """Makes the start of TensorFlow and Keras quiet, if they are not loaded yet."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only, from where levels apply
    for name in ("tensorflow", "keras"):  # keras looks for devices
        finders = [finder for finder in sys.meta_path if isinstance(finder, _QuietFinder)]
        if name not in sys.modules and name not in (finder.name for finder in finders):
            sys.meta_path.insert(0, _QuietFinder(name))
