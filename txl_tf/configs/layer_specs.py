"""Specs of attention and feed-forward layers: options of each kind, with defaults and rules.

A config names them as text, "local(window=128)", which `parse` turns into the spec of the layer of
that name in `txl_tf.attention.ATTENTION` or `txl_tf.feed_forward.FEED_FORWARD`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from txl_tf.configs import spec_parser, validation
from txl_tf.configs.validation import (
    LARGEST_SEED,
    LONGEST,
    check,
    check_between,
    check_choice,
    check_rate,
    shown,
)

_Kind = TypeVar("_Kind", bound="Spec")
_LARGEST_FACTOR = 1e6  # of capacities and losses: beyond any use, within the range of float32


class Architecture(Protocol):
    """Config fields that specs are validated against."""

    num_heads: int
    mem_len: int
    position: str

    @property
    def is_causal(self) -> bool:
        """Whether tokens attend only to earlier ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """Base class of specs: a frozen dataclass whose fields are the options of one kind.

    Attributes:
      name: name of the kind.

    Raises:
      ValueError: an option breaks a rule; the message names it and the value.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        validation.check_types(self)
        self._check()

    def _check(self) -> None:
        """Raises if an option breaks a rule."""

    def __str__(self) -> str:
        """Returns the text form; `parse` is its inverse."""
        options = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(options)})" if options else self.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSpec(Spec):
    """Base class of specs of layers."""

    def check_in(self, model: Architecture) -> None:
        """Raises if the options do not fit the rest of a config.

        Raises:
          ValueError: gives the reason.
        """

    @property
    def reach(self) -> int | None:
        """Largest attended distance; None is unbounded."""
        return None

    @property
    def has_global_tokens(self) -> bool:
        """Whether layers support global tokens."""
        return False

    @property
    def token_limit(self) -> int | None:
        """Largest number of tokens of a text; None is no limit."""
        return None

    @property
    def depends_on_segment(self) -> bool:
        """Whether outputs depend on which tokens are read together, later ones included."""
        return False

    def num_query_heads(self, num_heads: int) -> int:
        """Returns the number of heads with queries and positions; others use keys as queries."""
        return num_heads

    def num_scores(self, num_keys: int) -> int:
        """Returns the number of scores that a query has, in each head."""
        return num_keys if self.reach is None else min(num_keys, self.reach + 1)

    def num_own_parameters(self, num_layers: int, num_heads: int) -> int:
        """Returns the size of the attention cores' own large weights in that many layers."""
        return 0

    @property
    def has_pair_masks(self) -> bool:
        """Whether attention layers support masks and biases of single pairs of tokens."""
        return False

    @property
    def num_nets(self) -> int:
        """Number of feed-forward nets in a layer."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dense(LayerSpec):
    """Dense attention; see `txl_tf.attention.dense`."""

    name = "dense"

    @property
    def has_pair_masks(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopK(LayerSpec):
    """Explicit Sparse attention; see `txl_tf.attention.top_k`.

    Attributes:
      k: number of keys that each query keeps, at least 1.
    """

    name = "topk"

    k: int

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "k")

    @property
    def has_pair_masks(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Window(LayerSpec):
    """Sliding-window attention, with a dilation for each group of heads.

    Attributes:
      window: number of attended keys on one side, w, at a head's dilation.
      dilations: dilations of equally large groups of heads.
      block: number of queries that share a slice of keys; None is 64, or less for a small window.
    """

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
    """Local attention; see `txl_tf.attention.local`.

    Attributes, besides the window's:
      k: number of keys of a window that each query keeps, those with the highest scores, ties
        included; None is all.
    """

    name = "local"

    k: int | None = None

    def _check(self) -> None:
        super()._check()
        check_between(self, 1, LONGEST, "k")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Longformer(_Window):
    """Local attention with global tokens; see `txl_tf.attention.longformer`.

    Attributes, besides the window's:
      max_global_tokens: maximum number of global tokens of a row, G; further ones are ordinary.
    """

    name = "longformer"

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
                "max_global_tokens must be 0 in a causal model, as a global token sees later "
                f"tokens, got {self.max_global_tokens}; an Encoder supports them"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BigBird(LayerSpec):
    """Block-sparse attention; see `txl_tf.attention.big_bird`.

    Attributes:
      block: tokens of a block, b.
      random: number of random blocks, r.
      seed: of the random blocks.
      table: indices of the random blocks, by head, for each block but the first and the last,
        [H][n - 2][r]; texts then have n blocks.
    """

    name = "bigbird"

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
        return (self.random + 5) * self.block - 1  # of a short text, which is attended densely

    def check_in(self, model: Architecture) -> None:
        if model.is_causal:
            raise ValueError(
                "bigbird is not causal: the first and last blocks see later tokens, and the random "
                "blocks depend on positions in the whole text; choose local or longformer, or an "
                "Encoder"
            )
        if self.table is not None and len(self.table) != model.num_heads:
            raise ValueError(
                f"table must be of num_heads {model.num_heads} heads, got {len(self.table)}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linformer(LayerSpec):
    """Attention to mixtures of keys and values; see `txl_tf.attention.linformer`.

    Attributes:
      max_tokens: maximum number of tokens of a text, n.
      k: number of mixtures that a query attends to, at most n.
      sharing: matrices that mix keys and values: "none" shares none, so that each head has two;
        "headwise" has two in a layer, "key_value" one, and "layerwise" one for all layers.
    """

    name = "linformer"

    max_tokens: int
    k: int = 128
    sharing: str = "headwise"

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "max_tokens")
        check_between(self, 1, self.max_tokens, "k")
        check_choice(self, "sharing", ("none", "headwise", "key_value", "layerwise"))

    @property
    def token_limit(self) -> int:
        return self.max_tokens

    def num_scores(self, num_keys: int) -> int:
        return self.k

    def num_own_parameters(self, num_layers: int, num_heads: int) -> int:
        matrices = {
            "none": 2 * num_heads * num_layers,
            "headwise": 2 * num_layers,
            "key_value": num_layers,
            "layerwise": 1,
        }
        return matrices[self.sharing] * self.k * self.max_tokens

    def check_in(self, model: Architecture) -> None:
        if model.is_causal:
            raise ValueError(
                "linformer is not causal: each of its keys is a mixture of all tokens, later ones "
                "included; choose local, or an Encoder"
            )
        if model.position != "absolute":
            raise ValueError(
                "position must be absolute for linformer, whose keys are mixtures of tokens and "
                f"have no distance, got {model.position!r}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Routing(LayerSpec):
    """Attention within clusters of similar tokens; see `txl_tf.attention.routing`.

    Attributes:
      clusters: number of clusters of a head, C; about the square root of the number of tokens.
      local_heads: number of heads with a sliding window and positions; the others are routed.
      window: number of tokens of a cluster, w.
      local_window: number of tokens before it that a token sees in a local head.
      decay: of the moving average that updates the centroids in each training step.
      commitment: factor of the auxiliary loss, the mean squared difference between a token's
        direction and its nearest centroid.
    """

    name = "routing"

    clusters: int
    local_heads: int
    window: int = 128
    local_window: int = 256
    decay: float = 0.999
    commitment: float = 1e-4

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "clusters", "local_heads", "window", "local_window")
        check_between(self, 0, 1, "decay")
        check_between(self, 0, _LARGEST_FACTOR, "commitment")

    @property
    def depends_on_segment(self) -> bool:
        return True

    def num_query_heads(self, num_heads: int) -> int:
        return self.local_heads

    def num_scores(self, num_keys: int) -> int:
        in_window = min(num_keys, self.local_window + 1)
        in_clusters = -(-self.clusters * min(num_keys, self.window) ** 2 // max(num_keys, 1))
        return max(in_window, in_clusters)

    def check_in(self, model: Architecture) -> None:
        if not model.is_causal:
            raise ValueError(
                "routing attends to earlier tokens only, so an Encoder has none; choose "
                "longformer, bigbird or linformer"
            )
        if self.local_heads >= model.num_heads:
            raise ValueError(
                f"local_heads must be below num_heads {model.num_heads}, which leaves the others "
                f"to be routed, got {self.local_heads}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DenseNet(LayerSpec):
    """Two projections; see `txl_tf.feed_forward.dense`.

    Attributes:
      activation: "relu" (the paper's), "gelu", or "gelu_tanh", its approximation by tanh.
    """

    name = "dense"

    activation: str = "relu"

    def _check(self) -> None:
        check_choice(self, "activation", ("relu", "gelu", "gelu_tanh"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch(LayerSpec):
    """Mixture of experts with top-1 routing; see `txl_tf.feed_forward.switch`.

    Attributes:
      experts: number of nets, E.
      capacity_factor: in training.
      eval_capacity_factor: outside of training; None drops no token.
      group: tokens that share an expert's capacity: those of a "row", or of the whole "batch".
      jitter: range of the uniform noise, 1 - jitter to 1 + jitter, that multiplies the router's
        input in training.
      balance_loss: factor of E sum f_i P_i in the auxiliary loss, f_i the share of tokens routed to
        expert i, P_i its mean probability; the term is 1 if all are equal.
      z_loss: factor of the mean squared logsumexp of the router.
      expert_dropout: rate inside the nets; None is that of the layer.
      dispatch: method of moving tokens to experts with a capacity: "gather", by index, or "einsum",
        by one-hot matmuls, which suit a TPU; the results are the same.
    """

    name = "switch"

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


ATTENTION: Mapping[str, type[LayerSpec]] = {
    spec.name: spec for spec in (Dense, TopK, Local, Longformer, BigBird, Linformer, Routing)
}
FEED_FORWARD: Mapping[str, type[LayerSpec]] = {spec.name: spec for spec in (DenseNet, Switch)}


def parse(table: Mapping[str, type[_Kind]], text: str) -> _Kind:
    """Returns the spec that `text` names in `table`, with its options.

    Raises:
      ValueError: the text is not a spec, its name is not in the table, or an option is unknown,
        missing, or breaks a rule.
    """
    name, options = spec_parser.parse(text)
    if name not in table:
        raise ValueError(
            f"unknown kind {shown(name)} in {shown(text)}; choose from {', '.join(table)}"
        )
    known = {field.name: field for field in dataclasses.fields(table[name])}
    for option in options:
        if option not in known:
            choices = f"choose from {', '.join(known)}" if known else "it has none"
            raise ValueError(f"unknown option {shown(option)} in {shown(text)}; {choices}")
    for option, field in known.items():
        if field.default is dataclasses.MISSING and option not in options:
            raise ValueError(f"{option} must be given in {shown(text)}, as in {name}({option}=...)")
    return table[name](**options)


def parse_all(
    table: Mapping[str, type[LayerSpec]], field: str, texts: tuple[str, ...], model: Any
) -> tuple[LayerSpec, ...]:
    """Returns the specs of a model's `field`, checked against its other fields.

    Raises:
      ValueError: a text is not a valid spec for that model; names it and the reason.
    """
    specs = {}
    for text in dict.fromkeys(texts):
        try:
            specs[text] = parse(table, text)
            specs[text].check_in(model)
        except ValueError as error:
            raise ValueError(f"{field} {shown(text)}: {error}") from error
    return tuple(specs[text] for text in texts)
