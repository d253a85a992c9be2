"""One trainer a folder."""

import contextlib
import os
from collections.abc import Iterator

from txl_tf.data import files, locks, outputs


@contextlib.contextmanager
def sole_trainer(model_dir: str) -> Iterator[None]:
    """Holds a local folder for this process; made if need be, and gone again if it stays empty.

    The kernel lets go of it however the process ends. Folders of remote file systems ("gs://...")
    cannot be held; they are made by what is written into them.

    Raises:
      ValueError: another process holds the folder, or makes a model_dir there.
    """
    if files.is_remote(model_dir):
        yield
        return
    path = os.path.join(model_dir, "train.lock")
    rule = "model_dir must have one trainer at a time"
    refusal = f"{rule}, got {model_dir} while another process trains there"
    with contextlib.ExitStack() as stack:
        if not files.is_folder(model_dir):
            stack.enter_context(outputs.parents(path))
            with outputs.held("model_dir", model_dir):
                pass  # nobody else makes one there
        stack.enter_context(locks.held(path, refusal, removed=True))
        yield
