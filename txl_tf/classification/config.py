"""Config of a classifier and its training, and its JSON form."""

import dataclasses
import json
from typing import Any

from txl_tf.configs import backbones, validation
from txl_tf.configs.run import TrainConfig
from txl_tf.configs.validation import LONGEST, check_between, check_choice
from txl_tf.data import tokenizers

KEEP = ("first", "last")
GLOBAL_TOKENS = ("none", "first")
TOKENIZERS = tuple(name for name, t in tokenizers.TOKENIZERS.items() if t.fits_classifiers)
# Fields of TrainConfig that classifiers do not use.
_UNUSED = (
    "objective",
    "scored_fraction",
    "accumulate_steps",
    "rematerialize",
    "steps_per_loop",
    "checkpoint_every",
    "keep_checkpoints",
    "eval_batches",
    "sample_length",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Tokenization, truncation and pooling of texts.

    Attributes:
      tokenizer: kind of tokenizer: one of `TOKENIZERS`, whose vocabulary is that of the training
        texts, or that of a pre-trained backbone.
      max_symbols: maximum size of a vocabulary of characters or words; None is no limit.
      max_tokens: number of tokens that longer texts are truncated to.
      keep: tokens of a truncated text that are read, the "first" or the "last".
      pooling: "mean" or "max" over the tokens, or the state of the "first" or the "last" one.
      global_tokens: "first" makes the first token global, for attention that supports it; "none"
        makes none.
    """

    tokenizer: str = "byte"
    max_symbols: int | None = None
    max_tokens: int = 4096
    keep: str = "first"
    pooling: str = "mean"
    global_tokens: str = "none"

    def __post_init__(self) -> None:
        validation.check_types(self)
        check_choice(self, "tokenizer", tuple(tokenizers.TOKENIZERS))
        check_between(self, 1, LONGEST, "max_symbols", "max_tokens")
        check_choice(self, "keep", KEEP)
        check_choice(self, "global_tokens", GLOBAL_TOKENS)
        if tokenizers.kind(self.tokenizer).vocabulary_file is None and self.max_symbols is not None:
            raise ValueError(
                f"max_symbols must be none for tokenizer {self.tokenizer}, got {self.max_symbols}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """Config of a classifier and its training, written as `config.json` beside its weights.

    Attributes:
      model: config of the backbone.
      text: tokenization and pooling.
      train: training; `segment_len` is the number of tokens a causal backbone reads at once.
      labels: those of the training texts, by index.
    """

    model: backbones.Backbone
    text: TextConfig = dataclasses.field(default_factory=TextConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        backbones.check_attention(self.model)
        backbones.check_pooling(self.text.pooling, self.model.is_causal)
        if self.model.is_causal and self.text.global_tokens != "none":
            raise ValueError(
                f"global_tokens must be none for a causal backbone, got {self.text.global_tokens!r}"
            )
        if self.text.global_tokens != "none":
            self.model.check_global_tokens()
        limit = self.model.token_limit
        if limit is not None and self.text.max_tokens > limit:
            raise ValueError(
                f"max_tokens must be at most {limit}, the longest text that the model reads, "
                f"got {self.text.max_tokens}"
            )
        usual = TrainConfig()
        for name in _UNUSED:
            value = getattr(self.train, name)
            if value != getattr(usual, name):
                raise ValueError(f"{name} must be left out for a classifier, got {value!r}")
        if self.train.precision == "float16":
            raise ValueError("precision must be float32 or bfloat16 for a classifier, got float16")

    @property
    def segment_len(self) -> int | None:
        """Number of tokens that the backbone reads at once; None is the whole text."""
        return self.train.segment_len if self.model.is_causal else None

    def to_json(self) -> str:
        """Returns indented JSON with every field, and the name of the backbone."""
        tree = {"backbone": backbones.name_of(self.model)} | dataclasses.asdict(self)
        return json.dumps(tree, indent=2) + "\n"

    @classmethod
    def from_json(cls, content: str) -> "ClassifierConfig":
        """Parses the text of `to_json`.

        Raises:
          ValueError: the text is not a JSON object of this form, or a value breaks a rule.
        """
        tree = validation.parse_json(content, "config")
        name = "config of a classifier"
        names = [*validation.types_of(cls), "backbone"]
        validation.check_names(name, tree, dict.fromkeys(names))
        if missing := [name for name in names if name not in tree]:
            raise ValueError(f"{name} must have {missing[0]}, got none")
        backbone, model = tree.pop("backbone"), tree.pop("model")
        if not isinstance(backbone, str) or backbone not in backbones.BACKBONES:
            choices = ", ".join(backbones.BACKBONES)
            raise ValueError(f"backbone must be one of {choices}, got {validation.shown(backbone)}")
        config = validation.from_dict(backbones.BACKBONES[backbone], model, "model")
        return validation.from_dict(cls, tree, name, model=config)


def start(backbone: str) -> ClassifierConfig:
    """Returns a small config that trains in minutes on a CPU, for a name in `BACKBONES`."""
    sizes = dict(vocab_size=256, num_layers=2, d_model=64, num_heads=4, head_dim=16, dropout=0.1)
    text, stack = TextConfig(), dict(d_inner=256, attention=("local(window=32)",))
    own: dict[str, dict[str, Any]] = {
        "encoder": stack,
        "causal": stack | dict(mem_len=32),
        "xlnet": dict(d_inner=256, mem_len=0),
        "star": dict(num_positions=text.max_tokens),
    }
    return ClassifierConfig(
        model=backbones.BACKBONES[backbone](**sizes, **own[backbone]),
        text=text,
        train=TrainConfig(
            batch_size=16,
            segment_len=512,
            train_steps=1000,
            learning_rate=2e-3,
            warmup_steps=50,
            log_every=20,
            eval_every=100,
        ),
    )


def start_from(model: backbones.Backbone, tokenizer: str) -> ClassifierConfig:
    """Returns the config to fine-tune a pre-trained model with this kind of tokenizer."""
    base = start(backbones.name_of(model))
    text = dataclasses.replace(base.text, tokenizer=tokenizer)
    return dataclasses.replace(base, model=model, text=text)
