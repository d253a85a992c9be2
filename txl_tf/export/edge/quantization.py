"""Conversion of a model to a .tflite file, in float32 or quantised."""

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from txl_tf import extras
from txl_tf.export.edge import operators

with extras.required("edge"):
    from ai_edge_quantizer import calibrator, qtyping, quantizer, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

Examples = dict[str, list[dict[str, np.ndarray]]]  # inputs of each signature

_Operation = qtyping.TFLOperationName
_EVERYWHERE = ".*"
_BITS = 8


def convert(folder: str, signatures: list[str], quantize: str, examples: Examples) -> bytes:
    """Returns the .tflite file of a SavedModel with static shapes.

    Args:
      folder: of the SavedModel.
      signatures: names of those to convert.
      quantize: a name in `QUANTIZATIONS`.
      examples: typical inputs, for int8 only.

    Raises:
      ValueError: the model needs operators that TFLite lacks.
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=signatures)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    try:
        return QUANTIZATIONS[quantize](converter, examples)
    except ConverterError as error:
        lines = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
        raise ValueError(f"model must convert to TFLite builtins, got: {lines[0]}") from error


def _float32(converter, examples: Examples) -> bytes:
    del examples
    return converter.convert()


def _float16(converter, examples: Examples) -> bytes:
    """Stores weights in float16, dequantised to float32 where a device has no float16."""
    del examples
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def _dynamic(converter, examples: Examples) -> bytes:
    """Stores weights in int8; activations are quantised by the range of each call."""
    del examples
    return _quantized(converter.convert(), _int8_weights())


def _int8(converter, examples: Examples) -> bytes:
    """Quantises matmuls with weights to int8 activations, by the calibrated ranges.

    Everything between two activations stays float32: attention's own matmuls, softmax, norms, sums.
    In int8 a masked score of -1e30 alone would leave no resolution for the others. Other weights
    (embeddings, distances, output projections) are as in `_dynamic`.
    """
    data = converter.convert()
    recipe = _int8_weights()
    recipe.add_static_config(_EVERYWHERE, _Operation.FULLY_CONNECTED, _BITS, _BITS)
    for name in operators.output_projections(data):
        recipe.add_dynamic_config(f"^{re.escape(name)};?$", _Operation.FULLY_CONNECTED, _BITS)
    # The default, a moving average of the ranges, clips what few examples reach.
    ranges = calibrator.Calibrator(
        data, num_threads=os.cpu_count() or 1, qsv_update_func=qsv_utils.min_max_update
    )
    ranges.calibrate(examples, recipe)
    return _quantized(data, recipe, ranges.get_model_qsvs())


QUANTIZATIONS: dict[str, Callable[[Any, Examples], bytes]] = {
    "none": _float32,
    "float16": _float16,
    "dynamic": _dynamic,
    "int8": _int8,
}


def _int8_weights() -> recipe_manager.RecipeManager:
    """Returns the recipe of int8 weights, with one scale for each row of a table.

    The distances' tables, [H, M + T, K], have a single one: BATCH_MATMUL reads no other.
    """
    recipe = recipe_manager.RecipeManager()
    for operation in (_Operation.FULLY_CONNECTED, _Operation.EMBEDDING_LOOKUP):
        recipe.add_dynamic_config(_EVERYWHERE, operation, _BITS)
    recipe.add_dynamic_config(
        _EVERYWHERE, _Operation.BATCH_MATMUL, _BITS, qtyping.QuantGranularity.TENSORWISE
    )
    return recipe


def _quantized(
    data: bytes, recipe: recipe_manager.RecipeManager, ranges: dict[str, Any] | None = None
) -> bytes:
    """Returns a float32 model quantised by a recipe; `ranges` are those of its activations."""
    found = quantizer.Quantizer(data, recipe.get_quantization_recipe())
    return bytes(found.quantize(ranges, enable_progress_report=False).quantized_model)
