"""Client of hf_transfoxl.py: the suites' work done by Hugging Face's TransfoXL."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks import timing
from txl_tf.configs.run import TrainConfig
from txl_tf.conversion import export_checkpoint, huggingface
from txl_tf.models.transformer_xl import TransformerXL

_PROGRAM = pathlib.Path(__file__).with_name("hf_transfoxl.py")
_REQUIREMENTS = "torch==2.13.0 transformers==4.36.2"


class Peer:
    """Client of a TransfoXL process in another interpreter; a context manager that ends it.

        with hf_client.Peer("/path/to/bin/python") as peer:
            peer.make("job", "eval", model, config.train, dict(ids=ids, targets=targets))
            loss = peer.outputs("job")["loss"]
            seconds = peer.call("job")

    Kinds of work, and their outputs:

        train     an optimizer step           loss [steps], the mean; gradient_norm [steps]
        eval      a segment                   loss [steps, B, T]
        decode    a token of each row         log_probs [steps, B, V]

    Shapes: ids and, except for decode, targets without padding: [steps, B, T] int32; T is 1 for
    decode.

    Args:
      python: path of an interpreter that has torch, and transformers with TransfoXL.

    Attributes:
      versions: versions of its libraries, by name.

    Raises:
      ValueError: the process cannot be started or lacks a library; from any method, a request
        failed or the process ended.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._folder = tempfile.TemporaryDirectory()
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment["PYTHONSAFEPATH"] = "1"  # our programs must not shadow its modules
        try:
            with open(self._path("stderr"), "w") as stderr:
                self._process = subprocess.Popen(
                    [python, str(_PROGRAM)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=environment,
                    text=True,
                )
        except OSError as error:
            self._folder.cleanup()
            raise ValueError(
                f"peer must be a Python interpreter, got {python}: {error.strerror}"
            ) from error
        try:
            self.versions = self._response()
        except ValueError as error:
            self.__exit__()
            raise ValueError(f"peer {python} must have {_REQUIREMENTS}, got {error}") from error

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # there is nothing to save
        with contextlib.suppress(BrokenPipeError), self._process:
            pass
        self._folder.cleanup()

    def make(
        self,
        name: str,
        work: str,
        model: TransformerXL,
        train: TrainConfig,
        inputs: Mapping[str, Any],
    ) -> None:
        """Prepares a job with the current weights and lengths of `model`.

        Args:
          name: name of the job in later requests.
          work: kind of work: "train", "eval" or "decode".
          model: model that the peer's must equal.
          train: precision and optimizer settings; the learning rate is constant.
          inputs: arrays by name, see the class; used in a cycle.

        Raises:
          ValueError: TransfoXL cannot represent the model.
        """
        config = model.config
        differing = huggingface.known_differences(config)
        if differing:
            raise ValueError(f"model must be one of TransfoXL, got: {'; '.join(differing)}")
        checkpoint, path = self._path(f"{name}-checkpoint"), self._path(f"{name}-inputs.npz")
        os.makedirs(checkpoint, exist_ok=True)
        export_checkpoint.write("huggingface", model, checkpoint)
        np.savez(path, **inputs)
        self._ask(
            "make",
            name=name,
            work=work,
            checkpoint=checkpoint,
            inputs=path,
            mem_len=config.mem_len,
            clamp_len=config.clamp_len or -1,
            same_length=config.attention_span is not None,
            dropout=config.dropout,
            precision=train.precision,
            learning_rate=train.learning_rate,
            betas=[train.adam_beta1, train.adam_beta2],
            epsilon=train.adam_epsilon,
            clip_norm=train.clip_norm,
        )

    def outputs(self, name: str, steps: int = 3) -> dict[str, np.ndarray]:
        """Returns the outputs of a job's first steps, with empty memory and without dropout.

        Restarts the job.
        """
        path = self._path(f"{name}-outputs.npz")
        self._ask("outputs", name=name, steps=steps, path=path)
        with np.load(path) as arrays:
            return dict(arrays)

    def call(self, name: str) -> timing.Seconds:
        """Runs one step of a job; returns its seconds as measured by the peer."""
        return timing.Seconds(self._ask("call", name=name)["seconds"])

    def peak_bytes(self) -> int:
        """Returns the peak resident bytes of the process, over all its jobs."""
        return self._ask("peak")["bytes"]

    def _ask(self, ask: str, **arguments: Any) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # reading the response gives a better error
            print(json.dumps({"ask": ask, **arguments}), file=self._process.stdin, flush=True)
        try:
            return self._response()
        except ValueError as error:
            raise ValueError(f"peer {self._python}: {error}") from error

    def _response(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise ValueError(self._last_words())
        response = json.loads(line)
        if "error" in response:
            raise ValueError(response["error"])
        return response

    def _last_words(self) -> str:
        """Returns why the process ended: its last line on stderr, or else its exit code."""
        code = self._process.wait()
        with open(self._path("stderr"), errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else f"the process ended with exit code {code}"

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)
