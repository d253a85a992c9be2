"""The same work in another interpreter, by Hugging Face's TransfoXL; see hf_transfoxl.py."""

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
_NEEDED = "torch==2.13.0 transformers==4.36.2"


class Peer:
    """A process of another interpreter, and the works it has been given; a context manager.

        with peer.Peer("/path/to/bin/python") as other:
            other.make("theirs", "eval", model, config.train, dict(ids=ids, targets=targets))
            nats = other.outputs("theirs")["nats"]
            seconds = other.call("theirs")

    Works, and what their outputs are:

        train     an optimizer step           nats [steps], their means; gradient_norm [steps]
        eval      a segment                   nats [steps, B, T]
        decode    a token of each row         log_probs [steps, B, V]

    Shapes: ids, and but for decode targets, all of them real: [steps, B, T] int32; T is 1 for
    decode.

    Args:
      python: path of an interpreter that has torch, and transformers with TransfoXL.

    Attributes:
      versions: of the libraries there, by name.

    Raises:
      ValueError: it cannot be started or lacks a library; or, by any method, a request failed or
        the process has ended.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._folder = tempfile.TemporaryDirectory()
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment["PYTHONSAFEPATH"] = "1"  # our programs must not shadow modules of its libraries
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
            self.versions = self._answer()
        except ValueError as error:
            self.__exit__()
            raise ValueError(f"peer {python} must have {_NEEDED}, got {error}") from error

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it has nothing to save
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
        """Prepares a work with the weights and lengths that `model` has now.

        Args:
          name: what it is called from here on.
          work: "train", "eval" or "decode".
          model: what the peer's model is to equal.
          train: precision, and the settings of the optimizer; the learning rate stays the same.
          inputs: arrays by name; see the class. A work goes round them.

        Raises:
          ValueError: TransfoXL computes something else.
        """
        config = model.config
        differing = huggingface.known_differences(config)
        if differing:
            raise ValueError(f"the model must be one of TransfoXL, got: {'; '.join(differing)}")
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
        """What the first steps of a work compute, from a fresh memory and without dropout.

        The work then begins anew.
        """
        path = self._path(f"{name}-outputs.npz")
        self._ask("outputs", name=name, steps=steps, path=path)
        with np.load(path) as arrays:
            return dict(arrays)

    def call(self, name: str) -> timing.Seconds:
        """Does one step of a work; the seconds it took there, without the way to and fro."""
        return timing.Seconds(self._ask("call", name=name)["seconds"])

    def peak(self) -> int:
        """Bytes: the most that the process ever had in RAM, over all its works."""
        return self._ask("peak")["bytes"]

    def _ask(self, ask: str, **arguments: Any) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # no answer comes, which tells more
            print(json.dumps({"ask": ask, **arguments}), file=self._process.stdin, flush=True)
        try:
            return self._answer()
        except ValueError as error:
            raise ValueError(f"peer {self._python}: {error}") from error

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise ValueError(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def _last_words(self) -> str:
        """Why the process has ended: the last line it wrote, else its exit code."""
        code = self._process.wait()
        with open(self._path("stderr"), errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else f"the process has ended with exit code {code}"

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)
