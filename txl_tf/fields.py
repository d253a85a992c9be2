"""The types of dataclass fields: checking values against them, reading values from text."""

import dataclasses
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
        kind = kinds[0]
        if kind is float and type(value) is int:
            check(abs(value) <= sys.float_info.max, name, "be finite", value)
            object.__setattr__(config, name, float(value))
        elif typing.get_origin(kind) is tuple:
            item = typing.get_args(kind)[0]
            fits = isinstance(value, tuple) and all(type(v) is item for v in value)
            check(fits, name, f"be a tuple of {_describe((item,))}", value)
        else:
            check(type(value) is kind, name, f"be {_describe(kinds)}", value)


def check_choice(config: object, field: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is not among the choices."""
    value = getattr(config, field)
    if value not in choices:
        raise ValueError(f"{field} must be one of {', '.join(choices)}, got {shown(value)}")
