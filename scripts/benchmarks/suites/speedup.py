"""The speedup suite: cost of a token with the paper's sliding window, and with memory.

Both models have the same size and read one row of the same text; a token attends to the
N = attention_len tokens up to itself.

    vanilla   absolute positions, no memory: computes a whole window of N for one token, with the
              softmax of its last state only; scores all N keys for each query and masks the later
              ones, as the paper's baseline does
    skipping  the same, but leaves out most of the masked keys, as this library does outside of
              training: `over_skipping` is how much faster ours is than that
    ours      relative positions, a key-value cache of the last N tokens, segments of 2,048;
              distances are clamped at 820, as in the published evaluation

Each runs with XLA and without, and the faster variant counts: `vanilla_jit`, `ours_jit`. Times are
milliseconds per token; `of_ceiling` is the fraction of the speed of a large matrix product.

The bound from FLOPs per token, a multiply-add being two; letters as in shapes, with
R = min(N, clamp_len + 1) distinct distances:

    layers    W = 2 L (4 D H K + 2 D F)     projections and feed-forward net
    vanilla   N (W + 4 L N H K)             scores and sums over N keys, masked or not
    ours      W + 4 L N H K + 2 L R H K     one token, N keys, and its position scores

The softmax, which is the same for both, and everything but matrix products is left out.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags, logging

from benchmarks import comparison, roofline, timing
from benchmarks.options import Options
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.configs.run import Config
from txl_tf.inference import decode_state as states
from txl_tf.models.transformer_xl import TransformerXL

PAPER = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}  # published speedups, on one GPU
SETTINGS = ("model.init_std=0.03",)  # large weights make errors visible
SEGMENT_LEN = 2048
CLAMP_LEN = 820

_WINDOWS = 8  # that the vanilla model cycles through

_LENGTHS = flags.DEFINE_multi_integer(
    "attention_len",
    list(PAPER),
    "Numbers of attended tokens, for --suite=speedup",
    lower_bound=1,
)


class _Variant(NamedTuple):
    """A model in a precision, with or without XLA."""

    model: str
    precision: str
    jit: bool


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each attention length and precision.

    Raises:
      ValueError: the outputs of a model are wrong, so its time is meaningless.
    """
    return measure(config, options, _LENGTHS.value)


def measure(
    config: Config, options: Options, lengths: list[int], segment_len: int = SEGMENT_LEN
) -> list[dict[str, Any]]:
    """Runs the suite at given lengths; see `run`."""
    vanilla = TransformerXL(vanilla_config(config.model))
    ours = TransformerXL(
        dataclasses.replace(config.model, clamp_len=CLAMP_LEN, attend_to_initial_zeros=False)
    )
    ceilings = {precision: roofline.product(precision) for precision in options.precisions}
    rows = []
    for length in lengths:
        logging.info("attention_len=%d", length)
        contenders = _contenders(vanilla, ours, options, length, segment_len)
        times = timing.race(contenders | ceilings, options.repeats)
        for precision in options.precisions:
            rows.append(_row(times, precision, config.model, length, segment_len))
    return rows


def vanilla_config(config: TransformerXLConfig) -> TransformerXLConfig:
    """Returns the paper's baseline: the same size with absolute positions."""
    return dataclasses.replace(
        config,
        position="absolute",
        num_positions=None,
        dropout=0.0,
        attention_dropout=0.0,
        mem_len=0,
        clamp_len=None,
        attention_span=None,
        attend_to_initial_zeros=False,
    )


def flops(config: TransformerXLConfig, attention_len: int) -> dict[str, float]:
    """Returns the FLOPs per token of "vanilla" and "ours"; see the module's docstring."""
    inner = config.num_heads * config.head_dim
    layer = 2 * (4 * config.d_model * inner + 2 * config.d_model * config.d_inner)
    token = config.num_layers * (layer + 4 * attention_len * inner)
    distances = config.num_layers * 2 * min(attention_len, CLAMP_LEN + 1) * inner
    return {"vanilla": attention_len * token, "ours": token + distances}


class SlidingWindow:
    """Recomputes a whole window for each token; a call processes a token and returns scores [V].

    Args:
      model: a model without memory.
      text: ids, [tokens + 1].
      attention_len: length of the window.
      jit: whether XLA compiles it.
      skips: whether masked keys are left out where possible.
    """

    def __init__(
        self, model: TransformerXL, text: np.ndarray, attention_len: int, jit: bool, skips: bool
    ):
        starts = range(min(_WINDOWS, len(text) - attention_len))
        windows = [tf.constant(text[np.newaxis, i : i + attention_len]) for i in starts]
        self._windows = itertools.cycle(windows)
        self._model = model
        self._skips = skips
        self._step = tf.function(self._last_scores, jit_compile=jit, autograph=False)

    def __call__(self) -> np.ndarray:
        return self._step(next(self._windows)).numpy()[0, 0]

    def _last_scores(self, window):
        # Training mode scores all keys for each query; without dropout the outputs are the same.
        hidden, _ = self._model.hidden_states(window, training=not self._skips)
        return self._model.scores_of(hidden[-1][:, -1:])  # [1, 1, V]


