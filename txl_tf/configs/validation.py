"""The types of dataclass fields: checks values against them, reads values from text and JSON."""

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

LONGEST = 2**30  # tokens; sums of two such lengths are still int32
LARGEST_SEED = 2**31 - 1  # of int32
_NEXT_TO_ONE = 1 - 2**-25  # a float32 from here on is 1
_SHOWN = 200  # characters of a value that a message shows


def shown(value: object) -> str:
    """The `repr` of a value for a message, cut short where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def check(fact: bool, field: str, rule: str, value: object) -> None:
    """Raises "<field> must <rule>, got <value>" unless `fact` holds."""
    if not fact:
        raise ValueError(f"{field} must {rule}, got {shown(value)}")


def check_at_least(config: object, least: float, *fields: str) -> None:
    """Refuses a value below `least`; None passes."""
    for field in fields:
        value = getattr(config, field)
        check(value is None or value >= least, field, f"be at least {least}", value)


def check_between(config: object, least: float, most: float, *fields: str) -> None:
    """Refuses a value below `least` or above `most`, and NaN; None passes."""
    check_at_least(config, least, *fields)
    for field in fields:
        value = getattr(config, field)
        check(value is None or value <= most, field, f"be at most {most}", value)


def check_rate(config: object, *fields: str) -> None:
    """Refuses what is no part of a whole: a value below 0, or one that float32 rounds to 1."""
    for field in fields:
        value = getattr(config, field)
        fits = value is None or 0 <= value < _NEXT_TO_ONE
        check(fits, field, "be at least 0 and below 1", value)


def parse(name: str, kind: Any, text: str) -> Any:
    """Reads `text` as a value of the annotated type `kind`."""
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
    """Cuts at the commas outside brackets: "topk(k=8,x=1),dense" has two parts."""
    parts, start, depth = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _describe(kinds: tuple[Any, ...]) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return " or ".join(names.get(k, "none" if k is type(None) else str(k)) for k in kinds)


def types_of(kind: Any) -> dict[str, Any]:
    """Name -> annotated type of a dataclass's fields."""
    return {field.name: field.type for field in dataclasses.fields(kind)}


def check_names(owner: str, values: object, known: Mapping[str, Any]) -> None:
    """Refuses anything but a mapping, and names that are not known."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{owner} must be a JSON object, got {shown(values)}")
    for name in values:
        if name not in known:
            raise ValueError(f"{owner} has no field {shown(name)}; choose from {', '.join(known)}")


def check_types(config: Any) -> None:
    """Refuses a value of the wrong type, and turns whole numbers into floats where those belong."""
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
      ValueError: the text, called `name` in the message, is no JSON, or an object in it has a field
        twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} must be JSON, got {error}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{shown(name)} twice in one object")
        found[name] = value
    return found


def from_dict(kind: Any, values: Any, name: str | None = None, **parts: Any) -> Any:
    """Builds the dataclass `kind` from the plain values of a JSON object; lists become tuples.

    The types of its fields are the schema: None, bool, int, float, str, unions with None, tuples,
    mappings by str, other dataclasses, and Any, which is taken as it is.

    Args:
      kind: the dataclass.
      values: the object, with other objects and lists in it.
      name: what messages call it; None is the name of the class. Fields within are called by their
        path, as in "splits.train.shards[0]".
      **parts: fields that are there already; the object must not have them.

    Raises:
      ValueError: a field is missing, not known or of the wrong type, or breaks a rule of its class.
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
    """`value` as a field of this type holds it."""
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
    """A plain value of the first of these types; a whole number becomes a float where need be."""
    if kinds[0] is float and type(value) is int:
        check(abs(value) <= sys.float_info.max, name, "be finite", value)
        return float(value)
    check(type(value) is kinds[0], name, f"be {_describe(kinds)}", value)
    return value


def check_choice(config: object, field: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is not among the choices."""
    value = getattr(config, field)
    if value not in choices:
        raise ValueError(f"{field} must be one of {', '.join(choices)}, got {shown(value)}")
