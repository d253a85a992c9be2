"""The options of attention and feed-forward kinds, checked without TensorFlow.

Each class is a row of `ATTENTION` or `FEED_FORWARD` by the name of a spec, its fields the options.
The layer of that name in `txl_tf.attention.ATTENTION` or `txl_tf.feed_forward.FEED_FORWARD` takes
the same ones.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from txl_tf.configs import specs, validation
from txl_tf.configs.validation import (
    LARGEST_SEED,
    LONGEST,
    check,
    check_between,
    check_choice,
    check_rate,
    shown,
)

_LARGEST_FACTOR = 1e6  # of capacities and losses: far beyond sense, and far from float32's end


class Architecture(Protocol):
    """What rules of kinds ask of a model's config."""

    num_heads: int
    mem_len: int

    @property
    def is_causal(self) -> bool:
        """Whether a token sees none behind it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind without options.

    Raises:
      ValueError: an option breaks a rule; the message names it and the value.
    """

    def __post_init__(self) -> None:
        validation.check_types(self)
        self._check()

    def _check(self) -> None:
        """Rules of the options alone."""

    def check_in(self, model: Architecture) -> None:
        """Rules of the options and the rest of a config.

        Raises:
          ValueError: one is broken; says why.
        """

    @property
    def reach(self) -> int | None:
        """The farthest distance that has a part in scores; None is no limit."""
        return None

    @property
    def has_global_tokens(self) -> bool:
        """Whether tokens may be marked that see all."""
        return False

    @property
    def num_nets(self) -> int:
        """Number of feed-forward nets in a layer."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopK(Kind):
    """Explicit Sparse; see `txl_tf.attention.top_k`."""

    k: int

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "k")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Window(Kind):
    """A sliding window, in groups of heads that look in strides."""

    window: int
    dilations: tuple[int, ...] = (1,)
    block: int | None = None

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "window", "block")
        check(
            len(self.dilations) > 0 and min(self.dilations, default=0) >= 1,
            "dilations",
            "be at least 1 each",
            self.dilations,
        )
        check(
            self.reach <= LONGEST,
            "window",
            f"reach at most {LONGEST} tokens back with dilations {shown(self.dilations)}",
            self.window,
        )

    @property
    def reach(self) -> int:
        return self.window * max(self.dilations)

    def check_in(self, model: Architecture) -> None:
        if model.num_heads % len(self.dilations):
            raise ValueError(
                f"num_heads must be a multiple of the {len(self.dilations)} dilations "
                f"{shown(self.dilations)}, each of which has as many heads, got {model.num_heads}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Local(_Window):
    """See `txl_tf.attention.local`."""

    k: int | None = None

    def _check(self) -> None:
        super()._check()
        check_between(self, 1, LONGEST, "k")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Longformer(_Window):
    """See `txl_tf.attention.longformer`."""

    max_global_tokens: int = 0

    def _check(self) -> None:
        super()._check()
        check_between(self, 0, LONGEST, "max_global_tokens")

    @property
    def has_global_tokens(self) -> bool:
        return self.max_global_tokens > 0

    def check_in(self, model: Architecture) -> None:
        super().check_in(model)
        if model.is_causal and self.max_global_tokens:
            raise ValueError(
                "max_global_tokens must be 0 in a model that predicts: a global token sees what "
                f"comes after it, got {self.max_global_tokens}; an Encoder may have some"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BigBird(Kind):
    """See `txl_tf.attention.big_bird`."""

    block: int = 64
    random: int = 3
    seed: int = 0
    table: tuple[tuple, ...] | None = None

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "block")
        check_between(self, 0, LONGEST, "random")
        check_between(self, 0, LARGEST_SEED, "seed")
        check(
            self.reach <= LONGEST,
            "block",
            f"be at most {LONGEST // (self.random + 5)} with random {self.random}",
            self.block,
        )
        if self.table is None:
            return
        num_blocks = len(self.table[0]) + 2 if self.table else 0
        rows = [row for head in self.table for row in head]
        check(
            num_blocks >= 3
            and all(len(head) == num_blocks - 2 for head in self.table)
            and all(isinstance(row, tuple) and len(row) == self.random for row in rows)
            and all(type(n) is int and 0 <= n < num_blocks for row in rows for n in row),
            "table",
            f"have, for each head and each of n - 2 blocks, {self.random} numbers below n",
            self.table,
        )

    @property
    def reach(self) -> int:
        return (self.random + 5) * self.block - 1  # of a short text, which is seen whole

    def check_in(self, model: Architecture) -> None:
        if model.is_causal:
            raise ValueError(
                "it is not for a model that predicts: its first and last blocks see all that comes "
                "after them, and which blocks a token sees follows from its place in the whole "
                "text, which a memory does not know; choose local or longformer, or an Encoder"
            )
        if self.table is not None and len(self.table) != model.num_heads:
            raise ValueError(
                f"table must be of num_heads {model.num_heads} heads, got {len(self.table)}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DenseNet(Kind):
    """Two projections; see `txl_tf.feed_forward.dense`."""

    activation: str = "relu"

    def _check(self) -> None:
        check_choice(self, "activation", ("relu", "gelu"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch(Kind):
    """One of several nets for each token; see `txl_tf.feed_forward.switch`."""

    experts: int
    capacity_factor: float = 1.25
    eval_capacity_factor: float | None = None
    group: str = "row"
    jitter: float = 0.01
    balance_loss: float = 0.01
    z_loss: float = 0.0
    expert_dropout: float | None = None
    dispatch: str = "gather"

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "experts")
        for name in ("capacity_factor", "eval_capacity_factor"):
            value = getattr(self, name)
            check(value is None or value > 0, name, "be above 0", value)
            check_between(self, 0, _LARGEST_FACTOR, name)
        check_between(self, 0, _LARGEST_FACTOR, "balance_loss", "z_loss")
        check_rate(self, "jitter", "expert_dropout")
        check_choice(self, "group", ("row", "batch"))
        check_choice(self, "dispatch", ("gather", "einsum"))

    @property
    def num_nets(self) -> int:
        return self.experts


ATTENTION: Mapping[str, type[Kind]] = {
    "dense": Kind,
    "topk": TopK,
    "local": Local,
    "longformer": Longformer,
    "bigbird": BigBird,
}
FEED_FORWARD: Mapping[str, type[Kind]] = {"dense": DenseNet, "switch": Switch}


def check_specs(table: Mapping[str, type[Kind]], field: str, model: Any) -> None:
    """Refuses specs of `model.field` that name no kind, or break its rules.

    Raises:
      ValueError: one does; names it and the reason.
    """
    for spec in dict.fromkeys(getattr(model, field)):
        try:
            specs.build(table, spec).check_in(model)
        except ValueError as error:
            raise ValueError(f"{field} {shown(spec)}: {error}") from error


def has_global_tokens(model: Any) -> bool:
    """Whether a layer of a valid config has attention to tokens that see all."""
    of_layers = set(model.layer_specs("attention"))
    return any(specs.build(ATTENTION, spec).has_global_tokens for spec in of_layers)


def check_global_tokens(model: Any) -> None:
    """Refuses global tokens for a valid config.

    Raises:
      ValueError: no layer has such.
    """
    if not has_global_tokens(model):
        raise ValueError(
            f"global_tokens must be none for attention {', '.join(model.attention)}, which has "
            "none; longformer(window=..., max_global_tokens=...) has some"
        )


def notes(model: Any) -> list[str]:
    """What of a valid config may surprise: windows that reach beyond the memory."""
    found = []
    for spec in dict.fromkeys(model.attention):
        reach = specs.build(ATTENTION, spec).reach
        if reach is not None and reach > model.mem_len:
            found.append(
                f"attention {spec}: its window reaches {reach} tokens back, the memory holds "
                f"{model.mem_len}: the first token of a segment sees {model.mem_len} before it"
            )
    return found