class Segments:
    """Reads a text segment by segment, in a cycle; a call returns the loss of a segment, [T].

    Args:
      model: a model with memory.
      text: ids, [tokens + 1].
      segment_len: T.
      jit: whether XLA compiles it.

    Attributes:
      num_segments: number of whole segments of the text.
    """

    def __init__(self, model: TransformerXL, text: np.ndarray, segment_len: int, jit: bool):
        self.num_segments = (len(text) - 1) // segment_len
        end = self.num_segments * segment_len
        ids, targets = _cut(text[:end], segment_len), _cut(text[1 : end + 1], segment_len)
        self._pairs = itertools.cycle(list(zip(ids, targets, strict=True)))
        state = states.make("kv", model, segment_len)
        self._memory = state.initial(1)
        self._step = tf.function(state.nll, jit_compile=jit, autograph=False)

    def __call__(self) -> np.ndarray:
        loss, self._memory = self._step(*next(self._pairs), self._memory)
        return loss.numpy()[0]


def _contenders(
    vanilla: TransformerXL,
    ours: TransformerXL,
    options: Options,
    attention_len: int,
    segment_len: int,
) -> dict[Any, Callable[[], object]]:
    """Returns all variants, each checked against one pass over all tokens in float32."""
    lengths = dict(mem_len=attention_len, attention_span=attention_len)
    text = comparison.draw_ids(ours, attention_len + 2 * segment_len + 1)
    window, ids, targets = (x[np.newaxis] for x in (text[:attention_len], text[:-1], text[1:]))
    scores = vanilla(window)[0].numpy()[0, -1]
    dense = ours.with_lengths(mem_len=0, attention_span=attention_len)
    loss = dense.nll(ids, targets)[0].numpy()[0]
    found: dict[Any, Callable[[], object]] = {}
    for precision, jit in comparison.precisions_and_jits(options):
        variant = f"{precision} jit={str(jit).lower()}"
        for name, skips in (("vanilla", False), ("skipping", True)):
            model = comparison.reader(vanilla, precision)
            sliding = SlidingWindow(model, text, attention_len, jit, skips)
            comparison.check(f"scores of {name} {variant}", scores, sliding(), precision)
            found[_Variant(name, precision, jit)] = sliding
        segments = Segments(comparison.reader(ours, precision, **lengths), text, segment_len, jit)
        read = np.concatenate([segments() for _ in range(segments.num_segments)])
        comparison.check(f"loss of ours {variant}", loss[: len(read)], read, precision)
        found[_Variant("ours", precision, jit)] = segments  # its memory is full now
    return found


def _cut(ids: np.ndarray, size: int) -> list[tf.Tensor]:
    return [tf.constant(part) for part in ids.reshape(-1, 1, size)]


def _row(
    times: Mapping[Any, timing.Timing],
    precision: str,
    config: TransformerXLConfig,
    attention_len: int,
    segment_len: int,
) -> dict[str, Any]:
    counted = flops(config, attention_len)
    ceiling_flops = roofline.FLOPS / times[precision].median
    row: dict[str, Any] = {"attention_len": attention_len, "precision": precision}
    seconds = {}
    for name, tokens in (("vanilla", 1), ("skipping", 1), ("ours", segment_len)):
        variants = [v for v in times if isinstance(v, _Variant) and v[:2] == (name, precision)]
        best = min(variants, key=lambda variant: times[variant].median)
        median, fastest, slowest = (x / tokens for x in times[best])
        seconds[name] = median
        row |= {
            f"{name}_jit": best.jit,
            f"{name}_ms": 1e3 * median,
            f"{name}_fastest": 1e3 * fastest,
            f"{name}_slowest": 1e3 * slowest,
        }
        if name in counted:
            row[f"{name}_of_ceiling"] = counted[name] / median / ceiling_flops
    speedup, bound = seconds["vanilla"] / seconds["ours"], counted["vanilla"] / counted["ours"]
    return row | {
        "times_faster": speedup,
        "paper": PAPER.get(attention_len),
        "bound": bound,
        "of_bound": speedup / bound,
        "over_skipping": seconds["skipping"] / seconds["ours"],
    }
