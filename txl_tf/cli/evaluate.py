"""Evaluates a model on a split of prepared data: loss, perplexity, bits per byte and character.

    txl-evaluate --model_dir=RUN --data_dir=DATA --split=test

Scores every token of the split except the first exactly once, with the memory of the tokens before
it in its row; --layout=reference, used by published presets, batches as the original code does.
--eval_preset applies all settings of a published evaluation.

--sliding evaluates without memory, in overlapping windows of --segment_len tokens, each --stride
tokens after the one before. Only the last --stride tokens of a window are scored, so that each has
a long context. This is how models without memory are evaluated, at segment_len / stride the cost.

The last line of stdout is one JSON object. ms_per_token is the time of the batches after the first.
"""

import json
import time
from typing import TYPE_CHECKING, NoReturn

from absl import app, flags, logging

from txl_tf.cli import entry_point, model_flags
from txl_tf.configs import presets
from txl_tf.configs.objectives import NEXT_TOKEN, OBJECTIVES
from txl_tf.configs.run import EvalConfig
from txl_tf.progress import Progress

if TYPE_CHECKING:
    from txl_tf.data.batches import Batches
    from txl_tf.data.sliding import SlidingBatches
    from txl_tf.inference.evaluation import Totals

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Prepared data, the output of prepare_data.", required=True
)
_SPLIT = flags.DEFINE_string("split", "valid", "Split to evaluate.")
_EVAL_PRESET = flags.DEFINE_enum(
    "eval_preset",
    None,
    presets.names(),
    "Use the eval section of this preset (published batch_size, segment_len, mem_len, clamp_len, "
    "attention_span and layout) instead of the model's. Flags and --set take precedence.",
)
_SLIDING = flags.DEFINE_bool("sliding", False, "Evaluate overlapping windows, without memory.")
_STRIDE = flags.DEFINE_integer(
    "stride", 1, "With --sliding: tokens from one window to the next.", lower_bound=1
)
_JIT = flags.DEFINE_bool("jit", False, "Compile with XLA; usually slower on a CPU.")
model_flags.define(
    {
        "batch_size": "eval.batch_size",
        "segment_len": "eval.segment_len",
        "layout": "eval.layout",
        "reset_memory_at_documents": "data.reset_memory_at_documents",
    }
)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    _check_flags()
    entry_point.log_devices()
    from txl_tf.inference import evaluation

    supported = NEXT_TOKEN if _SLIDING.value else tuple(OBJECTIVES)
    loaded = model_flags.load(_EVAL_PRESET.value, supported)
    settings, segment_len = loaded.config.eval, model_flags.segment_len(loaded.config)
    model, batches = loaded.model, _batches(settings, segment_len)
    if _SLIDING.value:
        model = model.with_lengths(mem_len=0)
    batches.metadata.check_vocabulary(loaded.tokenizer.vocab_size, loaded.tokenizer.checksum)
    logging.info("step=%d %s", loaded.step, settings)
    with Progress("evaluate", "tokens") as progress:
        clock = _Clock(progress)
        found = evaluation.evaluate(
            model,
            batches,
            reset_memory_at_documents=loaded.config.data.reset_memory_at_documents,
            state=model_flags.state(),
            jit=_JIT.value,
            objective=loaded.config.train.objective_spec,
            progress=clock.reach,
        )
    result = found.to_dict() | {"step": loaded.step, "ms_per_token": clock.ms_per_token}
    if _SLIDING.value:
        result |= {"window": segment_len, "stride": _STRIDE.value}
    print(json.dumps(result))


def _check_flags() -> None:
    if _SLIDING.value:
        model_flags.refuse("a window has no memory", "mem_len")
        model_flags.refuse("windows have a layout of their own", "layout")
    elif flags.FLAGS["stride"].present:
        raise app.UsageError("--stride must be left out: it is that of --sliding")


def _batches(settings: EvalConfig, segment_len: int) -> "Batches | SlidingBatches":
    from txl_tf.data.batches import Batches
    from txl_tf.data.sliding import SlidingBatches

    if _SLIDING.value:
        return SlidingBatches(
            _DATA_DIR.value,
            _SPLIT.value,
            batch_size=settings.batch_size,
            window=segment_len,
            stride=_STRIDE.value,
        )
    return Batches(
        _DATA_DIR.value,
        _SPLIT.value,
        batch_size=settings.batch_size,
        segment_len=segment_len,
        mode="eval",
        layout=settings.layout,
    )


class _Clock:
    """Reports progress, and times the batches after the first, which compiles.

    Attributes:
      ms_per_token: milliseconds for each scored token; None for a single batch.
    """

    def __init__(self, progress: Progress):
        self._progress = progress
        self._first: tuple[float, int] | None = None
        self.ms_per_token: float | None = None

    def reach(self, done: int, batches: int, totals: "Totals") -> None:
        now, scored = time.perf_counter(), totals.scored
        if self._first is None:
            self._first = now, scored
        start, already_scored = self._first
        if scored > already_scored:
            self.ms_per_token = 1e3 * (now - start) / (scored - already_scored)
        nats = totals.nats / max(scored, 1)
        self._progress.reach(scored, done / batches, batch=f"{done}/{batches}", loss=nats)


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
