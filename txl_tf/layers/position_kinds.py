"""How positions get into a model, by kind: the `position` of its config."""

import dataclasses

from txl_tf.layers.learned_relative_attention import LearnedRelativeAttention
from txl_tf.layers.multi_head_attention import Attention
from txl_tf.layers.relative_attention import RelativeAttention


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """A kind.

    Attributes:
      attention: the layer whose scores see the distances, or nothing of them.
      biases: whether scores have the biases u and v, which layers may share.
      of_sinusoids: whether attention's encodings are made of the distances' sinusoids; else of the
        distances themselves.
      at_embedding: whether sinusoids of the places are added to the embedding.
      at_layers: whether rows of learned tables are added to the input of each layer.
    """

    attention: type[Attention]
    biases: bool = False
    of_sinusoids: bool = False
    at_embedding: bool = False
    at_layers: bool = False


POSITIONS = {
    "xl": Position(attention=RelativeAttention, biases=True, of_sinusoids=True),
    "shaw": Position(attention=LearnedRelativeAttention),
    "absolute": Position(attention=Attention, at_embedding=True),
    "absolute_per_layer": Position(attention=Attention, at_layers=True),
}
