"""Suppression of C++ libraries' output, which no log level controls."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def suppress_native_output() -> Iterator[None]:
    """Drops stdout and stderr of the block, C++ output included; prints it if the block fails.

    Except for a ValueError, whose message suffices.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    originals = {number: os.dup(number) for number in (1, 2)}
    with tempfile.TemporaryFile() as held:
        for number in originals:
            os.dup2(held.fileno(), number)
        has_failed = False
        try:
            yield
        except ValueError:
            raise
        except BaseException:
            has_failed = True
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, original in originals.items():
                os.dup2(original, number)
                os.close(original)
            if has_failed:
                held.seek(0)
                sys.stderr.write(held.read().decode(errors="replace"))
