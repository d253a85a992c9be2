"""Import of other implementations' vocabularies into our tokenizers: same symbols, same ids.

All the originals' data sets are words between white space here, read from the same text as in the
originals (`getdata.sh`):

    wt103, ptb, wt2   words, "<eos>" after each line
    lm1b              words, "<S>" at both ends of each line
    enwik8            a word for each byte, its number: "32 101 10"; line ends are dropped
    text8             a word for each letter; a space of the text is the word "_"

For the last two, text has to be converted first. Symbols outside the vocabulary become "<unk>" if
it exists, as in Hugging Face's code; the originals stop.

The published vocabularies were counted by Python 2, whose white space is ASCII: they get
`white_space="ascii"`. So do files with Python 2 strings, with strings read as Latin-1 (Hugging
Face's), or with words that contain other white space. All others get "unicode".
"""

import pickletools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txl_tf.configs.validation import parse_json
from txl_tf.conversion.torch_reader import restricted_unpickler, seekable, torch_files
from txl_tf.conversion.torch_reader.allowlist import Record
from txl_tf.conversion.torch_reader.errors import shown
from txl_tf.data import files, text, tokenizers, vocabulary
from txl_tf.data.tokenizers import counted

_IN_FOLDER = ("cache.pkl", "cache.pt", "vocab.pkl", "vocab.bin", "vocab.json", "vocab.txt")
_CORPUS_INFO = "corpus-info.json"
_LONGEST = 1 << 20  # bytes of a string; longer ones hold the encoded corpus
_SPECIAL = {counted.END_OF_LINE, counted.BOUNDARY, *vocabulary.UNKNOWN}


def read(path: str, kind: str | None = None) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a vocabulary file of the originals.

    Args:
      path: `cache.pkl`, `cache.pt`, a checkpoint of NVIDIA's trainer, `vocab.pkl`, `vocab.bin`,
        `vocab.json`, or a list with a symbol at the start of each line; or the folder of one of
        them or of one of our tokenizers.
      kind: a name in `KINDS`; None infers it from the file.

    Raises:
      ValueError: the file is damaged or has no vocabulary, or a symbol is empty, repeated or
        impossible here; names the file and the symbol.
    """
    path = str(path).rstrip("/")
    if files.is_folder(path):
        if files.exists(f"{path}/{tokenizers.FILE_NAME}"):
            return tokenizers.load(path)
        path = _in_folder(path)
    folder, _, name = path.rpartition("/")
    ours = f"{folder or '.'}/{tokenizers.FILE_NAME}"
    if kind is None and name == counted.VOCABULARY_FILE and files.exists(ours):
        return tokenizers.load(folder or ".")
    kind = kind or _kind(path)
    fields = _fields(path, kind)
    return _tokenizer(fields, path, kind == "pickle" and _is_of_python_2(path))


def _in_folder(folder: str) -> str:
    for name in _IN_FOLDER:
        if files.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    raise ValueError(f"{folder} must hold one of {', '.join(_IN_FOLDER)}, got none")


def _kind(path: str) -> str:
    """Returns the kind of a file, by its name or else its first bytes."""
    if path.endswith(".json"):
        return "json"
    if path.endswith(".txt"):
        return "text"
    return "torch" if torch_files.is_torch(path) else "pickle"


def _is_of_python_2(path: str) -> bool:
    """Whether the first string of a pickle, an attribute's name, is from Python 2."""
    with seekable.opened(path) as (file, _):
        names = (opcode.name for opcode, *_ in pickletools.genops(file))
        first = next((n for n in names if "STRING" in n or "UNICODE" in n), "")
    return "STRING" in first


def _fields(path: str, kind: str) -> dict[str, Any]:
    """Returns the attributes of the original's `Vocab`, as far as the file has them."""
    if kind not in KINDS:
        raise ValueError(f"vocab_kind must be one of {', '.join(KINDS)}, got {kind!r}")
    held = KINDS[kind](path)
    dataset = None
    for _ in range(3):  # a checkpoint, a corpus, a vocabulary
        fields = held.fields if isinstance(held, Record) else held
        if not isinstance(fields, Mapping):
            break
        dataset = fields.get("dataset", dataset)
        if isinstance(fields.get("idx2sym"), list) or isinstance(fields.get("sym2idx"), dict):
            return {"dataset": dataset or _dataset_beside(path), **fields}
        if not isinstance(fields.get("vocab"), (dict, Record)):
            break
        held = fields["vocab"]
    if isinstance(held, dict) and held and all(type(i) is int for i in held.values()):
        return {"sym2idx": held}
    what = held.path if isinstance(held, Record) else type(held).__name__
    raise ValueError(
        f"{path} must hold a vocabulary (idx2sym, or ids by symbol), got {shown(what)}"
    )


def _dataset_beside(path: str) -> Any:
    """Returns the data set noted beside `cache.pkl` by the TensorFlow original."""
    beside = f"{path.rpartition('/')[0] or '.'}/{_CORPUS_INFO}"
    if not files.exists(beside):
        return None
    info = _read_json(beside)
    return info.get("dataset") if isinstance(info, dict) else None


