"""Conversion of a model for devices: NAME.tflite, and NAME.assets with everything else.

    NAME.tflite
    NAME.assets/tokenizer.json, vocabulary     as in a model_dir
    NAME.assets/model.json                     shapes, config, checksum, measurements

`edge.runtime` runs it.
"""

import dataclasses
import itertools
import json
import os
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.configs.run import Config
from txl_tf.data import files, outputs
from txl_tf.data.tokenizers import Tokenizer
from txl_tf.export.edge import (
    agreement,
    description,
    native_output,
    operators,
    quantization,
    runtime,
)
from txl_tf.export.edge.calibration import Sample
from txl_tf.export.edge.signatures import EdgeGraph

CALIBRATION_SEGMENTS = 64  # number of batches for int8 calibration


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Result of a conversion.

    Attributes:
      path: of the .tflite file.
      quantize: as given.
      bytes: of that file.
      ops: count of each operator, over both signatures.
      agreement: with the original model on held-out text, or None.
    """

    path: str
    quantize: str
    bytes: int
    ops: dict[str, int]
    agreement: agreement.Agreement | None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON, with those of the agreement inlined."""
        values = dataclasses.asdict(self)
        measured = values.pop("agreement")
        return values | (measured or {})


def export_tflite(
    model,
    tokenizer: Tokenizer,
    config: Config,
    path: str,
    *,
    segment_len: int,
    batch_size: int = 1,
    quantize: str = "none",
    calibration: Sample | None = None,
    held_out: Sample | None = None,
    progress: agreement.Progress | None = None,
) -> Report:
    """Writes the .tflite file and its folder, complete or not at all.

    Args:
      model: a TransformerXL that computes in float32; the export keeps its lengths.
      tokenizer: of the model.
      config: of the run, for model.json.
      path: the file, NAME.tflite.
      segment_len, batch_size: T and B, fixed in the file.
      quantize: "none", "float16", "dynamic" or "int8"; see `quantization`.
      calibration: typical text, required by "int8".
      held_out: another text, on which the result is compared with `model`.
      progress: called during the comparison.

    Raises:
      ValueError: an argument is invalid, `path` exists, or the converted model does not run or
        gives NaN.
    """
    path = str(path)
    _check(model, tokenizer, path, segment_len, batch_size)
    if quantize not in quantization.QUANTIZATIONS:
        choices = ", ".join(quantization.QUANTIZATIONS)
        raise ValueError(f"quantize must be one of {choices}, got {quantize!r}")
    num_tokens = 0 if calibration is None else len(calibration.ids)
    if quantize == "int8" and num_tokens < 2:
        raise ValueError(f"calibration must have at least 2 tokens for int8, got {num_tokens}")
    with outputs.held("output", path, check_new, any_name=True) as output:
        graph = EdgeGraph(model, batch_size=batch_size, segment_len=segment_len)
        signatures = graph.concrete()
        data = _convert(graph, signatures, quantize, calibration)
        ops = operators.count(data)
        if others := operators.not_built_in(ops):
            raise ValueError(f"model must consist of TFLite builtins, got {others}")
        with tempfile.TemporaryDirectory() as folder:
            draft = os.path.join(folder, os.path.basename(path))
            assets = runtime.assets_of(draft)
            files.make_folder(assets)
            files.write_bytes(draft, data)
            tokenizer.save(assets)
            config = dataclasses.replace(config, model=model.config)
            about = _describe(graph, signatures, tokenizer, config, quantize, draft)
            _write_description(assets, about)
            with native_output.suppress_native_output():
                converted = runtime.EdgeModel(draft)
            _run_once(converted)
            measured = None
            if held_out is not None:
                measured = agreement.measure(model, converted, held_out, progress)
            report = Report(
                path=path, quantize=quantize, bytes=len(data), ops=ops, agreement=measured
            )
            report_values = {k: v for k, v in report.to_dict().items() if k != "path"}
            _write_description(assets, about | {"report": report_values})
            _publish(draft, output)
    return report


def _check(model, tokenizer: Tokenizer, path: str, segment_len: int, batch_size: int) -> None:
    """Raises if the model cannot be exported."""
    for name, value in (("segment_len", segment_len), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not os.path.basename(path).removesuffix(runtime.SUFFIX) or not path.endswith(runtime.SUFFIX):
        raise ValueError(f"output must be a file name that ends in {runtime.SUFFIX}, got {path}")
    if model.compute_dtype != "float32":
        raise ValueError(f"model must compute in float32, got {model.compute_dtype}")
    for weight in model.weights:  # int8 would turn NaN into plausible numbers
        if not np.isfinite(weight.numpy()).all():
            raise ValueError(
                f"model must have finite weights, got NaN or infinity in {weight.path}"
            )
    if model.config.mem_len < 1:
        raise ValueError("mem_len must be at least 1 for a device, got 0")
    if tokenizer.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"tokenizer must have the model's {model.config.vocab_size} ids, "
            f"got {tokenizer.vocab_size}"
        )


