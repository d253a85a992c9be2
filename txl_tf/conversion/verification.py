"""Verification against recorded outputs of another implementation."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Kinds of recorded arrays; `_LAYOUTS` computes ours.
KINDS = ("nll", "losses", "hidden", "last_hidden", "mems", "logprob")


def compare(model, path: str) -> dict[str, float]:
    """Runs the segments of an .npz file with memory; returns the largest difference of each kind.

    Either the original's arrays, time-major: inputs_k and labels_k [T, B], and some of nll_k,
    hidden_k [T, B, D], mems_k [L, M, B, D], logprob_k [T, B, V]; or Hugging Face's, batch-major:
    input_ids_k [B, T], and some of losses_k [B, T - 1], last_hidden_k, logprob_k, mems_k as above.

    Raises:
      ValueError: the file has no such arrays.
    """
    arrays = _read(path)
    layout = next((name for name in _LAYOUTS if f"{name}_0" in arrays), None)
    if layout is None:
        raise ValueError(f"{path} must hold inputs_0 or input_ids_0, got {', '.join(arrays)}")
    differences: dict[str, float] = {}
    mems = None
    for k in range(sum(name.rpartition("_")[0] == layout for name in arrays)):
        segment = {n.rpartition("_")[0]: a for n, a in arrays.items() if n.endswith(f"_{k}")}
        ours, mems = _LAYOUTS[layout](model, segment, mems)
        for kind in KINDS:
            if kind in segment:
                theirs = segment[kind]
                difference = _largest(kind, np.asarray(ours[kind](theirs)), theirs)
                differences[kind] = max(differences.get(kind, 0.0), difference)
    if not differences:
        raise ValueError(f"{path} must hold outputs ({', '.join(KINDS)}), got {', '.join(arrays)}")
    return differences


def check(differences: Mapping[str, float], tolerance: float) -> None:
    """Raises if differences exceed `tolerance`; names them."""
    wrong = [
        f"{kind} by {value:.2g}" for kind, value in differences.items() if not value <= tolerance
    ]
    if wrong:
        raise ValueError(
            f"outputs must agree within {tolerance:g}, got differences: {', '.join(wrong)}"
        )


def smoke(model, num_tokens: int = 8) -> float:
    """Returns the mean loss in nats of a short row of arbitrary tokens.

    Raises:
      ValueError: the loss is NaN or infinite.
    """
    vocab_size = model.config.vocab_size
    ids = (np.arange(num_tokens + 1, dtype=np.int64) * 7919 % vocab_size).astype(np.int32)
    nll, _ = model.nll(ids[np.newaxis, :-1], ids[np.newaxis, 1:])
    nats = float(np.mean(nll))
    if not np.isfinite(nats):
        raise ValueError(f"model must give a finite loss, got {nats}")
    return nats


def _read(path: str) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            return dict(file)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"verify_io must be an .npz file, got {path}: {error}") from error


def _largest(kind: str, ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"{kind} must have shape {ours.shape} in verify_io, got {theirs.shape}")
    return float(np.abs(ours - theirs).max()) if ours.size else 0.0


Outputs = dict[str, Callable[[np.ndarray], Any]]  # kind -> function of theirs that returns ours


def _time_major(model, segment, mems) -> tuple[Outputs, Any]:
    ids = segment["inputs"].T
    hidden, scores, new = _run(model, ids, mems)
    outputs: Outputs = {
        "nll": lambda _: np.transpose(model.nll_of(hidden, segment["labels"].T)),
        "hidden": lambda _: np.transpose(hidden, (1, 0, 2)),
        "logprob": lambda _: np.transpose(scores(), (1, 0, 2)),
        "mems": lambda theirs: _mems(new, theirs),
    }
    return outputs, new


def _batch_major(model, segment, mems) -> tuple[Outputs, Any]:
    ids = segment["input_ids"]
    hidden, scores, new = _run(model, ids, mems)
    outputs: Outputs = {
        "losses": lambda _: model.nll_of(hidden[:, :-1], ids[:, 1:]),
        "last_hidden": lambda _: hidden,
        "logprob": lambda _: scores(),
        "mems": lambda theirs: _mems(new, theirs),
    }
    return outputs, new


_LAYOUTS = {"inputs": _time_major, "input_ids": _batch_major}


def _run(model, ids, mems):
    states, new = model.hidden_states(ids, mems)
    hidden = states[-1]
    return hidden, lambda: tf.nn.log_softmax(model.scores_of(hidden)), new


def _mems(mems, theirs: np.ndarray) -> np.ndarray:
    """Returns our mems shaped like theirs, [L or L + 1, rows, B, D], which may grow.

    A last, unused output of theirs is copied. Another number of rows yields another shape.
    """
    rows = int(np.max(mems.length))
    ours = [np.transpose(state, (1, 0, 2)) for state in mems.states]
    ours = [state[state.shape[0] - rows :] for state in ours]
    return np.stack([*ours, *theirs[len(ours) :]])
