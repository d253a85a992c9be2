"""`model.json` of a .tflite file: its inputs and outputs. Needs no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from txl_tf.configs import validation

FORMAT = 1
FILE_NAME = "model.json"
LENGTH = "mem_length"
_LARGEST = float(np.finfo(np.float32).max)
_STATE = ("keys", "values", LENGTH)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of a signature, of static shape.

    Attributes:
      shape: all sizes.
      dtype: NumPy name of the dtype.
    """

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"shape {list(self.shape)} and dtype {self.dtype}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """A function of the file, with its tensors by name."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """Size and checksum of the .tflite file."""

    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOfModel:
    """The model's tokenizer; the one in the folder must have this checksum."""

    kind: str
    options: Mapping[str, Any]
    checksum: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EdgeDescription:
    """The contents of `model.json`.

    Attributes:
      format: version of the description; others cannot be read.
      vocab_size, batch_size, segment_len: V, B and T.
      quantize: storage of the weights.
      file: size and checksum of the .tflite file.
      tokenizer: of the model.
      signatures: "step" and "score"; see `EdgeGraph`.
      initial_state: each tensor of an initial state, as one number, or as [L, H, K] for all rows
        and slots.
      config: of the run, for information.
      report: measurements, for information.

    Raises:
      ValueError: a field breaks a rule; the message names it.
    """

    format: int
    vocab_size: int
    batch_size: int
    segment_len: int
    quantize: str
    file: File
    tokenizer: TokenizerOfModel
    signatures: Mapping[str, Signature]
    initial_state: Mapping[str, Any]
    config: Mapping[str, Any]
    report: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        validation.check_at_least(self, 1, "vocab_size", "batch_size", "segment_len")
        validation.check_names("signatures", self.signatures, {"step": None, "score": None})
        for name, (inputs, outputs) in self._expected().items():
            if name not in self.signatures:
                raise ValueError(f"signatures must have {name}, got none")
            signature = self.signatures[name]
            _check_tensors(f"signatures.{name}.inputs", signature.inputs, inputs)
            _check_tensors(f"signatures.{name}.outputs", signature.outputs, outputs)
        validation.check_names("initial_state", self.initial_state, dict.fromkeys(_STATE))
        for name in _STATE:
            self._check_initial(name)

    @classmethod
    def from_json(cls, text: str) -> "EdgeDescription":
        """Parses the text of the file.

        Raises:
          ValueError: the text is not a JSON object of this form, or has another format.
        """
        tree = validation.parse_json(text, "description")
        if isinstance(tree, dict) and tree.get("format", FORMAT) != FORMAT:
            raise ValueError(
                f"format must be {FORMAT}, got {validation.shown(tree['format'])}; "
                "export the model again"
            )
        return validation.from_dict(cls, tree, "description")

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The tensors of a state."""
        return {name: self.signatures["step"].inputs[name] for name in _STATE}

    def initial(self) -> dict[str, np.ndarray]:
        """Returns the state of rows without history."""
        state = {}
        for name, spec in self.state.items():
            values = np.asarray(self.initial_state[name], spec.dtype)
            if values.ndim == 3:  # [L, H, K]: the same in every row and slot
                values = values[np.newaxis, :, :, np.newaxis]
            state[name] = np.broadcast_to(values, spec.shape).copy()
        return state

    def _expected(self) -> dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]]:
        """Returns the inputs and outputs of each signature, given the shape of the keys."""
        keys = self._keys()
        rows = Tensor(shape=(self.batch_size,), dtype="int32")
        ids = Tensor(shape=(self.batch_size, self.segment_len), dtype="int32")
        scores = Tensor(shape=(*ids.shape, self.vocab_size), dtype="float32")
        state = {"keys": keys, "values": keys, LENGTH: rows}
        inputs = {"input_ids": ids, "lengths": rows, **state}
        log_probs = Tensor(shape=ids.shape, dtype="float32")
        return {
            "step": (inputs, {"scores": scores, **state}),
            "score": ({"targets": ids, **inputs}, {"log_probs": log_probs, **state}),
        }

    def _keys(self) -> Tensor:
        name = "signatures.step.inputs.keys"
        step = self.signatures.get("step")
        keys = step.inputs.get("keys") if step else None
        if keys is None:
            raise ValueError(f"{name} must be given, got none")
        shape, rows = keys.shape, self.batch_size
        fits = len(shape) == 5 and min(shape) >= 1 and shape[0] == rows
        validation.check(fits, f"{name}.shape", f"be [{rows}, L, H, M, K]", list(shape))
        validation.check(keys.dtype == "float32", f"{name}.dtype", "be float32", keys.dtype)
        return keys

    def _check_initial(self, name: str) -> None:
        path = f"initial_state.{name}"
        if name not in self.initial_state:
            raise ValueError(f"initial_state must have {name}, got none")
        value = self.initial_state[name]
        _, layers, heads, slots, width = self.state["keys"].shape
        if name == LENGTH:
            fits = type(value) is int and 0 <= value <= slots
            validation.check(fits, path, f"be a whole number in 0..{slots}", value)
        elif isinstance(value, list):
            fits = _is_nested(value, (layers, heads, width))
            validation.check(
                fits, path, f"be a number or numbers [{layers}, {heads}, {width}]", value
            )
        else:
            validation.check(_is_number(value), path, "be a number", value)


def _check_tensors(name: str, actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    validation.check_names(name, actual, expected)
    for key, spec in expected.items():
        if key not in actual:
            raise ValueError(f"{name} must have {key}, got none")
        if actual[key] != spec:
            raise ValueError(f"{name}.{key} must have {spec}, got {actual[key]}")


def _is_nested(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether a value is nested lists of numbers of this shape."""
    if not shape:
        return _is_number(value)
    fits = isinstance(value, list) and len(value) == shape[0]
    return fits and all(_is_nested(item, shape[1:]) for item in value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= _LARGEST  # not NaN
