"""Architectures of models: frozen dataclasses, checked on construction."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from txl_tf.configs import layer_specs, validation
from txl_tf.configs.layer_specs import LayerSpec
from txl_tf.configs.validation import LONGEST, check, check_between, check_choice, check_rate

_WITH_SINUSOIDS = ("xl", "absolute")
_WITH_TABLES = ("shaw", "absolute_per_layer")
_WITHOUT_MEMORY = ("absolute", "absolute_per_layer")
_LARGEST_STD = 1e3  # of initial weights: beyond any use, but without overflow

if TYPE_CHECKING:
    Derived = int  # after construction
else:
    Derived = int | None
_DERIVED: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Base class of architectures made of a stack of blocks: the fields they share.

    Attributes:
      vocab_size: number of token ids, V.
      num_layers: number of layers, L.
      d_model: width of the residual stream, D. Even with sinusoids: half are cosines.
      num_heads: attention heads, H.
      head_dim: width of a head, K; None becomes d_model // num_heads, 1 at least. H * K need not
        equal D.
      d_inner: width of the feed-forward net's hidden layer, F; None becomes 4 * d_model.
      untie_biases: whether each layer has its own u and v, not one pair for all.
      pre_norm: whether LayerNorm precedes attention and feed-forward; else it follows the sums.
      dropout: rate at the paper's sites (embeddings, positions, sub-layer outputs, final).
      attention_dropout: rate on attention weights.
      init_std: standard deviation of the normal initializer of weights.
      clamp_len: distances are clamped to it; None is off. Positions of an encoder with "absolute"
        are clamped in the same way.
      position: kind of positions; one of `POSITIONS`.
      attention: attention spec of each layer, for example ("local(window=128)", "dense"), repeated.
      feed_forward: feed-forward spec of each layer, repeated.
      layer_norm_epsilon: added to variances: 1e-12 in the TensorFlow original, 1e-5 in PyTorch and
        Hugging Face.
    """

    POSITIONS: ClassVar[tuple[str, ...]]

    vocab_size: int
    num_layers: int = 12
    d_model: int = 512
    num_heads: int = 8
    head_dim: Derived = _DERIVED
    d_inner: Derived = _DERIVED
    untie_biases: bool = False
    pre_norm: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    init_std: float = 0.02
    clamp_len: int | None = None
    position: str = "xl"
    attention: tuple[str, ...] = ("dense",)
    feed_forward: tuple[str, ...] = ("dense",)
    layer_norm_epsilon: float = 1e-5

    def check_stack(self) -> None:
        """Raises if a field has the wrong type, or a size or rate is out of range.

        Replaces widths that are None by their defaults, so that a config holds the actual sizes.
        """
        validation.check_types(self)
        check_between(self, 1, LONGEST, "vocab_size", "num_layers", "d_model", "num_heads")
        check_between(self, 1, LONGEST, "head_dim", "d_inner", "clamp_len")
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", max(self.d_model // self.num_heads, 1))
        if self.d_inner is None:
            object.__setattr__(self, "d_inner", 4 * self.d_model)
        check_between(self, 0, _LARGEST_STD, "init_std")
        check_between(self, 1e-30, 1, "layer_norm_epsilon")
        check_rate(self, "dropout", "attention_dropout")

    def check_even(self) -> None:
        """Raises if d_model is odd, as sinusoids need pairs of a sine and a cosine."""
        if self.d_model % 2:
            raise ValueError(f"d_model must be even (half sines, half cosines), got {self.d_model}")

    def check_specs(self) -> None:
        """Raises if layer specs are missing or break the rules of their kinds."""
        for field in ("attention", "feed_forward"):
            check(len(getattr(self, field)) > 0, field, "not be empty", ())
        _ = self.attention_specs, self.feed_forward_specs  # parses them

    @functools.cached_property
    def attention_specs(self) -> tuple[LayerSpec, ...]:
        """Parsed `attention`, of the same length."""
        return layer_specs.parse_all(layer_specs.ATTENTION, "attention", self.attention, self)

    @functools.cached_property
    def feed_forward_specs(self) -> tuple[LayerSpec, ...]:
        """Parsed `feed_forward`, of the same length."""
        table = layer_specs.FEED_FORWARD
        return layer_specs.parse_all(table, "feed_forward", self.feed_forward, self)

    @property
    def has_global_tokens(self) -> bool:
        """Whether a layer supports global tokens."""
        return any(spec.has_global_tokens for spec in self.attention_specs[: self.num_layers])

    @property
    def depends_on_segment(self) -> bool:
        """Whether outputs depend on which tokens are read together, later ones included."""
        return any(spec.depends_on_segment for spec in self.attention_specs[: self.num_layers])

    @property
    def token_limit(self) -> int | None:
        """Largest number of tokens of a text that every layer can read; None is no limit."""
        specs = self.attention_specs[: self.num_layers]
        return min((s.token_limit for s in specs if s.token_limit is not None), default=None)

    def check_global_tokens(self) -> None:
        """Raises if no layer supports global tokens.

        Raises:
          ValueError: names the attention specs, and one that supports global tokens.
        """
        if not self.has_global_tokens:
            raise ValueError(
                f"global_tokens must be none for attention {', '.join(self.attention)}, which does "
                "not support them; longformer(window=..., max_global_tokens=...) does"
            )

    def layer(self, index: int) -> "LayerConfig":
        """Returns the config of one layer: ("a", "b") over three layers is "a", "b", "a"."""
        attention, feed_forward = self.attention_specs, self.feed_forward_specs
        own: dict[str, Any] = {
            "attention": attention[index % len(attention)],
            "feed_forward": feed_forward[index % len(feed_forward)],
        }
        names = {field.name for field in dataclasses.fields(LayerConfig)} - own.keys()
        return LayerConfig(**own, **{name: getattr(self, name) for name in names})


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Config of one layer: fields of its `StackConfig`, and the layer's own specs."""

    d_model: int
    num_heads: int
    head_dim: int
    d_inner: int
    attention: LayerSpec
    feed_forward: LayerSpec
    position: str
    num_positions: int | None
    untie_biases: bool
    pre_norm: bool
    dropout: float
    attention_dropout: float
    init_std: float
    layer_norm_epsilon: float

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields with specs as text, for Keras' `get_config`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {
            "attention": str(self.attention),
            "feed_forward": str(self.feed_forward),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "LayerConfig":
        """Returns the config from `to_dict`'s fields."""
        attention = layer_specs.parse(layer_specs.ATTENTION, fields["attention"])
        feed_forward = layer_specs.parse(layer_specs.FEED_FORWARD, fields["feed_forward"])
        return cls(**{**fields, "attention": attention, "feed_forward": feed_forward})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(StackConfig):
    """Transformer-XL (arXiv 1901.02860), with the options of the published implementations.

    >>> config = txl_tf.TransformerXLConfig(
    ...     vocab_size=256, num_layers=4, mem_len=128, attention=("local(window=32)", "dense")
    ... )

    Attributes, besides those of `StackConfig`:
      mem_len: memory slots of a layer, M; 0 is no memory.
      d_embed: width of the first embedding table; None is d_model.
      cutoffs: first ids of the tail clusters, ascending; empty is a plain softmax.
      div_val: cluster i has embeddings of width d_embed // div_val**i; 1 is a single table.
      tie_embeddings: whether the output tables are the input tables.
      tie_projections: for each cluster, whether the output projection is the input one. The last
        value repeats.
      tie_output_projection: the same without cut-offs, if d_embed differs from d_model: True in
        the TensorFlow original; PyTorch and Hugging Face use their `tie_projs`.
      project_same_dim: whether a cluster of width d_model is projected as well (only if
        div_val > 1; a single table is projected if its width differs).
      proj_init_std: standard deviation of the normal initializer of embedding and softmax
        projections.
      position: kind of positions: "xl", the paper's relative encodings; "shaw", learned ones;
        "absolute", sinusoids added to the embedding, and "absolute_per_layer", learned vectors
        added to the input of each layer, both without memory.
      num_positions: rows of learned tables, for "shaw" and "absolute_per_layer".
      attention_span: maximum number of keys that a query sees, itself included; None is no limit.
        The originals' `same_length` is mem_len + 1 (TensorFlow) or mem_len (PyTorch).
      attend_to_initial_zeros: whether a new memory holds valid zeros, which take attention mass, as
        in the TensorFlow and Hugging Face originals.

    Raises:
      ValueError: a field breaks a rule; the message names the field and the value.
    """

    POSITIONS = ("xl", "shaw", "absolute", "absolute_per_layer")

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
        check_between(self, 0, _LARGEST_STD, "proj_init_std")
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
                "tie_output_projection must be true with cutoffs, where tie_projections is read "
                "instead, and if d_embed is d_model, got False with cutoffs "
                f"{self.cutoffs}, d_embed {self.embed_dim} and d_model {self.d_model}"
            )
        self.check_specs()

    def _check_position(self) -> None:
        check_choice(self, "position", self.POSITIONS)
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
                f"mem_len must be 0 for position {self.position}, as memory would keep the "
                f"positions of an earlier segment, got {self.mem_len}"
            )

    @property
    def is_causal(self) -> bool:
        """Whether tokens attend only to earlier ones: always."""
        return True

    def warnings(self) -> list[str]:
        """Returns valid but surprising settings: long windows, competition in a segment."""
        specs = dict(zip(self.attention, self.attention_specs, strict=True))
        windows = [
            f"attention {text}: the window of {spec.reach} tokens is longer than the memory of "
            f"{self.mem_len}, so the first token of a segment sees only {self.mem_len} before it"
            for text, spec in specs.items()
            if spec.reach is not None and spec.reach > self.mem_len
        ]
        return windows + [
            f"attention {text}: the tokens that are read together, later ones included, decide "
            "which of them a token sees, so scores depend on the segment length, and generation, "
            "token by token, differs from training"
            for text, spec in specs.items()
            if spec.depends_on_segment
        ]

    @property
    def embed_dim(self) -> int:
        """Width of the first embedding table: `d_embed`, else `d_model`."""
        return self.d_model if self.d_embed is None else self.d_embed