def _tokenizer(fields: Mapping[str, Any], path: str, of_python_2: bool) -> tokenizers.Tokenizer:
    delimiter = fields.get("delimiter")
    if delimiter not in (None, ""):
        raise ValueError(
            f"{path} must have its symbols between white space, got delimiter {delimiter!r}"
        )
    stored = _symbols(fields, path)
    symbols = _decoded_again(stored)
    kind = tokenizers.WordTokenizer if delimiter is None else tokenizers.CharTokenizer
    options: dict[str, Any] = {
        "lower_case": fields.get("lower_case") is True,
        "unknown": "unk" if set(vocabulary.UNKNOWN) & set(symbols) else "error",
    }
    if delimiter is None:
        options["end_of_line"] = _end_of_line(fields, symbols)
        options["white_space"] = _white_space(symbols, of_python_2 or symbols != stored)
    else:
        options["drop_newlines"] = True
    specials = vocabulary.Vocabulary(_SPECIAL.intersection(symbols))
    _check(symbols, kind(vocabulary=specials, **options), path)
    return kind(vocabulary=vocabulary.Vocabulary(symbols), **options)


def _white_space(symbols: Sequence[str], of_python_2: bool) -> str:
    """Returns the white space of the original's word splitting, by file or else by words."""
    is_one = text.WORDS["unicode"]
    return "ascii" if of_python_2 or any(is_one(s) != [s] for s in symbols) else "unicode"


def _end_of_line(fields: Mapping[str, Any], symbols: Sequence[str]) -> str:
    """Returns the original's line marks; for a bare list, by the symbols it contains."""
    special = fields.get("special", (counted.END_OF_LINE,))
    if counted.END_OF_LINE in (special or ()) and counted.END_OF_LINE in symbols:
        return "eos"
    is_lm1b = fields.get("dataset") in (None, "lm1b")
    return "boundary" if is_lm1b and counted.BOUNDARY in symbols else "none"


def _symbols(fields: Mapping[str, Any], path: str) -> list[str]:
    """Returns the stored symbols by id."""
    symbols, ids = fields.get("idx2sym"), fields.get("sym2idx")
    if isinstance(ids, dict):
        ordered = sorted(ids, key=lambda s: ids[s] if type(ids[s]) is int else -1)
        wrong = next(((i, s) for i, s in enumerate(ordered) if ids[s] != i), None)
        if wrong and symbols is None:
            raise ValueError(
                f"{path} must number its symbols 0, 1, 2, ..., got none with {wrong[0]}"
            )
        symbols = ordered if symbols is None else symbols
    if not isinstance(symbols, list) or not symbols:
        raise ValueError(f"{path} must hold symbols by id, got none")
    for i, symbol in enumerate(symbols):
        if not isinstance(symbol, str):
            got = repr(symbol[:100]) if isinstance(symbol, bytes) else type(symbol).__name__
            raise ValueError(f"{path}: symbol {i} must be text in UTF-8, got {got}")
    if isinstance(ids, dict):
        _check_ids(symbols, ids, path)
    return symbols


def _check_ids(symbols: Sequence[str], ids: Mapping[Any, Any], path: str) -> None:
    """Raises if the two tables of a vocabulary differ."""
    for i, symbol in enumerate(symbols):
        other = ids.get(symbol)
        if type(other) is not int or other != i:
            got = other if type(other) is int and 0 <= other < len(symbols) else "none"
            raise ValueError(f"{path}: symbol {i} {_quoted(symbol)} must have this id, got {got}")
    if len(ids) != len(symbols):
        raise ValueError(f"{path} must hold {len(symbols)} ids, one per symbol, got {len(ids)}")


def _decoded_again(symbols: list[str]) -> list[str]:
    """Repairs symbols in UTF-8 that were read as Latin-1, as in Hugging Face's files.

    Recognised if all symbols can be decoded again, which "café" cannot.
    """
    try:
        return [s if s.isascii() else s.encode("latin-1").decode("utf-8") for s in symbols]
    except UnicodeError:
        return symbols


def _check(symbols: Sequence[str], draft: counted.CountedTokenizer, path: str) -> None:
    """Raises if a symbol is not possible here; names its id."""
    first: dict[str, int] = {}
    for i, symbol in enumerate(symbols):
        if not symbol:
            raise ValueError(f"{path}: symbol {i} must not be empty, got ''")
        if first.setdefault(symbol, i) != i:
            raise ValueError(
                f"{path}: symbol {i} must be new, got {_quoted(symbol)} of {first[symbol]} again"
            )
        try:
            symbol.encode("utf-8")
            if symbol not in _SPECIAL:
                draft.check_symbol(symbol)
        except ValueError as error:
            raise ValueError(f"{path}: symbol {i} {_quoted(symbol)}: {error}") from error


def _quoted(symbol: str) -> str:
    return ascii(symbol[:100]) if not symbol.isprintable() else repr(symbol[:100])


def _read_pickle(path: str) -> Any:
    return restricted_unpickler.load(path, longest=_LONGEST)


def _read_torch(path: str) -> Any:
    return torch_files.load(path, tensors=False)


def _read_json(path: str) -> Any:
    held = parse_json(files.read_text(path), path)
    return {"idx2sym": held} if isinstance(held, list) else held


def _read_text(path: str) -> dict[str, Any]:
    """Reads a list: the first field of each line is a symbol; the rest, a count, is ignored."""
    lines = files.read_text(path).removeprefix("\ufeff").split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    symbols: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        symbol = line.encode("utf-8").split(maxsplit=1)[:1]
        if not symbol:
            raise ValueError(f"{path}:{number} must hold a symbol, got a blank line")
        text = symbol[0].decode("utf-8")
        if symbols.setdefault(text, number) != number:
            raise ValueError(
                f"{path}:{number} must hold a new symbol, "
                f"got {_quoted(text)} of line {symbols[text]} again"
            )
    return {"idx2sym": list(symbols)}


KINDS: dict[str, Callable[[str], Any]] = {
    "pickle": _read_pickle,
    "torch": _read_torch,
    "json": _read_json,
    "text": _read_text,
}
