"""Flags that change a Config: --preset, --set, and shorthands such as --batch_size.

A program defines its flags at import and resolves them in `main`:

    config_flags.define_preset()
    config_flags.define_shorthands({"batch_size": "train.batch_size"})

    def main(argv):
        config = config_flags.resolve(presets.preset(flags.FLAGS.preset))
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from absl import app, flags

from txl_tf.configs import presets
from txl_tf.configs import run as config_lib

flags.disclaim_key_flags()  # the flags belong to the program, whose --help shows them

_shorthands: dict[str, str] = {}  # flag -> config field
_Sections = TypeVar("_Sections")  # Config, or another dataclass of sections


def define_preset(default: str | None = "tiny") -> flags.FlagHolder:
    """Defines --preset, the Config to start from."""
    return flags.DEFINE_enum("preset", default, presets.names(), "Config to start from.")


def define_shorthands(
    fields: Mapping[str, str],
    config: type = config_lib.Config,
    helps: Mapping[str, str] | None = None,
) -> None:
    """Defines --set, and for each flag name a shorthand of a field, such as "train.batch_size".

    Args:
      fields: flag -> field.
      config: the dataclass whose sections have the fields.
      helps: flag -> help text, where it differs from the docstring of the section.
    """
    help_text = "Change of a config field, as section.field=value"
    flags.DEFINE_multi_string("set", [], help_text)
    for name, path in fields.items():
        section, _, field = path.partition(".")
        kind: Any = {f.name: f.type for f in dataclasses.fields(config)}[section]
        text = (helps or {}).get(name) or _describe(kind, field)
        help_text = f"{text} The same as --set={path}=..."
        if _kind(kind, field) in (bool, bool | None):
            flags.DEFINE_bool(name, None, help_text)
        else:
            flags.DEFINE_string(name, None, help_text)
    _shorthands.update(fields)


def resolve(base: _Sections, measured: Mapping[str, object] | None = None) -> _Sections:
    """Returns `base` with the values measured from data, and over those with all flags, applied.

    Raises:
      app.UsageError: a field is unknown or set twice, or a value does not fit.
    """
    by_flag = _shorthand_values()
    given = by_flag.keys() | _set_paths().keys()
    values = {path: value for path, value in (measured or {}).items() if path not in given}
    assignments = [f"{path}={value}" for path, value in (values | by_flag).items()]
    try:
        return config_lib.override_all(base, [*assignments, *flags.FLAGS.set])
    except ValueError as error:
        raise app.UsageError(_with_flag_name(str(error))) from error


def refuse(reason: str, *names: str) -> None:
    """Refuses flags without effect, shorthands also as --set.

    Raises:
      app.UsageError: one was given.
    """
    by_set = _set_paths()
    for name in names:
        if flags.FLAGS[name].present:
            raise app.UsageError(f"--{name} must be left out: {reason}")
        if (text := by_set.get(_shorthands.get(name, ""))) is not None:
            raise app.UsageError(f"--set={text} must be left out: {reason}")


def _shorthand_values() -> dict[str, str]:
    """Returns the fields given by shorthand flags; refuses those that --set gives too."""
    by_set = _set_paths()
    values = {}
    for name, path in _shorthands.items():
        if not flags.FLAGS[name].present:
            continue
        values[path] = str(flags.FLAGS[name].value)
        if path in by_set:
            raise app.UsageError(
                f"{path} is given twice, by --{name}={values[path]} and by --set={by_set[path]}"
            )
    return values


def _set_paths() -> dict[str, str]:
    """Returns each field of a --set with the text of that --set."""
    return {text.partition("=")[0].strip(): text for text in flags.FLAGS.set}


def _with_flag_name(message: str) -> str:
    """Prefixes a message about a field with the flag that set it."""
    for name, path in _shorthands.items():
        if flags.FLAGS[name].present and re.match(rf"({re.escape(path)}|{name}) must ", message):
            return f"flag --{name}={flags.FLAGS[name].value}: {message}"
    return message


def _kind(section: Any, name: str) -> object:
    return {field.name: field.type for field in dataclasses.fields(section)}[name]


def _describe(section: Any, name: str) -> str:
    """Returns the documentation of a field in its section's docstring, as a sentence."""
    attributes = (section.__doc__ or "").partition("Attributes:\n")[2]
    names = r"^      (?:\w+, )*{}(?:, \w+)*: (.*(?:\n        .*)*)"
    found = re.search(names.format(name), attributes, re.MULTILINE)
    text = " ".join(found[1].split()) if found else name
    text = re.sub(r"\bNone\b", "none", text)  # as a flag spells it
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
