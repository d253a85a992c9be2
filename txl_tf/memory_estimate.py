"""Estimates of the memory of training and inference, from the config alone."""

import dataclasses
from collections.abc import Iterator, Sequence

from txl_tf.configs.backbones import Backbone as Model
from txl_tf.configs.layer_specs import LayerSpec
from txl_tf.configs.model import StarTransformerConfig, TransformerXLConfig
from txl_tf.configs.run import TrainConfig

_FLOAT = 4  # bytes: weights, sums, scores and losses are float32 in every precision
_STACK_SIZES = ("d_inner", "attention", "feed_forward")
_GENERATED = 48  # bytes of a generated id: two arrays, a list and its text


class _Parts:
    """Base class of estimates: dataclasses whose fields are bytes."""

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by name."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @property
    def total(self) -> int:
        """Sum of the parts in bytes."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = self.parts | {"total": self.total}
        return " ".join(f"{name}={value / 1e6:.4g}MB" for name, value in parts.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryEstimate(_Parts):
    """Bytes of one replica in training.

    Letters as in shapes; P is the number of parameters, N = H K, c the bytes of a value in the
    compute precision, B the rows of a step, b the rows of a microbatch (see `accumulate_steps`),
    S' the scores of a query in a layer: S if dense, min(S, reach + 1) with a window. TensorFlow and
    XLA's compiler need another 0.5 to 1 GB on a CPU, where each further row of preset small was
    measured at 87 MB, against 85 MB by these formulas.

    Attributes:
      weights: 4 P.
      optimizer: 8 P, Adam's two slots.
      gradients: 4 P, or 8 P with several microbatches: the sum and the next addend.
      memory: 2 B L M D c: before and after the step.
      activations: of one segment, kept for the backward pass:
        L b c (6 T D + 4 T N + 2 S N + 2 T F), the residual stream and its two sums and norms,
        queries (with either bias), context, keys, values and the feed-forward net's hidden layer;
        L b 4 (2 H T S'), scores and weights; with `rematerialize` these two of one layer, and
        L b c T D, the inputs of all; for two streams, all these twice; for a
        Star-Transformer, instead of all these, L b T (c (3 D + 12 N) + 4 (12 H)), with six scores
        and weights of a token and head;
        b 4 (3 T' V'), logits, their softmax and its gradient; T' is the number of targets, V' is V,
        or with cut-offs the size of the head (words and clusters), as tails are computed in small
        chunks.
    """

    weights: int
    optimizer: int
    gradients: int
    memory: int
    activations: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceEstimate(_Parts):
    """Bytes of evaluation, scoring, generation or an export, without the weights.

    Letters as in `MemoryEstimate`.

    Attributes:
      encodings: L R N c, the cached projections of the R distances within reach.
      state: 2 B L M 2 N c, keys and values before and after a step; for hidden states
        2 B L M D c.
      activations: B (2 S N c + 4 T (D + V')), keys and values of one layer, its output, and the
        logits. Attention is computed in blocks.
      generated: 48 for each generated id.
    """

    encodings: int
    state: int
    activations: int
    generated: int = 0


def min_weight_bytes(model: Model) -> int:
    """Returns a lower bound of the bytes of the weights."""
    return _FLOAT * min_parameters(model)


def min_parameters(model: Model) -> int:
    """Returns a lower bound of the number of parameters.

    Counts embeddings and the matrices of the layers, but not norms, biases, softmax tables and
    projections of embeddings.
    """
    if isinstance(model, StarTransformerConfig):
        rows = model.vocab_size + (model.num_positions or 0)
        kernels = 8 * model.num_layers * model.num_heads * model.head_dim
        return (rows + kernels) * model.d_model
    total = 0
    for spec, count in _repeated(model.feed_forward_specs, model.num_layers):
        total += count * spec.num_nets * 2 * model.d_model * model.d_inner
    for spec, count in _repeated(model.attention_specs, model.num_layers):
        total += spec.num_own_parameters(count, model.num_heads)
        heads = spec.num_query_heads(model.num_heads) + 3 * model.num_heads
        total += count * heads * model.d_model * model.head_dim
    if not isinstance(model, TransformerXLConfig):
        return total + model.vocab_size * model.d_model
    ends = [*model.cutoffs, model.vocab_size]
    for cluster, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        total += (end - start) * (model.embed_dim // model.div_val**cluster)
    return total + (model.num_positions or 0) * model.head_dim


def sizes_of(model: Model) -> dict[str, object]:
    """Returns the settings that determine the number of weights, by name."""
    names = ("vocab_size", "num_layers", "d_model", "num_heads", "head_dim")
    more = ("num_positions",) if isinstance(model, StarTransformerConfig) else _STACK_SIZES
    return {name: getattr(model, name) for name in (*names, *more)}


def memory_estimate(
    model: Model,
    train: TrainConfig,
    num_parameters: int,
    num_replicas: int = 1,
    *,
    num_tokens: int | None = None,
    num_words: int | None = None,
) -> MemoryEstimate:
    """Estimates the memory of training on each of `num_replicas`.

    Args:
      model: model config of the run.
      train: training config of the run.
      num_parameters: P.
      num_replicas: number of replicas that share the rows.
      num_tokens: T; None is `train.segment_len`.
      num_words: V'; None is the model's.
    """
    compute = _FLOAT if train.precision == "float32" else 2
    rows = train.batch_size // num_replicas
    memory = 2 * rows * model.num_layers * model.mem_len * model.d_model * compute
    accumulates = train.accumulate_steps > 1
    tokens = train.segment_len if num_tokens is None else num_tokens
    words = _num_words(model) if num_words is None else num_words
    objective = train.objective_spec
    targets = objective.num_predict(tokens)
    streams = 1 if objective.predicts_all else 2
    layers = streams * _layers_of_a_row(model, tokens, compute, train.rematerialize)
    return MemoryEstimate(
        weights=_FLOAT * num_parameters,
        optimizer=2 * _FLOAT * num_parameters,
        gradients=(2 if accumulates else 1) * _FLOAT * num_parameters,
        memory=memory,
        activations=rows // train.accumulate_steps * (layers + _FLOAT * 3 * targets * words),
    )


def inference_estimate(
    model: TransformerXLConfig,
    num_rows: int,
    num_tokens: int,
    *,
    mem_len: int | None = None,
    num_encodings: int = 0,
    compute: int = _FLOAT,
    keeps_keys: bool = True,
    num_generated: int = 0,
) -> InferenceEstimate:
    """Estimates the memory of inference.

    Args:
      model: config of the model.
      num_rows: B.
      num_tokens: T, the ids of a call.
      mem_len: M; None is the model's.
      num_encodings: number of cached projected distances.
      compute: c.
      keeps_keys: whether the state is keys and values rather than hidden states.
      num_generated: ids to generate for each row.
    """
    slots = model.mem_len if mem_len is None else mem_len
    keys, inner = slots + num_tokens, model.num_heads * model.head_dim
    distances = sum(
        spec.num_scores(num_encodings) * count
        for spec, count in _repeated(model.attention_specs, model.num_layers)
    )
    width = 2 * inner if keeps_keys else model.d_model
    activations = 2 * keys * inner * compute + _FLOAT * num_tokens * (
        model.d_model + _num_words(model)
    )
    return InferenceEstimate(
        encodings=distances * inner * compute,
        state=2 * num_rows * model.num_layers * slots * width * compute,
        activations=num_rows * activations,
        generated=_GENERATED * num_rows * num_generated,
    )


def _layers_of_a_row(model: Model, tokens: int, compute: int, rematerialize: bool) -> int:
    keys = model.mem_len + tokens
    inner = model.num_heads * model.head_dim
    if isinstance(model, StarTransformerConfig):
        stream = compute * (3 * model.d_model + 12 * inner)
        return model.num_layers * tokens * (stream + _FLOAT * 12 * model.num_heads)
    stream = tokens * (6 * model.d_model + 4 * inner + 2 * model.d_inner) + keys * 2 * inner
    layers = [
        (compute * stream + _FLOAT * 2 * model.num_heads * tokens * spec.num_scores(keys), count)
        for spec, count in _repeated(model.attention_specs, model.num_layers)
    ]
    if rematerialize:
        inputs = model.num_layers * compute * tokens * model.d_model
        return max(layer for layer, _ in layers) + inputs
    return sum(layer * count for layer, count in layers)


def _repeated(specs: Sequence[LayerSpec], num_layers: int) -> Iterator[tuple[LayerSpec, int]]:
    """Yields each spec with its number of layers; there may be millions of layers."""
    for index, spec in enumerate(specs):
        count = num_layers // len(specs) + (index < num_layers % len(specs))
        if count:
            yield spec, count


def _num_words(model: Model) -> int:
    """Returns V', the number of logits of a token that are computed at once."""
    if isinstance(model, TransformerXLConfig) and model.cutoffs:
        return model.cutoffs[0] + len(model.cutoffs)
    return model.vocab_size
