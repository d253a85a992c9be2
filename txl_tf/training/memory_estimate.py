"""How much memory a replica will need, before it is asked for."""

import dataclasses

from txl_tf.config import Config

_FLOAT = 4  # bytes; of weights, sums, scores and losses, whatever the precision


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes of one replica.

    Letters as in the shapes everywhere; P is the number of parameters, N = H K, c the bytes of a
    number in the compute precision, B the rows of one step, b those of one part of it (see
    `accumulate_steps`). Attention counts as dense. TensorFlow itself and XLA's compiler take their
    own part besides, on a CPU 0.5 to 1 GB; what a further row adds was measured there, with the
    preset small, as 87 MB against 85 MB by these formulas.

    Attributes:
      weights: 4 P.
      optimizer: 8 P, Adam's two slots.
      gradients: 4 P, or 8 P with parts: the sum so far and what is added to it.
      memory: 2 B L M D c: the one found, and the one left behind.
      activations: of one segment, kept for the way back:
        L b c (6 T D + 4 T N + 2 S N + 2 T F), the residual stream and its two sums and norms,
        queries (with either bias), context, keys, values and the feed-forward net's inside;
        L b 4 (2 H T S), scores and weights; with `rematerialize` these two of one layer, and
        L b c T D, the inputs of all;
        b 4 (3 T V'), logits, their softmax and its gradient; V' is V, or with cut-offs the words
        and clusters of the head: the tails are worked off in small chunks.
    """

    weights: int
    optimizer: int
    gradients: int
    memory: int
    activations: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(dataclasses.astuple(self))

    def __str__(self) -> str:
        parts = dataclasses.asdict(self) | {"total": self.total}
        return " ".join(f"{name}={value / 1e6:.4g}MB" for name, value in parts.items())


def memory_estimate(config: Config, num_parameters: int, num_replicas: int = 1) -> MemoryEstimate:
    """What a run of `config` needs on each of `num_replicas`; see `MemoryEstimate`."""
    model, train = config.model, config.train
    compute = _FLOAT if train.precision == "float32" else 2
    rows = train.batch_size // num_replicas
    memory = 2 * rows * model.num_layers * model.mem_len * model.d_model * compute
    has_parts = train.accumulate_steps > 1
    return MemoryEstimate(
        weights=_FLOAT * num_parameters,
        optimizer=2 * _FLOAT * num_parameters,
        gradients=(2 if has_parts else 1) * _FLOAT * num_parameters,
        memory=memory,
        activations=rows // train.accumulate_steps * _activations_of_a_row(config, compute),
    )


def _activations_of_a_row(config: Config, compute: int) -> int:
    model, tokens = config.model, config.train.segment_len
    keys = model.mem_len + tokens
    inner = model.num_heads * model.head_dim
    stream = tokens * (6 * model.d_model + 4 * inner + 2 * model.d_inner) + keys * 2 * inner
    scores = 2 * model.num_heads * tokens * keys
    words = model.vocab_size
    if model.cutoffs:
        words = model.cutoffs[0] + len(model.cutoffs)
    layer = compute * stream + _FLOAT * scores
    layers = model.num_layers * layer
    if config.train.rematerialize:
        layers = layer + model.num_layers * compute * tokens * model.d_model
    return layers + _FLOAT * 3 * tokens * words
