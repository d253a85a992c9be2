"""Holds back the chatter of C++ libraries, which no log level reaches."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def suppress_native_output() -> Iterator[None]:
    """Drops what the block writes to stdout and stderr, C++ included; shows it if that fails.

    A ValueError explains itself: what came before it is dropped too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    originals = {number: os.dup(number) for number in (1, 2)}
    with tempfile.TemporaryFile() as held:
        for number in originals:
            os.dup2(held.fileno(), number)
        told = False
        try:
            yield
        except ValueError:
            raise
        except BaseException:
            told = True
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, original in originals.items():
                os.dup2(original, number)
                os.close(original)
            if told:
                held.seek(0)
                sys.stderr.write(held.read().decode(errors="replace"))
