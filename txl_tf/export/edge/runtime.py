"""Inference with a .tflite file of `export_tflite` on a device: NumPy and LiteRT only.

    score = runtime.scorer("model.tflite").score("some text")

NAME.tflite needs the folder NAME.assets beside it, with the tokenizer and model.json.
"""

from collections.abc import Mapping

import numpy as np

from txl_tf import extras
from txl_tf.data import files, tokenizers
from txl_tf.export.edge.description import FILE_NAME, LENGTH, EdgeDescription, Tensor
from txl_tf.inference import text_scorer
from txl_tf.ops.token_ids import check_ids

with extras.required("edge"):
    from ai_edge_litert.interpreter import Interpreter

SUFFIX = ".tflite"

State = Mapping[str, np.ndarray]  # keys, values [B, L, H, M, K] float32; mem_length [B] int32


def assets_of(path: str) -> str:
    """Returns the assets folder of a .tflite file."""
    return path.removesuffix(SUFFIX) + ".assets"


class EdgeModel:
    """A converted model, usable as a `Reader` of `TextScorer`. Shapes are static, B rows of T ids.

    Smaller inputs are padded here. States are passed in and returned; they always have B rows,
    unused ones stay empty.

    Shapes:
      ids, targets: [b, t] int32, b at most B, t at most T.
      lengths: [b] int32, number of real ids of each row, from the first on; None is all.

    Args:
      path: the .tflite file.
      num_threads: of LiteRT; None is LiteRT's default.

    Attributes:
      batch_size, segment_len: B and T.
      vocab_size: V.
      tokenizer: of the model.
      description: the contents of model.json.

    Raises:
      ValueError: a file is missing, damaged or of another model; names it.
    """

    def __init__(self, path: str, num_threads: int | None = None):
        path = str(path)
        self.description = _describe(path)
        self.batch_size = self.description.batch_size
        self.segment_len = self.description.segment_len
        self.vocab_size = self.description.vocab_size
        self.tokenizer = _tokenizer(path, self.description)
        interpreter = Interpreter(model_path=path, num_threads=num_threads)
        interpreter.allocate_tensors()  # now, as it logs its delegate
        self._runners = {
            name: interpreter.get_signature_runner(name) for name in self.description.signatures
        }
        self._check_shapes(path)

    def initial(self, batch_size: int) -> dict[str, np.ndarray]:
        """Returns the state of rows without history: B rows, of which `batch_size` are used.

        Raises:
          ValueError: batch_size is above B.
        """
        if not 1 <= batch_size <= self.batch_size:
            raise ValueError(f"batch_size must lie in 1..{self.batch_size}, got {batch_size}")
        return self.description.initial()

    def step(
        self, ids: np.ndarray, state: State, lengths: np.ndarray | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns next-token logits [b, t, V] for each id, and the state after the ids.

        Raises:
          ValueError: an id is outside the vocabulary, or a shape does not fit the model.
        """
        rows, size = np.shape(ids)
        results = self._run("step", ids, state, lengths)
        return results.pop("scores")[:rows, :size], results

    def nll(
        self,
        ids: np.ndarray,
        targets: np.ndarray,
        state: State,
        lengths: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns the loss of each target in nats, [b, t], 0 where it is -1; and the state."""
        if np.shape(targets) != np.shape(ids):
            raise ValueError(f"targets must have shape {np.shape(ids)}, got {np.shape(targets)}")
        rows, size = np.shape(ids)
        check_ids("targets", targets, self.vocab_size, ignored=-1)
        valid_targets = np.maximum(targets, 0)
        results = self._run("score", ids, state, lengths, targets=valid_targets)
        log_probs = results.pop("log_probs")[:rows, :size]
        return np.where(np.asarray(targets) < 0, np.float32(0), -log_probs), results

    def _run(self, signature: str, ids, state: State, lengths, **others) -> dict[str, np.ndarray]:
        rows, size = np.shape(ids)
        if not (1 <= rows <= self.batch_size and size <= self.segment_len):
            raise ValueError(
                f"input_ids must have at most {self.batch_size} rows of {self.segment_len} ids, "
                f"got shape {(rows, size)}"
            )
        check_ids("input_ids", ids, self.vocab_size)
        lengths = np.full(rows, size) if lengths is None else np.asarray(lengths)
        if lengths.shape != (rows,) or lengths.min() < 0 or lengths.max() > size:
            raise ValueError(f"lengths must be {rows} numbers in 0..{size}, got {lengths.tolist()}")
        inputs = {"input_ids": ids, "lengths": lengths, **others}
        specs = self.description.signatures[signature].inputs
        padded = {name: _padded(x, specs[name]) for name, x in inputs.items()}
        return self._runners[signature](**padded, **self._checked(state))

    def _checked(self, state: State) -> State:
        specs = self.description.state
        for name, spec in specs.items():
            actual = state.get(name)
            if actual is None:
                raise ValueError(f"state must have {name} of {spec}, got {', '.join(state)}")
            if actual.shape != spec.shape or actual.dtype != spec.dtype:
                raise ValueError(
                    f"{name} must have {spec}, got {list(actual.shape)} and {actual.dtype}; a "
                    "state fits its own model only"
                )
        length, slots = state[LENGTH], specs["keys"].shape[3]
        if length.min() < 0 or length.max() > slots:
            raise ValueError(f"{LENGTH} must lie in 0..{slots}, got {length.tolist()}")
        return state

    def _check_shapes(self, path: str) -> None:
        """Raises if model.json and the .tflite file differ in shapes."""
        for name, runner in self._runners.items():
            for key, details in runner.get_input_details().items():
                spec = self.description.signatures[name].inputs.get(key)
                if spec is None or spec.shape != tuple(details["shape"].tolist()):
                    raise ValueError(
                        f"{assets_of(path)}/{FILE_NAME}: signatures.{name}.inputs.{key} must have "
                        f"shape {details['shape'].tolist()} as in {path}, got {spec}"
                    )


def scorer(
    path: str, *, num_threads: int | None = None, invalid_utf8: str = "error"
) -> text_scorer.TextScorer:
    """Returns a text scorer of a .tflite file; arguments as in `EdgeModel` and `TextScorer`."""
    model = EdgeModel(path, num_threads)
    return text_scorer.TextScorer(
        model,
        model.tokenizer,
        segment_len=model.segment_len,
        batch_size=model.batch_size,
        invalid_utf8=invalid_utf8,
    )


def _padded(values, spec: Tensor) -> np.ndarray:
    """Returns `values` zero-padded to the full shape."""
    whole = np.zeros(spec.shape, spec.dtype)
    whole[tuple(slice(size) for size in np.shape(values))] = values
    return whole


def _describe(path: str) -> EdgeDescription:
    """Reads model.json, and checks the .tflite file against it."""
    if files.is_remote(path):
        raise ValueError(f"{path} must be a local file; copy it and its {assets_of(path)} here")
    if not files.exists(path):
        raise ValueError(f"{path} must be a file, got no such file")
    name = f"{assets_of(path)}/{FILE_NAME}"
    if not files.exists(name):
        raise ValueError(f"{path} must have {name} beside it, got none")
    about = files.read_json(name, EdgeDescription.from_json)
    size = files.size(path)
    if size != about.file.bytes:
        raise ValueError(f"{path} must have {about.file.bytes} bytes, as in {name}, got {size}")
    with files.open_bytes(path) as file:
        sha256 = files.digest(file)
    if sha256 != about.file.sha256:
        raise ValueError(f"{path} must be the file described in {name}, got another or damage")
    return about


def _tokenizer(path: str, about: EdgeDescription) -> tokenizers.Tokenizer:
    """Loads the tokenizer beside the file; raises if it is not the model's."""
    folder = assets_of(path)
    tokenizer = tokenizers.load(folder)
    if tokenizer.checksum != about.tokenizer.checksum:
        raise ValueError(
            f"{folder} must hold the tokenizer of {path} (tokenizer.checksum "
            f"{about.tokenizer.checksum[:12]} in {FILE_NAME}), got another "
            f"({tokenizer.checksum[:12]})"
        )
    return tokenizer
