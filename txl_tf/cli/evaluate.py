"""Evaluates a model on a split of prepared data: loss, perplexity, bits per byte and character.

    txl-evaluate --model_dir=RUN --data_dir=DATA --split=test

Scores every token of the split except the first exactly once, with the memory of the tokens before
it in its row; --layout=reference, used by published presets, batches as the original code does.
--eval_preset applies all settings of a published evaluation. The last line of stdout is one JSON
object.
"""

import functools
import json
from typing import TYPE_CHECKING, NoReturn

from absl import flags, logging

from txl_tf.cli import entry_point, model_flags
from txl_tf.configs import presets
from txl_tf.progress import Progress

if TYPE_CHECKING:
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
    entry_point.log_devices()
    from txl_tf.data.batches import Batches
    from txl_tf.inference import evaluation

    loaded = model_flags.load(_EVAL_PRESET.value)
    settings = loaded.config.eval
    batches = Batches(
        _DATA_DIR.value,
        _SPLIT.value,
        batch_size=settings.batch_size,
        segment_len=model_flags.segment_len(loaded.config),
        mode="eval",
        layout=settings.layout,
    )
    batches.metadata.check_vocabulary(loaded.tokenizer.vocab_size, loaded.tokenizer.checksum)
    logging.info("step=%d %s", loaded.step, settings)
    for note in loaded.model.config.warnings():
        logging.info(note)
    with Progress("evaluate", "tokens") as progress:
        found = evaluation.evaluate(
            loaded.model,
            batches,
            reset_memory_at_documents=loaded.config.data.reset_memory_at_documents,
            state=model_flags.state(),
            jit=_JIT.value,
            progress=functools.partial(_reach, progress),
        )
    print(json.dumps(found.to_dict() | {"step": loaded.step}))


def _reach(progress: Progress, done: int, batches: int, totals: "Totals") -> None:
    nats = totals.nats / max(totals.scored, 1)
    progress.reach(totals.scored, done / batches, batch=f"{done}/{batches}", loss=nats)


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
