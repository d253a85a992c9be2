"""Configs of backbones for task heads, and the poolings that each allows."""

from typing import Any

from txl_tf.configs.choices import POOLINGS
from txl_tf.configs.model import (
    EncoderConfig,
    StarTransformerConfig,
    TransformerXLConfig,
    XLNetConfig,
)

Backbone = EncoderConfig | TransformerXLConfig | XLNetConfig | StarTransformerConfig
BACKBONES: dict[str, Any] = {
    "encoder": EncoderConfig,
    "causal": TransformerXLConfig,
    "xlnet": XLNetConfig,
    "star": StarTransformerConfig,
}


def name_of(config: object) -> str:
    """Returns the name in `BACKBONES` of a config's class.

    Raises:
      ValueError: the config is not that of a backbone.
    """
    for name, kind in BACKBONES.items():
        if isinstance(config, kind):
            return name
    known = " or ".join(kind.__name__ for kind in BACKBONES.values())
    raise ValueError(f"config must be a {known}, got {config!r}")


def check_attention(config: Any) -> None:
    """Raises if a backbone's attention needs the training of a language model.

    Raises:
      ValueError: gives the reason.
    """
    if isinstance(config, TransformerXLConfig) and config.depends_on_segment:
        raise ValueError(
            f"attention must not be routing in a backbone, got {', '.join(config.attention)}: its "
            "centroids are learned only in the training of a language model"
        )


def check_pooling(pooling: str, is_causal: bool) -> None:
    """Raises if a pooling is unknown, or unsuitable for a causal backbone.

    Raises:
      ValueError: names the pooling and the choices.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}")
    if is_causal and pooling == "first":
        raise ValueError(
            "pooling must be mean, max or last for a causal backbone, whose first token has seen "
            "nothing of the text, got 'first'"
        )
