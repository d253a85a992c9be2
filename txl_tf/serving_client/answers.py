"""Validated requests to a served model: each response must have the outputs of an export."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from txl_tf.serving_client.transport import Arrays, Server, ServerError

_KINDS = {"f": "floats", "i": "integers", "O": "text"}
# Outputs by signature: kind of the dtype, and axes; B is 1 here, N, T and V are 0 or more.
_OUTPUTS: dict[str, dict[str, tuple[str, str]]] = {
    "score": {"log_probs": ("f", "BN"), "num_tokens": ("i", "B")},
    "generate": {"text": ("O", "B")},
    "encode": {"ids": ("i", "BN"), "lengths": ("i", "B")},
    "decode": {"text": ("O", "B")},
    "step": {"scores": ("f", "BTV")},
    "initial_state": {"mem_length": ("i", "B")},
}
_MAX_ID = 2**31 - 1
_LENGTHS = {"num_tokens": "log_probs", "lengths": "ids"}  # output with the valid length of another


def ask(
    server: Server, signature: str, inputs: Mapping[str, Any], outputs: Sequence[str] = ()
) -> Arrays:
    """Runs a signature for one row and validates its outputs; arguments as in `Server.predict`.

    Returns:
      The outputs named in `outputs`, by default all of the signature.

    Raises:
      ServerError: the request fails, or an output is missing, NaN or infinite, or differs from an
        export's in dtype, rank or size.
    """
    answer = server.predict(signature, inputs, outputs)
    expected = {name: _OUTPUTS[signature].get(name) for name in outputs or _OUTPUTS[signature]}
    for name in expected:
        if name not in answer:
            got = ", ".join(sorted(answer)) or "nothing"
            raise _invalid(signature, f"must have the output {name}, got {got}")
    for name, value in answer.items():
        _check_finite(signature, name, value)
        if (described := _OUTPUTS[signature].get(name)) is not None:
            _check_dtype_and_shape(signature, name, value, *described)
    for name, padded in _LENGTHS.items():
        if name in answer and padded in answer:
            _check_range(signature, name, answer[name], answer[padded].shape[1])
    if "ids" in answer:
        _check_range(signature, "ids", answer["ids"], _MAX_ID)
    if "scores" in answer:
        _check_scores(answer["scores"], np.shape(inputs["input_ids"])[1])
    return answer


def check_state(state: Arrays, answer: Arrays) -> None:
    """Raises if the state returned by `step` does not match the state sent to it.

    Raises:
      ServerError: a tensor is missing, or differs in shape or dtype.
    """
    for name, before in state.items():
        if name not in answer:
            raise _invalid("step", f"must have the output {name}, got {', '.join(sorted(answer))}")
        after = answer[name]
        if (after.shape, after.dtype) != (before.shape, before.dtype):
            raise _invalid(
                "step",
                f"must have {name} of shape {list(before.shape)} and {before.dtype}, "
                f"got {list(after.shape)} and {after.dtype}",
            )


def _check_finite(signature: str, name: str, value: np.ndarray) -> None:
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        wrong = value[~np.isfinite(value)][0]
        raise _invalid(signature, f"must have finite values in {name}, got {wrong}")


def _check_dtype_and_shape(
    signature: str, name: str, value: np.ndarray, kind: str, axes: str
) -> None:
    if value.dtype.kind != kind:
        raise _invalid(signature, f"must have {_KINDS[kind]} in {name}, got {value.dtype}")
    if value.ndim != len(axes) or value.shape[0] != 1:
        expected, got = ", ".join(["1", *axes[1:]]), list(value.shape)
        raise _invalid(signature, f"must have {name} of shape [{expected}], got {got}")


def _check_range(signature: str, name: str, values: np.ndarray, maximum: int) -> None:
    wrong = values[(values < 0) | (values > maximum)]
    if wrong.size:
        raise _invalid(signature, f"must have {name} in 0..{maximum}, got {wrong[0]}")


def _check_scores(scores: np.ndarray, num_ids: int) -> None:
    _, num_tokens, vocab_size = scores.shape
    if num_tokens != num_ids or not vocab_size:
        got = list(scores.shape)
        raise _invalid("step", f"must have scores of shape [1, {num_ids}, V], V above 0, got {got}")


def _invalid(signature: str, rule: str) -> ServerError:
    return ServerError(f"the server's answer to {signature} {rule}")
