"""The config of an `Encoder`."""

import dataclasses

from txl_tf.configs.stack_config import StackConfig
from txl_tf.configs.validation import check_choice

POSITIONS = ("xl", "absolute")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """One stack of blocks that reads a text whole, each token seeing those before and behind it.

    It has no memory, for a memory holds what was read before, and no `mem_len`: a text that is
    longer than what can be read at once is one for a `TransformerXLConfig`.

    Attributes:
      vocab_size: number of token ids, V.
      num_layers: number of layers, L.
      d_model: width of the residual stream, D; even, for half of a position's numbers are cosines.
      num_heads: attention heads, H.
      head_dim: width of a head, K; None becomes d_model // num_heads, 1 at least. H * K need not
        equal D.
      d_inner: width of the feed-forward net's hidden layer, F; None becomes 4 * d_model.
      position: how positions enter: "xl", Transformer-XL's relative encodings, of distances to
        later tokens too; "absolute", sinusoids of places from the start, added to the embedding.
      untie_biases: whether each layer has its own u and v, not one pair for all ("xl" alone).
      pre_norm: whether LayerNorm stands before attention and feed-forward, not after the sums.
      dropout: rate at the paper's places (embeddings, positions, sub-layer outputs, final).
      attention_dropout: rate on attention weights.
      init_std: deviation of the normal initialiser of weights.
      clamp_len: distances above this, to either side, count as this; None is off. With "absolute"
        it is places that are clamped.
      attention: attention spec of each layer, for example ("local(window=128)", "dense"), repeated.
      feed_forward: feed-forward spec of each layer, repeated.
      layer_norm_epsilon: added to variances.

    Raises:
      ValueError: a field breaks a rule; the message names the field and the value.
    """

    def __post_init__(self) -> None:
        self.check_stack()
        check_choice(self, "position", POSITIONS)
        self.check_even()
        self.check_specs()

    @property
    def is_causal(self) -> bool:
        """Whether a token sees none behind it: never."""
        return False

    @property
    def mem_len(self) -> int:
        """Memory slots: none."""
        return 0
