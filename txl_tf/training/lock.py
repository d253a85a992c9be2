"""One trainer a folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def sole_trainer(model_dir: str) -> Iterator[None]:
    """Holds a local folder for this process; the kernel lets go of it however the process ends.

    Folders of remote file systems ("gs://...") cannot be held.

    Raises:
      ValueError: another process holds the folder.
    """
    if "://" in model_dir:
        yield
        return
    with open(os.path.join(model_dir, "train.lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"model_dir must have one trainer at a time, got {model_dir} while another "
                "process trains there"
            ) from error
        yield
