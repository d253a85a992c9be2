"""Configuration of a run: frozen dataclasses, checked on construction, set by JSON and flags."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from absl import logging

from txl_tf.configs import objectives, validation
from txl_tf.configs.model import TransformerXLConfig, XLNetConfig
from txl_tf.configs.validation import (
    LARGEST_SEED,
    LONGEST,
    check,
    check_between,
    check_choice,
    check_rate,
)

if TYPE_CHECKING:
    Model = Any  # its class is that of the objective
else:
    Model = TransformerXLConfig | XLNetConfig

POLICIES = {  # Keras' dtype policy of each precision
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Batching of prepared text.

    Attributes:
      layout: "contiguous" (every row reads on from its last segment) or "reference" (the batching
        of the original code, for published numbers).
      reset_memory_at_documents: whether attention and memory are limited to the current document.
    """

    layout: str = "contiguous"
    reset_memory_at_documents: bool = False

    def __post_init__(self) -> None:
        validation.check_types(self)
        check_choice(self, "layout", ("contiguous", "reference"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of training. Lengths are in tokens, periods in optimizer steps.

    Attributes:
      objective: spec of the objective: "causal", a Transformer-XL predicts the next token;
        "auxiliary", so do all of its layers; or "permutation", an XLNet predicts spans in a random
        order.
      seed: seed of the initial weights, of dropout and of permutations.
      batch_size: rows of one optimizer step over all replicas.
      segment_len: tokens of a row in one step.
      scored_fraction: fraction of each segment that the loss is of, from its end; 0.5 is the "half"
        loss of the paper's ablation. Logged tokens are the scored ones.
      train_steps: optimizer steps of the whole run, including warm-up.
      learning_rate: peak learning rate, at most 1000.
      warmup_steps: steps of linear warm-up, from 0 at the first.
      min_lr_ratio: floor of the cosine schedule as a fraction of the peak.
      adam_beta1, adam_beta2, adam_epsilon: parameters of Adam; epsilon is added before bias
        correction ("epsilon hat" of Adam).
      clip_norm: global norm to which gradients are clipped; None, or infinity, is off.
      accumulate_steps: number of parts a batch's rows are split into; gradients are summed.
      precision: "float32", "bfloat16" or "float16", with dynamic loss scaling (weights, norms,
        scores and loss stay float32).
      max_skipped_steps: maximum number of consecutive steps with NaN or infinite losses, gradients
        or update; these change nothing, and one more stops the run.
      rematerialize: whether activations of a layer are recomputed for the gradient instead of being
        kept: less memory, more time.
      jit: whether to compile the step with XLA; None compiles on a GPU or TPU only. On a CPU, XLA
        is mostly slower (docs/performance.md).
      steps_per_loop: steps of one compiled call, cut at log, validation, checkpoint and the end of
        the run; for devices that wait for Python between steps.
      log_every, checkpoint_every: steps between log lines, and between checkpoints.
      eval_every: steps between validations; None is never.
      keep_checkpoints: number of newest checkpoints to keep, besides the best.
      eval_batches: maximum number of batches of a periodic validation; None is all.
      stop_after_evals: consecutive validations without improvement after which the run stops; None
        is never.
      sample_length: tokens of a sample generated at each validation, for TensorBoard and the log; 0
        is none. It costs a compilation, and mem_len in evaluation must be above 0.
    """

    objective: str = "causal"
    seed: int = 1
    batch_size: int = 16
    segment_len: int = 128
    scored_fraction: float = 1.0
    train_steps: int = 10_000
    learning_rate: float = 2.5e-4
    warmup_steps: int = 0
    min_lr_ratio: float = 0.004
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    clip_norm: float | None = 0.25
    accumulate_steps: int = 1
    precision: str = "float32"
    max_skipped_steps: int = 20
    rematerialize: bool = False
    jit: bool | None = None
    steps_per_loop: int = 1
    log_every: int = 100
    eval_every: int | None = 1000
    checkpoint_every: int = 1000
    keep_checkpoints: int = 3
    eval_batches: int | None = None
    stop_after_evals: int | None = None
    sample_length: int = 0

    def __post_init__(self) -> None:
        if self.clip_norm == math.inf:  # PyTorch's value for "off"
            object.__setattr__(self, "clip_norm", None)
        validation.check_types(self)
        try:
            _ = self.objective_spec
        except ValueError as error:
            raise ValueError(f"objective {validation.shown(self.objective)}: {error}") from error
        check_between(self, 0, LARGEST_SEED, "seed")
        check_between(self, 0, LONGEST, "warmup_steps", "max_skipped_steps", "sample_length")
        check_between(self, 0, 1e3, "learning_rate")
        check_between(self, 0, 1, "min_lr_ratio")
        check_between(self, 1e-6, 1, "scored_fraction")
        check_rate(self, "adam_beta1", "adam_beta2")
        check_between(self, 1e-30, 1e3, "adam_epsilon")
        is_clip = self.clip_norm is None or 1e-30 <= self.clip_norm <= 1e30
        check(is_clip, "clip_norm", "be none, or between 1e-30 and 1e+30", self.clip_norm)
        check_between(self, 1, LONGEST, "batch_size", "segment_len", "train_steps")
        check_between(self, 1, LONGEST, "accumulate_steps", "log_every", "eval_every")
        check_between(self, 1, LONGEST, "checkpoint_every", "keep_checkpoints", "eval_batches")
        check_between(self, 1, LONGEST, "stop_after_evals", "steps_per_loop")
        check_choice(self, "precision", tuple(POLICIES))
        if self.stop_after_evals is not None and self.eval_every is None:
            raise ValueError(
                f"stop_after_evals must be none without eval_every, got {self.stop_after_evals}"
            )
        if self.batch_size % self.accumulate_steps:
            raise ValueError(
                f"batch_size must be a multiple of accumulate_steps {self.accumulate_steps}, "
                f"got {self.batch_size}"
            )
        if self.warmup_steps >= self.train_steps and self.warmup_steps:
            raise ValueError(
                f"warmup_steps must be below train_steps {self.train_steps}, "
                f"got {self.warmup_steps}"
            )

    @property
    def objective_spec(self) -> objectives.Objective:
        """Parsed `objective`."""
        return objectives.parse(self.objective)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Settings of evaluation, in training and by `evaluate`.

    Attributes:
      batch_size: rows of a batch.
      segment_len: tokens of a row in one call; None takes that of training.
      mem_len, clamp_len, attention_span: replaces the setting of the model; None keeps it.
      layout: "contiguous" scores every target once; "reference" batches as the originals do.
    """

    batch_size: int = 10
    segment_len: int | None = None
    mem_len: int | None = None
    clamp_len: int | None = None
    attention_span: int | None = None
    layout: str = "contiguous"

    def __post_init__(self) -> None:
        validation.check_types(self)
        check_between(self, 1, LONGEST, "batch_size", "segment_len", "clamp_len", "attention_span")
        check_between(self, 0, LONGEST, "mem_len")
        check_choice(self, "layout", ("contiguous", "reference"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Config of a whole run, written as `config.json` beside every checkpoint and export.

    >>> config = txl_tf.override(txl_tf.preset("tiny"), "model.num_layers=2")
    >>> config.model.num_layers, config.train.batch_size
    (2, 16)
    >>> txl_tf.Config.from_json(config.to_json()) == config
    True
    """

    model: Model
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)

    def __post_init__(self) -> None:
        objective = self.train.objective_spec
        if not isinstance(self.model, objective.model):
            name, actual = objective.model.__name__, type(self.model).__name__
            raise ValueError(
                f"model must be a {name} for objective {self.train.objective}, got a {actual}; "
                "a preset of the objective has one"
            )
        objective.check_run(self)

    def to_json(self) -> str:
        """Returns indented JSON with every field."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """Parses the text of `to_json`.

        Raises:
          ValueError: the text is not a JSON object of this form, or a value breaks a rule.
        """
        tree = validation.parse_json(text, "config")
        validation.check_names("config", tree, validation.types_of(cls))
        parts = {}
        train = validation.from_dict(TrainConfig, tree.get("train", {}), "config.train")
        if train.objective_spec.model is XLNetConfig and "model" in tree:
            parts["model"] = validation.from_dict(XLNetConfig, tree.pop("model"), "config.model")
        return validation.from_dict(cls, tree, "config", **parts)


_Sections = TypeVar("_Sections")  # Config, or another dataclass whose fields are such


def override(config: _Sections, assignment: str) -> _Sections:
    """Returns `config` with one field changed.

    >>> txl_tf.override(txl_tf.preset("tiny"), "train.learning_rate=1e-3").train.learning_rate
    0.001

    The value is parsed by the field's type; "none" is None, tuples are comma-separated. Several
    assignments that are only valid together need `override_all`. If train_steps becomes too small
    for the warm-up and that is not set, the warm-up keeps its share of the steps.

    Raises:
      ValueError: the name is unknown, or the value is invalid; names both.
    """
    return override_all(config, [assignment])


def override_all(config: _Sections, assignments: list[str]) -> _Sections:
    """Applies several assignments, as `override`, and checks after the last."""
    whole: Any = config
    values = {name: getattr(whole, name) for name in validation.types_of(whole)}
    sections = {name: type(v) for name, v in values.items() if dataclasses.is_dataclass(v)}
    changes: dict[str, dict[str, Any]] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        section, _, field = path.strip().partition(".")
        if not equals or not field:
            raise ValueError(f"a setting must read section.field=value, got {assignment!r}")
        if section not in sections:
            raise ValueError(f"unknown section {section!r}; choose from {', '.join(sections)}")
        kinds = validation.types_of(sections[section])
        if field not in kinds:
            known = ", ".join(sorted(kinds))
            raise ValueError(f"unknown setting {section}.{field}; choose from {known}")
        if field in changes.get(section, {}):
            raise ValueError(f"settings must be distinct, got {section}.{field} twice")
        changes.setdefault(section, {})[field] = validation.parse(
            f"{section}.{field}", kinds[field], text
        )
    if isinstance(values.get("train"), TrainConfig):
        changes["train"] = _with_warmup(values["train"], changes.get("train", {}))
    parts = {s: dataclasses.replace(values[s], **c) for s, c in changes.items()}
    return dataclasses.replace(whole, **parts)


def _with_warmup(base: TrainConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `changes`, with a shorter warm-up if that of `base` does not fit the run."""
    steps = changes.get("train_steps", base.train_steps)
    if "warmup_steps" in changes or not 0 < steps <= base.warmup_steps:
        return dict(changes)
    warmup_steps = base.warmup_steps * steps // base.train_steps
    logging.info("train.warmup_steps reduced from %d to %d", base.warmup_steps, warmup_steps)
    return {**changes, "warmup_steps": warmup_steps}
