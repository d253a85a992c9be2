"""Keras models. Importing the package registers all of them with Keras."""

from txl_tf.models import (
    deep_supervision,
    encoder,
    masked_language_model,
    sequence_classifier,
    star_transformer,
    transformer_xl,
    xlnet,
)

__all__ = [
    "deep_supervision",
    "encoder",
    "masked_language_model",
    "sequence_classifier",
    "star_transformer",
    "transformer_xl",
    "xlnet",
]
