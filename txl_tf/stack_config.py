"""What the configs of all models made of blocks have in common: fields, and their rules."""

import dataclasses

from txl_tf import fields, kinds
from txl_tf.fields import check, check_at_least


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackConfig:
    """A stack of blocks. Each config that is one says what the fields mean for it."""

    vocab_size: int
    num_layers: int = 12
    d_model: int = 512
    num_heads: int = 8
    head_dim: int = 64
    d_inner: int = 2048
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
        """Refuses fields of the wrong type, and sizes and rates that no stack can have."""
        fields.check_types(self)
        check_at_least(self, 1, "vocab_size", "num_layers", "d_model", "num_heads", "head_dim")
        check_at_least(self, 1, "d_inner", "clamp_len")
        check_at_least(self, 0, "init_std")
        check(
            self.layer_norm_epsilon > 0, "layer_norm_epsilon", "be above 0", self.layer_norm_epsilon
        )
        for field in ("dropout", "attention_dropout"):
            rate = getattr(self, field)
            check(0 <= rate < 1, field, "be at least 0 and below 1", rate)

    def check_even(self) -> None:
        """Refuses a width that sinusoids do not fill."""
        if self.d_model % 2:
            raise ValueError(f"d_model must be even (half sines, half cosines), got {self.d_model}")

    def check_specs(self) -> None:
        """Refuses specs of layers that are missing or break their kinds' rules."""
        for field in ("attention", "feed_forward"):
            check(len(getattr(self, field)) > 0, field, "not be empty", ())
        kinds.check_specs(kinds.ATTENTION, "attention", self)
        kinds.check_specs(kinds.FEED_FORWARD, "feed_forward", self)

    def layer_specs(self, field: str) -> tuple[str, ...]:
        """The spec of each layer: ("a", "b") over three layers is ("a", "b", "a")."""
        specs = getattr(self, field)
        return tuple(specs[i % len(specs)] for i in range(self.num_layers))
