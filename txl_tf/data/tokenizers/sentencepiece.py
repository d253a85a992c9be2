"""Subword tokenizer of the sentencepiece package, trained to be lossless.

The package is loaded on first use: other tokenizers do not need it.
"""

import dataclasses
import functools
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from txl_tf import extras
from txl_tf.configs.validation import shown
from txl_tf.data import files, text
from txl_tf.data.tokenizers import tokenizer

if TYPE_CHECKING:
    import sentencepiece

MODEL_FILE = "sentencepiece.model"
SAMPLE_BYTES = 1 << 24  # of text used for training
_SENTENCE_CHARACTERS = 4096
_SPACE = "\u2581"  # sentencepiece's space
_PROBE = " a  b\tc\n\n caf\u00e9 \ufb01 \u3000 \U0001f600 "
_TRAINER: dict[str, Any] = dict(
    model_type="bpe",
    byte_fallback=True,
    normalization_rule_name="identity",
    add_dummy_prefix=False,
    remove_extra_whitespaces=False,
    user_defined_symbols=["\n"],
    character_coverage=1.0,
    unk_surface="<unk>",  # as in other tokenizers; the library's default is " \u2047 "
    max_sentence_length=8 * _SENTENCE_CHARACTERS,
    bos_id=-1,
    eos_id=-1,
    pad_id=-1,
    num_threads=1,
    minloglevel=3,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentencePieceTokenizer(tokenizer.TextTokenizer):
    """Subwords learnt by byte-pair encoding; rare characters fall back to their bytes.

    Lossless for all text: no normalisation, white space kept, line ends are symbols.

    Attributes:
      model: the serialized model.
    """

    kind: ClassVar[str] = "sentencepiece"
    vocabulary_field: ClassVar[str | None] = "model"
    vocabulary_file: ClassVar[str | None] = MODEL_FILE
    fits_classifiers: ClassVar[bool] = False

    model: bytes

    def __post_init__(self) -> None:
        try:
            pieces = list(range(self.vocab_size))  # all of them: text may yet come to any
            self._processor.id_to_piece(pieces)
            self._processor.decode([[piece] for piece in pieces])
            back = self.decode(self.encode(_PROBE))
        except UnicodeDecodeError as error:
            got = f"{shown(error.object)} in it"
            raise ValueError(f"model must be one of sentencepiece, in UTF-8, got {got}") from error
        except RuntimeError as error:
            raise ValueError(f"model must be a sentencepiece model, got {error}") from error
        if back != _PROBE:
            raise ValueError(
                "model must be lossless (identity normalisation, byte fallback, white space kept), "
                f"got {back!r} for {_PROBE!r}"
            )

    @classmethod
    def start(cls, *, vocab_size: int | None, min_count: int, **options: Any) -> "SamplingLearner":
        del options  # it has none
        if vocab_size is None:
            raise ValueError("vocab_size must be given for tokenizer sentencepiece, got none")
        if min_count > 0:
            raise ValueError(
                f"min_count must be left out for tokenizer sentencepiece, got {min_count}"
            )
        return SamplingLearner(vocab_size)

    @classmethod
    def from_list(cls, path: str, *, skip_repeats: bool, **options: Any) -> Self:
        """Returns a tokenizer with a model trained elsewhere."""
        del skip_repeats, options
        return cls(model=files.read_bytes(path))

    @functools.cached_property
    def _processor(self) -> "sentencepiece.SentencePieceProcessor":
        with extras.required("sentencepiece"):
            import sentencepiece  # see above

        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model}

    @property
    def vocab_size(self) -> int:
        return self._processor.get_piece_size()

    @property
    def unknown_id(self) -> int | None:
        """The library's unknown piece; never an encoding, as rare characters fall back to bytes."""
        unknown_id = self._processor.unk_id()
        return unknown_id if unknown_id >= 0 else None

    def _encoding(self, content: str, *, starts_line: bool, complete: bool) -> tokenizer.Encoding:
        """Encodes line by line: faster, with the same result, as no piece crosses a line end."""
        del starts_line, complete
        lines = content.split("\n")
        encoded = self._processor.encode(
            [part for line in lines for part in line.split(_SPACE)], num_threads=1
        )
        ids = np.array(list(self._joined(lines, iter(encoded))), np.int32)
        return tokenizer.Encoding(ids, text.utf8_size(content), len(content), 0)

    def _joined(self, lines: list[str], encoded: Iterator[list[int]]) -> Iterator[int]:
        """Yields the ids of lines whose parts between U+2581 are encoded.

        The library would read that character as a space; it is encoded as its bytes instead.
        """
        line_end = self._processor.encode("\n")
        for i, line in enumerate(lines):
            yield from line_end if i else ()
            yield from next(encoded)
            for _ in range(line.count(_SPACE)):
                yield from self._space_bytes
                yield from next(encoded)

    @functools.cached_property
    def _space_bytes(self) -> list[int]:
        pieces = [f"<0x{value:02X}>" for value in _SPACE.encode("utf-8")]
        return [self._processor.piece_to_id(piece) for piece in pieces]

    def decode(self, ids: Iterable[int]) -> str:
        return self._processor.decode(self.checked(ids))

    def symbol(self, token_id: int) -> str:
        """Returns the piece, with its space as a space; a byte as in "<0xE9>"."""
        return self._processor.id_to_piece(self.checked([token_id])[0]).replace(_SPACE, " ")

    @classmethod
    def read_vocabulary(cls, directory: str) -> dict[str, Any]:
        return {"model": files.read_bytes(f"{directory}/{MODEL_FILE}")}

    def _vocabulary_files(self) -> Mapping[str, bytes]:
        return {MODEL_FILE: self.model}


class SamplingLearner(tokenizer.Learner):
    """Trains on every n-th piece of text, n the least power of two within the sample size."""

    def __init__(self, vocab_size: int, sample_bytes: int = SAMPLE_BYTES):
        self.vocab_size = vocab_size
        self.sample_bytes = sample_bytes
        self._sample: list[str] = []
        self._stride = 1
        self._seen = 0

    def observe(self, piece: text.Piece, invalid_utf8: str = "error") -> str:
        return text.decode(piece, invalid_utf8)

    def add(self, observation: str) -> None:
        if self._seen % self._stride == 0:
            self._sample.append(observation)
        self._seen += 1
        while len(self._sample) > 1 and sum(map(len, self._sample)) > self.sample_bytes:
            self._sample = self._sample[::2]
            self._stride *= 2

    def finish(self) -> SentencePieceTokenizer:
        with extras.required("sentencepiece"):
            import sentencepiece  # see above

        model = io.BytesIO()
        # Text may have no spaces, like Chinese, but a model without them would decode U+2581.
        has_space = any(" " in part or _SPACE in part for part in self._sample)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=self._sentences(),
                model_writer=model,
                vocab_size=self.vocab_size,
                required_chars="" if has_space else _SPACE,
                **_TRAINER,
            )
        except RuntimeError as error:
            reason = str(error).rpartition("] ")[2].split("Increase")[0].strip()
            raise ValueError(
                f"vocab_size must suit the text, got {self.vocab_size}: {reason}"
            ) from error
        return SentencePieceTokenizer(model=model.getvalue())

    def _sentences(self) -> Iterator[str]:
        """Yields lines, cut where too long for the trainer, which would skip them."""
        for part in self._sample:
            for line in filter(None, part.split("\n")):
                for start in range(0, len(line), _SENTENCE_CHARACTERS):
                    yield line[start : start + _SENTENCE_CHARACTERS]
