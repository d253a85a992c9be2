"""What a run is made of: frozen dataclasses, checked on construction; JSON and flags set them."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from absl import logging

from txl_tf.configs import validation
from txl_tf.configs.stack_config import MOST_STD, StackConfig
from txl_tf.configs.validation import (
    LARGEST_SEED,
    LONGEST,
    check,
    check_between,
    check_choice,
    check_rate,
)

POSITIONS = ("xl", "shaw", "absolute", "absolute_per_layer")
POLICIES = {  # Keras' name of what a precision computes in
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}
_WITH_SINUSOIDS = ("xl", "absolute")
_WITH_TABLES = ("shaw", "absolute_per_layer")
_WITHOUT_MEMORY = ("absolute", "absolute_per_layer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(StackConfig):
    """One architecture (arXiv 1901.02860), with the options of the published implementations.

    Attributes:
      vocab_size: number of token ids, V.
      num_layers: number of layers, L.
      d_model: width of the residual stream, D. Even where there are sinusoids: half are cosines.
      num_heads: attention heads, H.
      head_dim: width of a head, K; None becomes d_model // num_heads, 1 at least. H * K need not
        equal D.
      d_inner: width of the feed-forward net's hidden layer, F; None becomes 4 * d_model.
      mem_len: memory slots a layer, M. Zero means no memory.
      d_embed: width of the first embedding table; None means d_model.
      cutoffs: first ids of the tail clusters, rising; empty means a plain softmax.
      div_val: cluster i has embeddings of width d_embed // div_val**i; 1 means one table.
      untie_biases: whether each layer has its own u and v, not one pair for all.
      tie_embeddings: whether the output tables are the input tables.
      tie_projections: for each cluster, whether the output projection is the input one. The last
        value repeats.
      tie_output_projection: the same without cut-offs, where d_embed differs from d_model: True in
        the TensorFlow original, where PyTorch and Hugging Face read their `tie_projs`.
      project_same_dim: whether a cluster as wide as d_model is projected all the same
        (only where div_val > 1; a single table is projected when its width differs).
      pre_norm: whether LayerNorm stands before attention and feed-forward, not after the sums.
      dropout: rate at the paper's places (embeddings, positions, sub-layer outputs, final).
      attention_dropout: rate on attention weights.
      init_std: deviation of the normal initialiser of weights.
      proj_init_std: deviation of the normal initialiser of embedding and softmax projections.
      clamp_len: distances above this count as this; None is off.
      position: how positions enter: "xl", the paper's relative encodings; "shaw", learned ones;
        "absolute", sinusoids added to the embedding, and "absolute_per_layer", learned vectors
        added to the input of each layer, both without memory.
      num_positions: rows of learned tables, for "shaw" and "absolute_per_layer".
      attention: attention spec of each layer, for example ("local(window=128)", "dense"), repeated.
      feed_forward: feed-forward spec of each layer, repeated.
      layer_norm_epsilon: 1e-12 in the TensorFlow original, 1e-5 in PyTorch and Hugging Face.
      attention_span: most keys that a query sees, itself included; None is no limit. The
        originals' `same_length` is mem_len + 1 (TensorFlow) or mem_len (PyTorch).
      attend_to_initial_zeros: whether a fresh memory counts as full of zeros, which take attention
        mass, as in the TensorFlow and Hugging Face originals.

    Raises:
      ValueError: a field breaks a rule; the message names the field and the value.
    """

    mem_len: int = 512
    d_embed: int | None = None
    cutoffs: tuple[int, ...] = ()
    div_val: int = 1
    tie_embeddings: bool = True
    tie_projections: tuple[bool, ...] = (False,)
    tie_output_projection: bool = True
    project_same_dim: bool = True
    proj_init_std: float = 0.01
    num_positions: int | None = None
    attention_span: int | None = None
    attend_to_initial_zeros: bool = False

    def __post_init__(self) -> None:
        self.check_stack()
        check_between(self, 1, LONGEST, "d_embed", "div_val", "attention_span", "num_positions")
        check_between(self, 0, LONGEST, "mem_len")
        check_between(self, 0, MOST_STD, "proj_init_std")
        rising = all(a < b for a, b in zip((0, *self.cutoffs), self.cutoffs, strict=False))
        check(rising, "cutoffs", "rise from above 0", self.cutoffs)
        if self.cutoffs and self.cutoffs[-1] >= self.vocab_size:
            raise ValueError(
                f"cutoffs must lie below vocab_size {self.vocab_size}, got {self.cutoffs}"
            )
        if self.div_val > 1 and not self.cutoffs:
            raise ValueError(f"div_val must be 1 without cutoffs, got {self.div_val}")
        narrowest = self.embed_dim // self.div_val ** len(self.cutoffs)
        if narrowest < 1:
            raise ValueError(
                f"div_val must leave the last cluster a width of at least 1, got {self.div_val} "
                f"with d_embed {self.embed_dim} and {len(self.cutoffs)} cutoffs"
            )
        self._check_position()
        check(len(self.tie_projections) > 0, "tie_projections", "not be empty", ())
        if not self.tie_output_projection and (self.cutoffs or self.embed_dim == self.d_model):
            raise ValueError(
                "tie_output_projection must be true with cutoffs, where tie_projections says it of "
                "each cluster, and where d_embed is d_model, got False with cutoffs "
                f"{self.cutoffs}, d_embed {self.embed_dim} and d_model {self.d_model}"
            )
        self.check_specs()

    def _check_position(self) -> None:
        check_choice(self, "position", POSITIONS)
        if self.position in _WITH_SINUSOIDS:
            self.check_even()
        if self.position in _WITH_TABLES and self.num_positions is None:
            raise ValueError(f"num_positions must be given for position {self.position}, got none")
        if self.position not in _WITH_TABLES and self.num_positions is not None:
            raise ValueError(
                f"num_positions must be none for position {self.position}, which has no table, "
                f"got {self.num_positions}"
            )
        if self.position in _WITHOUT_MEMORY and self.mem_len:
            raise ValueError(
                f"mem_len must be 0 for position {self.position}: what is remembered would have "
                f"the places of an earlier segment, got {self.mem_len}"
            )

    @property
    def is_causal(self) -> bool:
        """Whether a token sees none behind it: always."""
        return True

    @property
    def embed_dim(self) -> int:
        """Width of the first embedding table: `d_embed`, else `d_model`."""
        return self.d_model if self.d_embed is None else self.d_embed


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How prepared text becomes training batches.

    Attributes:
      layout: "contiguous" (every row reads on from its last segment) or "reference" (the batching
        of the original code, for published numbers).
      reset_memory_at_documents: whether a document sees nothing of the one before it.
    """

    layout: str = "contiguous"
    reset_memory_at_documents: bool = False

    def __post_init__(self) -> None:
        validation.check_types(self)
        check_choice(self, "layout", ("contiguous", "reference"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. Lengths are in tokens, periods in optimizer steps.

    Attributes:
      seed: of the initial weights and of dropout.
      batch_size: rows of one optimizer step over all replicas.
      segment_len: tokens of a row in one step.
      train_steps: optimizer steps of the whole run, warm-up included.
      learning_rate: the peak, at most 1000.
      warmup_steps: linear from 0 at the first step.
      min_lr_ratio: floor of the cosine as a part of the peak.
      adam_beta1, adam_beta2, adam_epsilon: of Adam; epsilon is added to the uncorrected root.
      clip_norm: global norm to which gradients are clipped; None, or infinity, is off.
      accumulate_steps: parts into which a batch's rows are cut; gradients are summed over them.
      precision: "float32", "bfloat16" or "float16", with dynamic loss scaling (weights, norms,
        scores and loss stay float32).
      max_skipped_steps: steps in a row whose losses, gradients or update may be NaN or infinite;
        they change nothing, and one more stops the run.
      rematerialize: whether a layer's activations are computed again for the gradient, in place of
        being kept: less memory, more time.
      jit: whether the step is compiled by XLA; None is where there is a GPU or a TPU. On a CPU it
        mostly loses (docs/performance.md).
      steps_per_loop: steps of one call of the device, where log, validation, checkpoint and the
        run's end leave room for so many; for devices that wait for Python between steps.
      log_every, eval_every, checkpoint_every: periods; eval_every None is never.
      keep_checkpoints: how many of the newest checkpoints stay, besides the best.
      eval_batches: most batches of a periodic validation; None is all.
      stop_after_evals: validations in a row without a better one that end the run early; None is
        never.
      sample_length: tokens of a text that the model writes at each validation, for TensorBoard and
        the log; 0 is none. It costs a compilation, and mem_len in evaluation must be above 0.
    """

    seed: int = 1
    batch_size: int = 16
    segment_len: int = 128
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
        if self.clip_norm == math.inf:  # as PyTorch says it
            object.__setattr__(self, "clip_norm", None)
        validation.check_types(self)
        check_between(self, 0, LARGEST_SEED, "seed")
        check_between(self, 0, LONGEST, "warmup_steps", "max_skipped_steps", "sample_length")
        check_between(self, 0, 1e3, "learning_rate")
        check_between(self, 0, 1, "min_lr_ratio")
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """How a model is evaluated, in training and by `evaluate`.

    Attributes:
      batch_size: rows.
      segment_len: tokens of a row in one call; None is as in training.
      mem_len, clamp_len, attention_span: None is as in the model.
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
    """A whole run; written as `config.json` beside every checkpoint and export."""

    model: TransformerXLConfig
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)

    def to_json(self) -> str:
        """Indented JSON with every field."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """Reads `to_json`'s text.

        Raises:
          ValueError: the text is no JSON object of this form, or a value breaks a rule.
        """
        return validation.from_dict(cls, validation.parse_json(text, "config"), "config")


_Sections = TypeVar("_Sections")  # Config, or another dataclass whose fields are such


def override(config: _Sections, assignment: str) -> _Sections:
    """Returns `config` with one field changed, as in `override(config, "model.num_layers=4")`.

    The value is read by the field's type; "none" is None, tuples are comma-separated. Several
    assignments that only together keep the rules go to `override_all`. A warm-up that fills a
    shorter run gives way: unless it is set too, it keeps its share of the steps.

    Raises:
      ValueError: the name is unknown, or the value does not fit; names both.
    """
    return override_all(config, [assignment])


def override_all(config: _Sections, assignments: list[str]) -> _Sections:
    """`override` for several assignments at once, checked after the last."""
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
            raise ValueError(f"{section}.{field} must be set once, got it twice")
        changes.setdefault(section, {})[field] = validation.parse(
            f"{section}.{field}", kinds[field], text
        )
    if isinstance(values.get("train"), TrainConfig):
        changes["train"] = _with_warmup(values["train"], changes.get("train", {}))
    parts = {s: dataclasses.replace(values[s], **c) for s, c in changes.items()}
    return dataclasses.replace(whole, **parts)


def _with_warmup(base: TrainConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes, and one of the warm-up where a shorter run has no room for that of `base`."""
    steps = changes.get("train_steps", base.train_steps)
    if "warmup_steps" in changes or not 0 < steps <= base.warmup_steps:
        return dict(changes)
    warmup_steps = base.warmup_steps * steps // base.train_steps
    logging.info("train.warmup_steps gives way from %d to %d", base.warmup_steps, warmup_steps)
    return {**changes, "warmup_steps": warmup_steps}
