"""Does the work of the benchmark's suites with Hugging Face's TransfoXL, asked by hf_client.py.

    PYTHON scripts/benchmarks/workers/hf_transfoxl.py    # in the environment of the peers

A request is a line of JSON on stdin, its answer one on stdout; the versions come unasked. One that
fails is answered with {"error": LINE}, and the next is waited for.

    {"ask": "make", "name": NAME, "work": "train", ...}               {"name": NAME}
    {"ask": "outputs", "name": NAME, "steps": 3, "path": "x.npz"}     {"path": "x.npz"}
    {"ask": "call", "name": NAME}                                     {"seconds": 0.25}
    {"ask": "peak"}                                                   {"bytes": 1234567}

Nothing of the project is imported: the other environment need not have what it needs.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers
from transformers import TransfoXLLMHeadModel

_OVERRIDDEN = ("mem_len", "clamp_len", "same_length", "dropout")
_PRECISIONS = {"float32": False, "bfloat16": True}  # whether autocast is on


class Work:
    """One kind of work, on weights, memory and ids of its own.

    Shapes: the arrays of the file `inputs` are [steps, B, T].
    """

    reads: tuple[str, ...] = ("ids", "targets")

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        with np.load(request["inputs"]) as inputs:
            arrays = [torch.from_numpy(inputs[name]).long() for name in self.reads]
        self._batches = list(zip(*arrays, strict=True))
        self._autocast = _PRECISIONS[request["precision"]]
        self.begin()

    def begin(self) -> None:
        """Goes back to the weights of the checkpoint, a memory of zeros and the first ids."""
        self._model: Any = None  # frees the old one first: the peak is that of one model
        self._mems = None
        changes = {name: self.request[name] for name in _OVERRIDDEN}
        self._model = TransfoXLLMHeadModel.from_pretrained(self.request["checkpoint"], **changes)
        self._turn = self._turns()

    def outputs(self, steps: int) -> dict[str, np.ndarray]:
        """What the first steps compute without dropout, stacked; then begins anew."""
        self.begin()
        self._model.eval()
        found = [self._step(*next(self._turn)) for _ in range(steps)]
        self.begin()
        return {name: torch.stack([step[name] for step in found]).numpy() for name in found[0]}

    def call(self) -> float:
        """Takes the next step; its seconds."""
        batch = next(self._turn)
        start = time.perf_counter()
        self._step(*batch)
        return time.perf_counter() - start

    def _turns(self) -> Iterator[tuple[torch.Tensor, ...]]:
        while True:
            yield from self._batches

    def _step(self, ids, targets) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    def _read(self, ids):
        """The last layer's output, [B, T, D]; float32, as the softmax fails under autocast."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
            read = self._model.transformer(ids, mems=self._mems)
        self._mems = read.mems
        return read.last_hidden_state.float()

    def _nats(self, ids, targets):
        """Nats of each target, [B, T].

        The softmax takes targets for ids, the first of which nothing predicts: it drops a label in
        front and a state at the end, so it is given one more of each.
        """
        states = torch.nn.functional.pad(self._read(ids), (0, 0, 0, 1))  # [B, T + 1, D]
        labels = torch.nn.functional.pad(targets, (1, 0))  # [B, T + 1]
        return self._model.crit(states, labels, keep_order=True).view_as(targets)


class Train(Work):
    """An optimizer step on the mean of all nats; outputs: that mean, and the gradient's norm."""

    def begin(self) -> None:
        self._optimizer: Any = None  # it holds the old model's weights
        super().begin()
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
        loss = self._nats(ids, targets).mean()
        self._optimizer.zero_grad()
        loss.backward()
        clip_norm = self.request["clip_norm"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), clip_norm)
        self._optimizer.step()
        return {"nats": loss.detach(), "gradient_norm": norm}

    def _epsilon(self) -> float:
        """That of the request is added to the uncorrected root, PyTorch's to the corrected one."""
        return self.request["epsilon"] / (1 - self.request["betas"][1] ** self._done) ** 0.5


class Eval(Work):
    """The nats of a segment's targets; outputs: all of them, [steps, B, T]."""

    @torch.inference_mode()
    def _step(self, ids, targets):
        return {"nats": self._nats(ids, targets)}


class Decode(Work):
    """Reads one token; outputs: the log-probabilities of the next one, [steps, B, V]."""

    reads = ("ids",)

    @torch.inference_mode()
    def _step(self, ids):
        return {"log_probs": self._model.crit(self._read(ids)[:, -1])}


_WORKS = {"train": Train, "eval": Eval, "decode": Decode}


def _make(works: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    works.pop(request["name"], None)  # frees it before the new one is there
    works[request["name"]] = _WORKS[request["work"]](request)
    return {"name": request["name"]}


def _outputs(works: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    arrays: dict[str, Any] = works[request["name"]].outputs(request["steps"])
    np.savez(request["path"], **arrays)
    return {"path": request["path"]}


def _call(works: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    return {"seconds": works[request["name"]].call()}


def _peak(works: dict[str, Work], request: dict[str, Any]) -> dict[str, Any]:
    del works, request
    return {"bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """Of this process alone: getrusage counts what its parent held at the start, too."""
    try:
        with open("/proc/self/status") as file:
            told = dict(line.split(":", 1) for line in file)
        return int(told["VmHWM"].split()[0]) * 1024
    except OSError:  # no Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # what this process may use, not what the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_ANSWERS = {"make": _make, "outputs": _outputs, "call": _call, "peak": _peak}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    torch.set_num_threads(_num_cores())
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps(versions), file=answers)
    works: dict[str, Work] = {}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = _ANSWERS[request["ask"]](works, request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
