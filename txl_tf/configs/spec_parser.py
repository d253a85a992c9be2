"""Parser of layer specs: short texts such as "local(window=128)", a kind and its options."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from txl_tf.configs.validation import shown

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<name>[A-Za-z_]\w*)
    | (?P<float>[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+)
    | (?P<int>[-+]?[0-9]+)
    | (?P<text>'[^'\\\n]*'|"[^"\\\n]*")
    | (?P<mark>[(),=])
    )""",
    re.VERBOSE | re.ASCII,
)
_CONSTANTS = {"True": True, "False": False, "None": None}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "text": lambda quoted: quoted[1:-1],
}
_DEPTH = 16  # maximum nesting of tuples


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Splits "topk(k=8)" into ("topk", {"k": 8}).

    Values are numbers, quoted text, True, False, None and tuples of them, written as in Python. The
    time is linear in the length of the text.

    Raises:
      ValueError: the text is not of this form.
    """
    try:
        return _Parser(spec).spec()
    except ValueError as error:
        raise ValueError(
            f"a spec must read name or name(option=value), texts in quotes, got {shown(spec)}"
        ) from error


class _Parser:
    """Recursive-descent parser; raises ValueError without a message at an unexpected token."""

    def __init__(self, spec: str):
        self._tokens = [*_tokens(spec.rstrip()), ("end", "")]
        self._next = 0

    def spec(self) -> tuple[str, dict[str, Any]]:
        name, options = self._take("name"), dict[str, Any]()
        if self._skip("("):
            while not self._skip(")"):
                option = self._take("name")
                if option in options or not self._skip("="):
                    raise ValueError
                options[option] = self._value(_DEPTH)
                self._end_item()
        self._take("end")
        return name, options

    def _value(self, depth: int) -> Any:
        kind, text = self._tokens[self._next]
        if self._skip("("):
            if not depth:
                raise ValueError
            return self._tuple(depth - 1)
        self._next += 1
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if kind not in _READERS:
            raise ValueError
        return _READERS[kind](text)

    def _tuple(self, depth: int) -> Any:
        """Parses what follows an opening bracket; one value without a comma is that value."""
        items, has_comma = [], False
        while not self._skip(")"):
            items.append(self._value(depth))
            has_comma = self._end_item() or has_comma
        return tuple(items) if has_comma or not items else items[0]

    def _end_item(self) -> bool:
        """Skips a comma and returns True, or returns False before a closing bracket."""
        if self._skip(","):
            return True
        if self._tokens[self._next] != ("mark", ")"):
            raise ValueError
        return False

    def _skip(self, mark: str) -> bool:
        matches = self._tokens[self._next] == ("mark", mark)
        self._next += matches
        return matches

    def _take(self, kind: str) -> str:
        actual, text = self._tokens[self._next]
        if actual != kind:
            raise ValueError
        self._next += 1
        return text


def _tokens(spec: str) -> Iterator[tuple[str, str]]:
    """Yields the kind and the text of each token."""
    position = 0
    while position < len(spec):
        match = _TOKEN.match(spec, position)
        if match is None or match.lastgroup is None:
            raise ValueError
        yield match.lastgroup, match[match.lastgroup]
        position = match.end()
