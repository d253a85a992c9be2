"""Conversion of NumPy arrays to and from the JSON of TensorFlow Serving's REST interface."""

import base64
import binascii
from typing import Any

import numpy as np

from txl_tf.serving_client import messages


def to_json(name: str, value: np.ndarray) -> Any:
    """Returns an array as nested lists, with strings in base 64.

    Raises:
      ValueError: the dtype is float16, which REST does not support.
    """
    if value.dtype == np.float16:
        raise ValueError(f"{name} must not be float16 over REST, got float16; use gRPC")
    return _encoded(value.tolist()) if value.dtype.kind in "OSU" else value.tolist()


def _encoded(strings: Any) -> Any:
    if isinstance(strings, list):
        return [_encoded(item) for item in strings]
    return {"b64": base64.b64encode(messages.bytes_of(strings)).decode()}


def from_json(name: str, found: object, dtype: type) -> np.ndarray:
    """Returns a decoded JSON value as an array; its rank is the depth of the nested lists.

    Raises:
      ValueError: the lists are ragged, or a value does not fit the dtype.
    """
    shape, items = _flat(name, found)
    if dtype is np.object_:
        values = np.empty(len(items), object)
        values[:] = [_bytes(name, item) for item in items]
        return values.reshape(shape)
    for item in items:
        _check_number(name, item, dtype)
    return np.array(items, dtype).reshape(shape)


def _flat(name: str, found: object) -> tuple[list[int], list[Any]]:
    """Returns the shape and the flattened values of nested lists."""
    shape: list[int] = []
    level: list[Any] = [found]
    while any(isinstance(item, list) for item in level):
        sizes = {len(item) if isinstance(item, list) else -1 for item in level}
        if len(sizes) > 1:
            raise ValueError(f"{name} must be an array, got lists of different lengths")
        shape += sizes
        level = [part for item in level for part in item]
    return shape, level


def _bytes(name: str, item: object) -> bytes:
    if isinstance(item, str):
        return item.encode("utf-8", "surrogatepass")
    if isinstance(item, dict) and item.keys() == {"b64"} and isinstance(item["b64"], str):
        try:
            return base64.b64decode(item["b64"], validate=True)
        except (binascii.Error, ValueError):
            pass
    raise ValueError(f"{name} must hold text, got {messages.abbreviated(item)}")


def _check_number(name: str, item: object, dtype: type) -> None:
    """Raises if a value is not of this dtype, even where NumPy would convert it silently."""
    kinds = {"b": (bool,), "i": (int,), "f": (int, float)}[np.dtype(dtype).kind]
    fits = type(item) in kinds
    if fits and type(item) is int and dtype is not np.bool_:
        maximum = np.finfo(dtype).max if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
        fits = abs(item) <= int(maximum)
    if not fits:
        described = np.dtype(dtype).name
        raise ValueError(f"{name} must hold {described}, got {messages.abbreviated(item)}")
