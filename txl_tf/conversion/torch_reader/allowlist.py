"""Allowlist of pickles: names, and the values they produce, plain values and inert records only.

A name in a pickle never becomes its class or function. It stays a `Name`; "calling" one looks its
path up in `CALLS`, or makes a `Record` if `RECORDS` or `RECORD_MODULES` lists it.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from txl_tf.conversion.torch_reader import storages
from txl_tf.conversion.torch_reader.errors import UnsafeFileError, shown


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Name:
    """A class or function named in a pickle, by path only."""

    path: str


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Record:
    """An object of a pickle, as data.

    Attributes:
      path: of its class, such as "vocabulary.Vocab".
      args: of its constructor.
      state: to be set in it, usually its `__dict__`.
    """

    path: str
    args: tuple[Any, ...] = ()
    state: Any = None

    @property
    def fields(self) -> dict[str, Any]:
        """The attributes; empty if the state is not a `__dict__`."""
        return self.state if isinstance(self.state, dict) else {}


RECORDS = frozenset(
    {
        "__main__.Corpus",
        "__main__.Vocab",
        "argparse.Namespace",
        "data_utils.Corpus",
        "numpy.dtype",
        "re._compile",
        "tokenizers.AddedToken",
        "torch.nn.parameter.Parameter",
        "torch.nn.parameter.ParameterList",
        "vocabulary.OpenAIVocab",
        "vocabulary.Vocab",
    }
)
RECORD_MODULES = (  # with all modules below them
    "mem_transformer",
    "proj_adaptive_softmax",
    "pytorch_pretrained_bert",
    "pytorch_transformers",
    "sacremoses",
    "torch.nn.modules",
    "torch.nn.parallel",
    "transformers",
    "utils",
)
_WORDS = ("bool", "dict", "float", "int", "list", "long", "object", "set", "str", "unicode")
_BUILTINS = {f"{m}.{n}" for m in ("builtins", "__builtin__") for n in _WORDS}
_DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8")
NAMES = _BUILTINS | {"numpy.ndarray"} | {f"torch.{dtype}" for dtype in (*_DTYPES, "bool")}


def is_record(path: str) -> bool:
    """Whether objects of this class become `Record`s."""
    module = path.rpartition(".")[0]
    return path in RECORDS or any(f"{module}.".startswith(f"{m}.") for m in RECORD_MODULES)


def find(module: str, name: str) -> Name:
    """Returns the name if it is allowed in a pickle."""
    path = f"{module}.{name}"
    known = path in NAMES or path in CALLS or path in storages.KINDS or is_record(path)
    if not known or "." in name:  # a dot would access attributes of the named object
        raise UnsafeFileError(f"must hold tensors and plain data only, got {shown(path)}")
    return Name(path)


def call(function: Any, args: Any) -> Any:
    """Returns the result of calling an allowed name."""
    if not isinstance(function, Name) or not isinstance(args, tuple):
        raise UnsafeFileError(
            f"must only call allowed names, got a call of {type(function).__name__}"
        )
    if function.path in CALLS:
        return CALLS[function.path](*args)
    if not is_record(function.path):
        raise UnsafeFileError(f"must hold {function.path} as a name only, got a call of it")
    return Record(function.path, args)


def key(value: Any) -> Any:
    """Returns a dict key or set item; other types could nest endlessly and hash in C."""
    if type(value) not in (str, int, float, bool, bytes, type(None)):
        raise UnsafeFileError(f"must have text or numbers as keys, got {type(value).__name__}")
    return value


def pairs(items: list[Any]) -> dict[Any, Any]:
    """Returns the dict of [key, value, key, value, ...]."""
    return dict(zip(map(key, items[0::2]), items[1::2], strict=True))


def array(record: Record) -> np.ndarray:
    """Returns the array of a "numpy.ndarray" record.

    Raises:
      ValueError: the data are not numbers, or do not fit the shape.
    """
    try:
        _, shape, dtype, by_column, data = record.state
        flat = np.frombuffer(_raw(data), _numpy_dtype(dtype))
        return flat.reshape(shape, order="F" if by_column else "C")
    except UnsafeFileError:
        raise
    except Exception as error:  # of any kind: the parts may be anything
        raise UnsafeFileError(
            f"must hold whole arrays of numbers, got damage: {shown(str(error))}"
        ) from error


def _raw(data: Any) -> bytes:
    """Returns bytes; Python 2 strings in UTF-8 were decoded and are encoded again."""
    return data.encode("utf-8") if isinstance(data, str) else data


def _numpy_dtype(record: Record) -> np.dtype:
    code = record.args[0]
    order = record.state[1] if record.state else "="
    if not re.fullmatch(r"[biuf][1248]", code) or order not in ("<", ">", "|", "="):
        raise UnsafeFileError(f"must hold arrays of numbers, got dtype {shown(str(code))}")
    return np.dtype(order.replace("|", "=") + code)


def _mapping(*args: Any) -> dict[Any, Any]:
    """Returns an OrderedDict or Counter as a dict, from nothing, a dict, or pairs."""
    if not args:
        return {}
    (items,) = args
    return dict(items) if isinstance(items, dict) else {key(k): value for k, value in items}


def _default_dict(*args: Any) -> dict[Any, Any]:
    return _mapping(*args[1:])


def _set(items: Any = ()) -> set[Any]:
    return set(map(key, items))


def _encode(text: str, encoding: str) -> bytes:
    """Decodes bytes as written by Python 3 in old protocols."""
    if encoding not in ("latin1", "latin-1"):
        raise UnsafeFileError(f"must encode bytes in latin1, got {shown(str(encoding))}")
    return text.encode("latin-1")


def _reconstructor(name: Any, base: Any, state: Any) -> Any:
    """Makes an object as protocols 0 and 1 do."""
    if not isinstance(base, Name) or not base.path.endswith(".object") or state is not None:
        raise UnsafeFileError("must only hold objects derived from object, got another base")
    return call(name, ())


def _scalar(dtype: Record, data: Any) -> Any:
    return np.frombuffer(_raw(data), _numpy_dtype(dtype))[0].item()


def _ndarray(*_: Any) -> Record:
    return Record("numpy.ndarray")


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> Any:
    if not isinstance(storage, storages.Storage):
        raise UnsafeFileError(f"must make tensors of storages, got {type(storage).__name__}")
    return storage.view(offset, size, stride)


def _first(value: Any, *_: Any) -> Any:
    return value


CALLS: dict[str, Callable[..., Any]] = {
    "__builtin__.set": _set,
    "_codecs.encode": _encode,
    "builtins.set": _set,
    "collections.Counter": _mapping,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _default_dict,
    "copy_reg._reconstructor": _reconstructor,
    "copyreg._reconstructor": _reconstructor,
    "numpy._core.multiarray._reconstruct": _ndarray,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy.core.multiarray._reconstruct": _ndarray,
    "numpy.core.multiarray.scalar": _scalar,
    "torch.Size": _first,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch.device": _first,
}
