"""Layer specs: short texts such as "local(window=128)" that name a class and its options."""

import ast
import dataclasses
from collections.abc import Mapping
from typing import Any


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Splits "topk(k=8)" into ("topk", {"k": 8}); values are Python literals.

    Raises:
      ValueError: the text is not of this form.
    """
    try:
        node = ast.parse(spec.strip(), mode="eval").body
        call = node if isinstance(node, ast.Call) else None
        name = call.func if call else node
        if not isinstance(name, ast.Name) or (call and call.args):
            raise SyntaxError
        options = {}
        for keyword in call.keywords if call else ():
            if keyword.arg is None:
                raise SyntaxError
            options[keyword.arg] = ast.literal_eval(keyword.value)
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"a spec must read name or name(option=value), texts in quotes, got {spec!r}"
        ) from error
    return name.id, options


def build(table: Mapping[str, type], spec: str, **common: Any) -> Any:
    """Makes the object that `spec` names in `table`, with its options and the `common` ones.

    A class lists its options in `OPTIONS`; those of a dataclass are its fields.

    Raises:
      ValueError: the name is not in the table, its class knows no such option, or needs another.
    """
    name, options = parse(spec)
    if name not in table:
        raise ValueError(f"unknown kind {name!r} in {spec!r}; choose from {', '.join(table)}")
    kind = table[name]
    of_dataclass = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    known = getattr(kind, "OPTIONS", [field.name for field in of_dataclass])
    for option in options:
        if option not in known:
            choices = f"choose from {', '.join(known)}" if known else "it has none"
            raise ValueError(f"unknown option {option!r} in {spec!r}; {choices}")
    for field in of_dataclass:
        if field.default is dataclasses.MISSING and field.name not in options:
            raise ValueError(
                f"{field.name} must be given in {spec!r}, as in {name}({field.name}=...)"
            )
    return table[name](**common, **options)