@dataclasses.dataclass(frozen=True, kw_only=True)
class XLNetConfig(StackConfig):
    """XLNet (arXiv 1906.08237): Transformer-XL's layers, bidirectional, with segment encodings.

    Attributes, besides those of `StackConfig`:
      mem_len: memory slots of a layer, M; 0 is no memory.
      reuse_len: number of first tokens of a segment that enter the memory, where the next segment
        begins after them; None is all.
      bidirectional: whether tokens see later ones (`attn_type` "bi" of the original; else "uni").
      attention_span: maximum number of keys up to the query, itself included; None is no limit. The
        original's `same_length` is mem_len + 1.
      position: "xl", the paper's relative encodings.
      attention: kinds that support masks of single pairs of tokens: dense or topk.

    Raises:
      ValueError: a field breaks a rule; the message names the field and the value.
    """

    POSITIONS = ("xl",)

    untie_biases: bool = True
    feed_forward: tuple[str, ...] = ("dense(activation='gelu')",)
    layer_norm_epsilon: float = 1e-12
    mem_len: int = 512
    reuse_len: int | None = None
    bidirectional: bool = True
    attention_span: int | None = None

    def __post_init__(self) -> None:
        self.check_stack()
        check_between(self, 1, LONGEST, "reuse_len", "attention_span")
        check_between(self, 0, LONGEST, "mem_len")
        check_choice(self, "position", self.POSITIONS)
        check(self.untie_biases, "untie_biases", "be true for XLNet", self.untie_biases)
        self.check_even()
        self.check_specs()
        for text, spec in zip(self.attention, self.attention_specs, strict=True):
            fits = spec.has_pair_masks
            check(fits, "attention", "be dense or topk for the permutation masks of XLNet", text)
        for text, spec in zip(self.feed_forward, self.feed_forward_specs, strict=True):
            fits = isinstance(spec, layer_specs.DenseNet)
            check(fits, "feed_forward", "be dense, as two streams share the layers of XLNet", text)

    @property
    def is_causal(self) -> bool:
        """Whether tokens attend only to earlier ones."""
        return not self.bidirectional

    def warnings(self) -> list[str]:
        """Returns valid but surprising settings: none."""
        return []

    @property
    def attend_to_initial_zeros(self) -> bool:
        """Whether a new memory holds valid zeros: never."""
        return False

    @property
    def num_positions(self) -> None:
        """Number of rows of learned tables: none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """Bidirectional encoder of whole texts: each token attends to earlier and later ones.

    It has no memory; texts too long to be read at once need a `TransformerXLConfig`.

    >>> config = txl_tf.EncoderConfig(vocab_size=256, attention=("longformer(window=64)",))

    Attributes, besides those of `StackConfig`:
      position: kind of positions: "xl", Transformer-XL's relative encodings, also of distances to
        later tokens; "absolute", sinusoids of positions from the start, added to the embedding.

    Raises:
      ValueError: a field breaks a rule; the message names the field and the value.
    """

    POSITIONS = ("xl", "absolute")

    def __post_init__(self) -> None:
        self.check_stack()
        check_choice(self, "position", self.POSITIONS)
        self.check_even()
        self.check_specs()

    @property
    def is_causal(self) -> bool:
        """Whether tokens attend only to earlier ones: never."""
        return False

    @property
    def mem_len(self) -> int:
        """Number of memory slots: none."""
        return 0

    @property
    def num_positions(self) -> None:
        """Number of rows of learned tables: none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StarTransformerConfig:
    """Star-Transformer (arXiv 1902.09113): a ring of tokens and a relay, for texts read whole.

    >>> txl_tf.StarTransformerConfig(vocab_size=256, num_positions=1000).token_limit
    1000

    Attributes:
      vocab_size: number of token ids, V.
      num_layers: number of layers, L.
      d_model: width of the states, D.
      num_heads: attention heads, H.
      head_dim: width of a head, K; None becomes d_model // num_heads, 1 at least.
      num_positions: rows of the table of learned positions, which limits the length of a text; None
        is no table: without positions a token cannot tell its left neighbour from its right one.
      cyclic: whether the first and the last token are neighbours, as in the paper, and padding has
        no effect. False reproduces the published code, whose ring is open: zero vectors stand for
        the missing neighbours. There padding is part of the relay's initial mean and the last
        token's neighbour, so results depend on the padded length.
      dropout: rate on embeddings.
      init_std: standard deviation of the normal initializer of embeddings and label weights.
      layer_norm_epsilon: added to variances.

    Raises:
      ValueError: a field breaks a rule; the message names the field and the value.
    """

    vocab_size: int
    num_layers: int = 4
    d_model: int = 512
    num_heads: int = 8
    head_dim: Derived = _DERIVED
    num_positions: int | None = 512
    cyclic: bool = True
    dropout: float = 0.1
    init_std: float = 0.02
    layer_norm_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        validation.check_types(self)
        check_between(self, 1, LONGEST, "vocab_size", "num_layers", "d_model", "num_heads")
        check_between(self, 1, LONGEST, "head_dim", "num_positions")
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", max(self.d_model // self.num_heads, 1))
        check_between(self, 0, _LARGEST_STD, "init_std")
        check_between(self, 1e-30, 1, "layer_norm_epsilon")
        check_rate(self, "dropout")

    @property
    def is_causal(self) -> bool:
        """Whether tokens attend only to earlier ones: never."""
        return False

    @property
    def mem_len(self) -> int:
        """Number of memory slots: none."""
        return 0

    @property
    def token_limit(self) -> int | None:
        """Largest number of tokens of a text; None is no limit."""
        return self.num_positions

    def check_global_tokens(self) -> None:
        """Raises, as there are none.

        Raises:
          ValueError: always.
        """
        raise ValueError(
            "global_tokens must be none for a Star-Transformer, whose relay sees all tokens"
        )
