"""Worker that does the work of the suites with Hugging Face's TransfoXL; see hf_client.py.

    PYTHON scripts/benchmarks/workers/hf_transfoxl.py    # in the environment of the peers

A request is a line of JSON on stdin, its response a line on stdout; the first line has the versions
of the libraries. A failed request is answered with {"error": LINE}.

    {"ask": "make", "name": NAME, "work": "train", ...}               {"name": NAME}
    {"ask": "outputs", "name": NAME, "steps": 3, "path": "x.npz"}     {"path": "x.npz"}
    {"ask": "call", "name": NAME}                                     {"seconds": 0.25}
    {"ask": "peak"}                                                   {"bytes": 1234567}

Nothing of the project is imported, as its requirements may be missing in the other environment.
"""

import itertools
import json
import os
import resource
import sys
import time
from typing import Any

import numpy as np
import torch
import transformers
from transformers import TransfoXLLMHeadModel

_OVERRIDDEN = ("mem_len", "clamp_len", "same_length", "dropout")
_PRECISIONS = {"float32": False, "bfloat16": True}  # whether autocast is on


class Work:
    """Base class of the kinds of work; each job has its own weights, memory and ids.

    Subclasses implement `_step` and name their inputs in `INPUTS`.

    Shapes: the arrays of the file `inputs` are [steps, B, T].
    """

    INPUTS: tuple[str, ...] = ("ids", "targets")

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        with np.load(request["inputs"]) as inputs:
            arrays = [torch.from_numpy(inputs[name]).long() for name in self.INPUTS]
        self._batches = list(zip(*arrays, strict=True))
        self._autocast = _PRECISIONS[request["precision"]]
        self.restart()

    def restart(self) -> None:
        """Restores the weights of the checkpoint, an empty memory and the first ids."""
        self._model: Any = None  # freed first, so that the peak is that of one model
        self._mems = None
        changes = {name: self.request[name] for name in _OVERRIDDEN}
        self._model = TransfoXLLMHeadModel.from_pretrained(self.request["checkpoint"], **changes)
        self._cycle = itertools.cycle(self._batches)

    def outputs(self, steps: int) -> dict[str, np.ndarray]:
        """Returns the stacked outputs of the first steps without dropout; then restarts."""
        self.restart()
        self._model.eval()
        found = [self._step(*next(self._cycle)) for _ in range(steps)]
        self.restart()
        return {name: torch.stack([step[name] for step in found]).numpy() for name in found[0]}

    def call(self) -> float:
        """Runs the next step; returns its seconds."""
        batch = next(self._cycle)
        start = time.perf_counter()
        self._step(*batch)
        return time.perf_counter() - start

    def _step(self, ids, targets) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    def _read(self, ids):
        """Returns the last layer's output, [B, T, D]; float32: the softmax fails under autocast."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
            read = self._model.transformer(ids, mems=self._mems)
        self._mems = read.mems
        return read.last_hidden_state.float()

    def _loss(self, ids, targets):
        """Returns the loss of each target in nats, [B, T].

        The softmax shifts its labels: it drops the first label and the last state, so both are
        padded by one.
        """
        states = torch.nn.functional.pad(self._read(ids), (0, 0, 0, 1))  # [B, T + 1, D]
        labels = torch.nn.functional.pad(targets, (1, 0))  # [B, T + 1]
        return self._model.crit(states, labels, keep_order=True).view_as(targets)


class Train(Work):
    """An optimizer step on the mean loss; outputs: that loss and the gradient norm."""

    def restart(self) -> None:
        self._optimizer: Any = None  # holds the old model's weights
        super().restart()
        self._model.train()
        self._optimizer = torch.optim.Adam(
            self._model.parameters(),
            lr=self.request["learning_rate"],
            betas=self.request["betas"],
            fused=True,
        )
        self._done = 0

    def _step(self, ids, targets):
        self._done += 1
        self._optimizer.param_groups[0]["eps"] = self._epsilon()
        loss = self._loss(ids, targets).mean()
        self._optimizer.zero_grad()
        loss.backward()
        clip_norm = self.request["clip_norm"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), clip_norm)
        self._optimizer.step()
        return {"loss": loss.detach(), "gradient_norm": norm}

    def _epsilon(self) -> float:
        """Returns PyTorch's epsilon, added after bias correction; the request's is before it."""
        return self.request["epsilon"] / (1 - self.request["betas"][1] ** self._done) ** 0.5


class Eval(Work):
    """Evaluation of a segment; outputs: the loss of each target, [steps, B, T]."""

    @torch.inference_mode()
    def _step(self, ids, targets):
        return {"loss": self._loss(ids, targets)}


class Decode(Work):
    """Decoding of one token; outputs: log-probabilities of the next token, [steps, B, V]."""

    INPUTS = ("ids",)

    @torch.inference_mode()
    def _step(self, ids):
        return {"log_probs": self._model.crit(self._read(ids)[:, -1])}


_WORKS = {"train": Train, "eval": Eval, "decode": Decode}


def _make(jobs: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    jobs.pop(request["name"], None)  # freed before the new one is built
    jobs[request["name"]] = _WORKS[request["work"]](request)
    return {"name": request["name"]}


def _outputs(jobs: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    arrays: dict[str, Any] = jobs[request["name"]].outputs(request["steps"])
    np.savez(request["path"], **arrays)
    return {"path": request["path"]}


def _call(jobs: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    return {"seconds": jobs[request["name"]].call()}


def _peak(jobs: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    del jobs, request
    return {"bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """Returns the peak of this process alone; getrusage may include the parent's at the fork."""
    try:
        with open("/proc/self/status") as file:
            status = dict(line.split(":", 1) for line in file)
        return int(status["VmHWM"].split()[0]) * 1024
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # the cores available to this process
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_HANDLERS = {"make": _make, "outputs": _outputs, "call": _call, "peak": _peak}


def main() -> None:
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with responses
    torch.set_num_threads(_num_cores())
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps(versions), file=responses)
    jobs: dict[str, Work] = {}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            response = _HANDLERS[request["ask"]](jobs, request)
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(response), file=responses)


if __name__ == "__main__":
    main()
