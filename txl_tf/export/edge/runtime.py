"""Runs a .tflite file of `export_tflite` on a device: NumPy and LiteRT, no TensorFlow.

    score = runtime.scorer("model.tflite").score("some text")

Beside NAME.tflite stands the folder NAME.assets with the tokenizer and model.json.
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
    """The folder that belongs to a .tflite file."""
    return path.removesuffix(SUFFIX) + ".assets"


class EdgeModel:
    """A converted model, and a `scoring.Reader`. All its shapes are fixed: B rows of T ids.

    Fewer rows or ids than that are padded here. A state goes in and comes out; it has B rows
    always, those that are not used stay empty.

    Shapes:
      ids, targets: [b, t] int32, b at most B, t at most T.
      lengths: [b] int32, how many of the t are real (the first ones, perhaps none); None is all.

    Args:
      path: the .tflite file.
      num_threads: of LiteRT; None leaves it to LiteRT.

    Attributes:
      batch_size, segment_len: B and T.
      vocab_size: V.
      tokenizer: that of the model.
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
        interpreter.allocate_tensors()  # else the first call tells of its delegate
        self._runners = {
            name: interpreter.get_signature_runner(name) for name in self.description.signatures
        }
        self._check_shapes(path)

    def initial(self, batch_size: int) -> dict[str, np.ndarray]:
        """The state of rows that have read nothing. There are B whatever is asked for, at most B.

        Raises:
          ValueError: more rows are wanted than the model has.
        """
        if not 1 <= batch_size <= self.batch_size:
            raise ValueError(f"batch_size must lie in 1..{self.batch_size}, got {batch_size}")
        return self.description.initial()

    def step(
        self, ids: np.ndarray, state: State, lengths: np.ndarray | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Scores of what follows each id, [b, t, V]: their softmax is the distribution.

        Returns them and the state after the ids.

        Raises:
          ValueError: an id is not in the vocabulary, or a shape is not the model's.
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
        """Nats of each target, [b, t] float32, 0 where it is -1; and the state after the ids."""
        if np.shape(targets) != np.shape(ids):
            raise ValueError(f"targets must have shape {np.shape(ids)}, got {np.shape(targets)}")
        rows, size = np.shape(ids)
        check_ids("targets", targets, self.vocab_size, ignored=-1)
        wanted = np.maximum(targets, 0)
        results = self._run("score", ids, state, lengths, targets=wanted)
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
            found = state.get(name)
            if found is None:
                raise ValueError(f"state must have {name} of {spec}, got {', '.join(state)}")
            if found.shape != spec.shape or found.dtype != spec.dtype:
                raise ValueError(
                    f"{name} must have {spec}, got {list(found.shape)} and {found.dtype}; a "
                    "state belongs to its model"
                )
        length, slots = state[LENGTH], specs["keys"].shape[3]
        if length.min() < 0 or length.max() > slots:
            raise ValueError(f"{LENGTH} must lie in 0..{slots}, got {length.tolist()}")
        return state

    def _check_shapes(self, path: str) -> None:
        """Holds model.json to the .tflite file."""
        for name, runner in self._runners.items():
            for key, found in runner.get_input_details().items():
                spec = self.description.signatures[name].inputs.get(key)
                if spec is None or spec.shape != tuple(found["shape"].tolist()):
                    raise ValueError(
                        f"{assets_of(path)}/{FILE_NAME}: signatures.{name}.inputs.{key} must have "
                        f"shape {found['shape'].tolist()} as in {path}, got {spec}"
                    )


def scorer(
    path: str, *, num_threads: int | None = None, invalid_utf8: str = "error"
) -> text_scorer.TextScorer:
    """A scorer of texts by a .tflite file; arguments as in `EdgeModel` and `TextScorer`."""
    model = EdgeModel(path, num_threads)
    return text_scorer.TextScorer(
        model,
        model.tokenizer,
        segment_len=model.segment_len,
        batch_size=model.batch_size,
        invalid_utf8=invalid_utf8,
    )


def _padded(values, spec: Tensor) -> np.ndarray:
    """`values` in the corner of zeros of the full shape."""
    whole = np.zeros(spec.shape, spec.dtype)
    whole[tuple(slice(size) for size in np.shape(values))] = values
    return whole


def _describe(path: str) -> EdgeDescription:
    """Reads model.json, and holds the .tflite file to it."""
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
        raise ValueError(f"{path} must have {about.file.bytes} bytes, as {name} says, got {size}")
    with files.open_bytes(path) as file:
        sha256 = files.digest(file)
    if sha256 != about.file.sha256:
        raise ValueError(f"{path} must be the file that {name} tells of, got another or damage")
    return about


def _tokenizer(path: str, about: EdgeDescription) -> tokenizers.Tokenizer:
    """The tokenizer beside the file, which must be the one that the model was exported with."""
    folder = assets_of(path)
    found = tokenizers.load(folder)
    if found.checksum != about.tokenizer.checksum:
        raise ValueError(
            f"{folder} must hold the tokenizer of {path} (tokenizer.checksum "
            f"{about.tokenizer.checksum[:12]} in {FILE_NAME}), got another "
            f"({found.checksum[:12]})"
        )
    return found
