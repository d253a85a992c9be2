"""The speedup suite: what a token costs by the paper's sliding window, and by a memory.

Both models are of one size and read one row of one text; a token sees the N = attention_len tokens
up to itself.

    vanilla   absolute positions, no memory: the whole window of N is computed for one token, of
              which the last state alone goes into the softmax; each query meets all N keys, of
              which a mask hides the later ones, as with the paper's
    skipping  the same, but most of the keys that the mask hides are left out, as this library does
              outside of training: `over_skipping` is how much faster ours is than that
    ours      relative positions, keys and values of the last N tokens remembered, segments of
              2,048; distances are clamped at 820, as in the published evaluation

Each is compiled with XLA and without, and its faster way counts: `vanilla_jit`, `ours_jit`. Times
are milliseconds of a token; `of_ceiling` is the part reached of a large matrix product's speed.

What counting says is possible, in FLOPs of one token, a multiplication and an addition being two.
Letters as everywhere; R = min(N, clamp_len + 1) distances differ:

    layers    W = 2 L (4 D H K + 2 D F)     projections and feed-forward net
    vanilla   N (W + 4 L N H K)             scores and sums over N keys; the half that the mask
                                            hides is computed all the same
    ours      W + 4 L N H K + 2 L R H K     one token, N keys, and its scores by position

The softmax, which is the same for both, is left out; so is what is no matrix product.
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

PAPER = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}  # times faster, on one GPU
SETTINGS = ("model.init_std=0.03",)  # large weights let mistakes show
SEGMENT_LEN = 2048
CLAMP_LEN = 820

_WINDOWS = 8  # the vanilla model goes round so many

_LENGTHS = flags.DEFINE_multi_integer(
    "attention_len",
    list(PAPER),
    "Numbers of attended tokens, for --suite=speedup",
    lower_bound=1,
)


class _Way(NamedTuple):
    """Of whom, in what, and whether XLA compiles it."""

    who: str
    precision: str
    jit: bool


def run(config: Config, options: Options) -> list[dict[str, Any]]:
    """Returns a row for each attention length and precision.

    Raises:
      ValueError: a model computes something else than it should, so that its time says nothing.
    """
    return measure(config, options, _LENGTHS.value)


def measure(
    config: Config, options: Options, lengths: list[int], segment_len: int = SEGMENT_LEN
) -> list[dict[str, Any]]:
    """As `run`, at these lengths."""
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
    """Returns the FLOPs of one token, for "vanilla" and "ours"; see above."""
    inner = config.num_heads * config.head_dim
    layer = 2 * (4 * config.d_model * inner + 2 * config.d_model * config.d_inner)
    seen = config.num_layers * (layer + 4 * attention_len * inner)
    distances = config.num_layers * 2 * min(attention_len, CLAMP_LEN + 1) * inner
    return {"vanilla": attention_len * seen, "ours": seen + distances}


class SlidingWindow:
    """Reads the window before each token anew: a call is a token, its result the scores [V].

    Args:
      model: one without memory.
      text: [tokens + 1] ids.
      attention_len: of the window.
      jit: whether XLA compiles it.
      skips: whether keys that a mask hides are left out, where possible.
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
        # In training each query meets each key; without dropout the numbers are the same.
        hidden, _ = self._model.hidden_states(window, training=not self._skips)
        return self._model.scores_of(hidden[-1][:, -1:])  # [1, 1, V]


class Segments:
    """Reads on, segment by segment, and goes round the text: the result of a call is nats [T].

    Args:
      model: one with memory.
      text: [tokens + 1] ids.
      segment_len: T.
      jit: whether XLA compiles it.

    Attributes:
      num_segments: of the text; the last tokens may be left out.
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
        nats, self._memory = self._step(*next(self._pairs), self._memory)
        return nats.numpy()[0]


def _contenders(
    vanilla: TransformerXL,
    ours: TransformerXL,
    options: Options,
    attention_len: int,
    segment_len: int,
) -> dict[Any, Callable[[], object]]:
    """All ways, each held to one pass over all tokens in float32; ours with a full memory."""
    lengths = dict(mem_len=attention_len, attention_span=attention_len)
    text = comparison.draw_ids(ours, attention_len + 2 * segment_len + 1)
    window, ids, targets = (x[np.newaxis] for x in (text[:attention_len], text[:-1], text[1:]))
    scores = vanilla(window)[0].numpy()[0, -1]
    dense = ours.with_lengths(mem_len=0, attention_span=attention_len)
    nats = dense.nll(ids, targets)[0].numpy()[0]
    found: dict[Any, Callable[[], object]] = {}
    for precision, jit in comparison.ways(options):
        told = f"in {precision} jit={str(jit).lower()}"
        for who, skips in (("vanilla", False), ("skipping", True)):
            model = comparison.reader(vanilla, precision)
            sliding = SlidingWindow(model, text, attention_len, jit, skips)
            comparison.check(f"scores of {who} {told}", scores, sliding(), precision)
            found[_Way(who, precision, jit)] = sliding
        reading = Segments(comparison.reader(ours, precision, **lengths), text, segment_len, jit)
        read = np.concatenate([reading() for _ in range(reading.num_segments)])
        comparison.check(f"nats of ours {told}", nats[: len(read)], read, precision)
        found[_Way("ours", precision, jit)] = reading
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
    for who, tokens in (("vanilla", 1), ("skipping", 1), ("ours", segment_len)):
        ways = [w for w in times if isinstance(w, _Way) and w[:2] == (who, precision)]
        fastest = min(ways, key=lambda way: times[way].median)
        median, least, most = (x / tokens for x in times[fastest])
        seconds[who] = median
        row |= {
            f"{who}_jit": fastest.jit,
            f"{who}_ms": 1e3 * median,
            f"{who}_fastest": 1e3 * least,
            f"{who}_slowest": 1e3 * most,
        }
        if who in counted:
            row[f"{who}_of_ceiling"] = counted[who] / median / ceiling_flops
    faster, bound = seconds["vanilla"] / seconds["ours"], counted["vanilla"] / counted["ours"]
    return row | {
        "times_faster": faster,
        "paper": PAPER.get(attention_len),
        "bound": bound,
        "of_bound": faster / bound,
        "over_skipping": seconds["skipping"] / seconds["ours"],
    }
