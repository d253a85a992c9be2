"""What the configs of all models made of blocks have in common: fields, and their rules."""

import dataclasses
from typing import TYPE_CHECKING, Any

from txl_tf.configs import layer_specs, validation
from txl_tf.configs.validation import LONGEST, check, check_between, check_rate

MOST_STD = 1e3  # of initial weights: nothing is learnt from there, but nothing overflows either

if TYPE_CHECKING:
    Derived = int  # which it is from construction on
else:
    Derived = int | None
_DERIVED: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackConfig:
    """A stack of blocks. Each config that is one says what the fields mean for it."""

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
        """Refuses fields of the wrong type, and sizes and rates that no stack can have.

        Widths that are None become numbers here, so that a config says what a model has.
        """
        validation.check_types(self)
        check_between(self, 1, LONGEST, "vocab_size", "num_layers", "d_model", "num_heads")
        check_between(self, 1, LONGEST, "head_dim", "d_inner", "clamp_len")
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", max(self.d_model // self.num_heads, 1))
        if self.d_inner is None:
            object.__setattr__(self, "d_inner", 4 * self.d_model)
        check_between(self, 0, MOST_STD, "init_std")
        check_between(self, 1e-30, 1, "layer_norm_epsilon")
        check_rate(self, "dropout", "attention_dropout")

    def check_even(self) -> None:
        """Refuses a width that sinusoids do not fill."""
        if self.d_model % 2:
            raise ValueError(f"d_model must be even (half sines, half cosines), got {self.d_model}")

    def check_specs(self) -> None:
        """Refuses specs of layers that are missing or break their kinds' rules."""
        for field in ("attention", "feed_forward"):
            check(len(getattr(self, field)) > 0, field, "not be empty", ())
        layer_specs.check_specs(layer_specs.ATTENTION, "attention", self)
        layer_specs.check_specs(layer_specs.FEED_FORWARD, "feed_forward", self)

    def layer_specs(self, field: str) -> tuple[str, ...]:
        """The spec of each layer: ("a", "b") over three layers is ("a", "b", "a")."""
        specs = getattr(self, field)
        return tuple(specs[i % len(specs)] for i in range(self.num_layers))