def _convert(
    graph: EdgeGraph, signatures: dict[str, Any], quantize: str, calibration: Sample | None
) -> bytes:
    with tempfile.TemporaryDirectory() as folder, native_output.suppress_native_output():
        tf.saved_model.save(graph, folder, signatures=signatures)
        examples = {}
        if quantize == "int8" and calibration is not None:
            examples = _examples(graph, signatures["step"], calibration.ids)
        return quantization.convert(folder, list(signatures), quantize, examples)


def _examples(graph: EdgeGraph, step, ids: np.ndarray) -> quantization.Examples:
    """Returns inputs of the signatures, of the model reading `ids` from the start."""
    examples: quantization.Examples = {"step": [], "score": []}
    state = {name: x.numpy() for name, x in graph.initial().items()}
    batches = agreement.rows(ids, graph.batch_size, graph.segment_len)
    for row_ids, targets, lengths in itertools.islice(batches, CALIBRATION_SEGMENTS):
        padding = [[0, 0], [0, graph.segment_len - row_ids.shape[1]]]
        inputs = dict(input_ids=np.pad(row_ids, padding), lengths=lengths, **state)
        examples["step"].append(inputs)
        examples["score"].append(inputs | {"targets": np.pad(targets, padding)})
        results = step(**{name: tf.constant(x) for name, x in inputs.items()})
        state = {name: results[name].numpy() for name in state}
    return examples


def _run_once(converted: runtime.EdgeModel) -> None:
    """Calls each signature of the written file once, with ids 0.

    Raises:
      ValueError: a score is NaN or infinite.
    """
    ids = np.zeros([converted.batch_size, converted.segment_len], np.int32)
    state = converted.initial(converted.batch_size)
    results = {"step": converted.step(ids, state)[0], "score": converted.nll(ids, ids, state)[0]}
    for signature, values in results.items():
        if not np.isfinite(values).all():
            raise ValueError(f"signature {signature} must give finite scores, got NaN or infinity")


def _describe(
    graph: EdgeGraph,
    signatures: dict[str, Any],
    tokenizer: Tokenizer,
    config: Config,
    quantize: str,
    draft: str,
) -> dict[str, Any]:
    """Returns the contents of model.json, without the report."""
    with files.open_bytes(draft) as file:
        sha256 = files.digest(file)
    return {
        "format": description.FORMAT,
        "vocab_size": config.model.vocab_size,
        "batch_size": graph.batch_size,
        "segment_len": graph.segment_len,
        "quantize": quantize,
        "file": {
            "bytes": files.size(draft),
            "sha256": sha256,
        },
        "tokenizer": {
            "kind": tokenizer.kind,
            "options": tokenizer.options,
            "checksum": tokenizer.checksum,
        },
        "signatures": {
            name: {
                "inputs": _tensors(function.structured_input_signature[1]),
                "outputs": _tensors(function.structured_outputs),
            }
            for name, function in signatures.items()
        },
        "initial_state": _initial_state(graph),
        "config": dataclasses.asdict(config),
    }


def _tensors(specs) -> dict[str, Any]:
    return {
        name: {"shape": spec.shape.as_list(), "dtype": spec.dtype.name}
        for name, spec in sorted(specs.items())
    }


def _initial_state(graph: EdgeGraph) -> dict[str, Any]:
    """Returns each tensor of an initial state as one number, or as [L, H, K] if not 0."""
    tensors = {name: x.numpy() for name, x in graph.initial().items()}
    length = int(tensors.pop(description.LENGTH)[0])
    slots = {name: x[0, :, :, 0].tolist() if x.any() else 0.0 for name, x in tensors.items()}
    return slots | {description.LENGTH: length}


def _write_description(assets: str, about: dict[str, Any]) -> None:
    data = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    files.write_bytes(os.path.join(assets, description.FILE_NAME), data.encode("utf-8"))


def check_new(name: str, path: str) -> None:
    """Raises if the model or its folder exists."""
    for existing in filter(files.exists, (path, runtime.assets_of(path))):
        raise ValueError(f"{name} must not exist yet, got {existing}")


def _publish(finished: str, output: outputs.Output) -> None:
    """Moves the finished files to the output path, the .tflite file last."""
    with outputs.draft(output.path) as folder:
        draft = os.path.join(folder, os.path.basename(output.path))
        files.make_folder(runtime.assets_of(draft))
        for name in files.names(runtime.assets_of(finished)):
            data = files.read_bytes(os.path.join(runtime.assets_of(finished), name))
            files.write_bytes(os.path.join(runtime.assets_of(draft), name), data)
        files.write_bytes(draft, files.read_bytes(finished))
        output.check(output.name, output.path)
        assets = runtime.assets_of(output.path)
        files.rename(runtime.assets_of(draft), assets)
        try:
            files.rename(draft, output.path)
        except BaseException:
            files.remove_folder(assets)
            raise
