"""Validation and parsing of dataclass fields by their types, from text and JSON."""

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

LONGEST = 2**30  # tokens; sums of two such lengths are still int32
LARGEST_SEED = 2**31 - 1  # of int32
_ROUNDS_TO_ONE = 1 - 2**-25  # from here on, a float32 is 1
_MAX_SHOWN = 200  # characters of a value in a message


def shown(value: object) -> str:
    """Returns the `repr` of a value for a message, truncated if long."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def check(holds: bool, field: str, rule: str, value: object) -> None:
    """Raises "<field> must <rule>, got <value>" unless the rule holds."""
    if not holds:
        raise ValueError(f"{field} must {rule}, got {shown(value)}")


def check_at_least(config: object, least: float, *fields: str) -> None:
    """Raises if a value is below `least`; None passes."""
    for field in fields:
        value = getattr(config, field)
        check(value is None or value >= least, field, f"be at least {least}", value)


def check_between(config: object, least: float, most: float, *fields: str) -> None:
    """Raises if a value is below `least`, above `most` or NaN; None passes."""
    check_at_least(config, least, *fields)
    for field in fields:
        value = getattr(config, field)
        check(value is None or value <= most, field, f"be at most {most}", value)


def check_rate(config: object, *fields: str) -> None:
    """Raises if a value is below 0, or rounds to 1 or more in float32; None passes."""
    for field in fields:
        value = getattr(config, field)
        fits = value is None or 0 <= value < _ROUNDS_TO_ONE
        check(fits, field, "be at least 0 and below 1", value)


def parse(name: str, kind: Any, text: str) -> Any:
    """Parses `text` as a value of the annotated type `kind`."""
    text = text.strip()
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and text.lower() == "none":
        return None
    kind = kinds[0]
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(parse(name, item, part) for part in _split(text))
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {shown(text)}")
        return text.lower() == "true"
    try:
        if kind is float:
            return float(text)
        return int(text)
    except ValueError as error:
        raise ValueError(f"{name} must be {_describe(kinds)}, got {shown(text)}") from error


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets: "topk(k=8,x=1),dense" has two parts."""
    parts, start, depth = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _describe(kinds: tuple[Any, ...]) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return " or ".join(names.get(k, "none" if k is type(None) else str(k)) for k in kinds)


def types_of(kind: Any) -> dict[str, Any]:
    """Returns the annotated types of a dataclass's fields, by name."""
    return {field.name: field.type for field in dataclasses.fields(kind)}


def check_names(owner: str, values: object, known: Mapping[str, Any]) -> None:
    """Raises if `values` is not a mapping, or has a name that is not known."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{owner} must be a JSON object, got {shown(values)}")
    for name in values:
        if name not in known:
            raise ValueError(f"{owner} has no field {shown(name)}; choose from {', '.join(known)}")


def check_types(config: Any) -> None:
    """Raises if a value has the wrong type; converts whole numbers in float fields to floats."""
    for name, kind in types_of(type(config)).items():
        value = getattr(config, name)
        kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        if value is None and type(None) in kinds:
            continue
        if typing.get_origin(kinds[0]) is tuple:
            item = typing.get_args(kinds[0])[0]
            fits = isinstance(value, tuple) and all(type(v) is item for v in value)
            check(fits, name, f"be a tuple of {_describe((item,))}", value)
        else:
            object.__setattr__(config, name, _checked(name, kinds, value))


def parse_json(text: str, name: str) -> Any:
    """Returns the value of a JSON text.

    Raises:
      ValueError: the text, called `name` in the message, is not JSON, or an object in it has a
        field twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} must be JSON, got {error}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"{shown(name)} twice in one object")
        fields[name] = value
    return fields


def from_dict(kind: Any, values: Any, name: str | None = None, **parts: Any) -> Any:
    """Builds the dataclass `kind` from the plain values of a JSON object; lists become tuples.

    The types of its fields are the schema: None, bool, int, float, str, unions with None, tuples,
    mappings by str, other dataclasses, and Any, which is not checked.

    Args:
      kind: the dataclass.
      values: the object, with nested objects and lists.
      name: its name in messages; None is the name of the class. Nested fields are named by their
        path, as in "splits.train.shards[0]".
      **parts: fields already built; the object must not have them.

    Raises:
      ValueError: a field is missing, unknown or of the wrong type, or breaks a rule of its class.
    """
    return _build(kind, values, name or kind.__name__, "", parts)


def _build(kind: Any, values: Any, name: str, path: str, parts: Mapping[str, Any]) -> Any:
    known = {n: k for n, k in types_of(kind).items() if n not in parts}
    check_names(name, values, known)
    given = {n: _typed(known[n], value, f"{path}{n}") for n, value in values.items()}
    for field in dataclasses.fields(kind):
        has_default = (field.default, field.default_factory) != (dataclasses.MISSING,) * 2
        if field.name in known and field.name not in given and not has_default:
            raise ValueError(f"{name} must have {field.name}, got none")
    try:
        return kind(**given, **parts)
    except ValueError as error:
        if not path:
            raise
        raise ValueError(f"{name}: {error}") from error


def _typed(kind: Any, value: Any, name: str) -> Any:
    """Returns `value` converted to a field's type."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if kind is Any or (value is None and type(None) in kinds):
        return value
    kind, origin = kinds[0], typing.get_origin(kinds[0])
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, name, f"{name}.", {})
    if origin is tuple:
        check(isinstance(value, list | tuple), name, "be a list", value)
        item = typing.get_args(kind)[0]
        return tuple(_typed(item, v, f"{name}[{i}]") for i, v in enumerate(value))
    if origin is Mapping:
        check(isinstance(value, Mapping), name, "be a JSON object", value)
        item = typing.get_args(kind)[1]
        return {n: _typed(item, v, f"{name}.{n}") for n, v in value.items()}
    return _checked(name, kinds, value)


def _checked(name: str, kinds: tuple[Any, ...], value: Any) -> Any:
    """Returns a value of the first of these types; converts a whole number to a float if needed."""
    if kinds[0] is float and type(value) is int:
        check(abs(value) <= sys.float_info.max, name, "be finite", value)
        return float(value)
    check(type(value) is kinds[0], name, f"be {_describe(kinds)}", value)
    return value


def check_choice(config: object, field: str, choices: tuple[str, ...]) -> None:
    """Raises if a value is not among the choices."""
    value = getattr(config, field)
    if value not in choices:
        raise ValueError(f"{field} must be one of {', '.join(choices)}, got {shown(value)}")
