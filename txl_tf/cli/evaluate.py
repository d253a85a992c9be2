"""Measures a model on a split of prepared data: loss, perplexity, bits per byte and character.

    txl-evaluate --model_dir=RUN --data_dir=DATA --split=test

Every token of the split but the first is scored once, with the memory of those before it in its
row; --layout=reference, which published presets have, batches as the original code did.
--eval_preset takes all settings of a published evaluation at once. The last line of stdout is one
JSON object.
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

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder that prepare_data wrote.", required=True)
_SPLIT = flags.DEFINE_string("split", "valid", "Which split of the data.")
_EVAL_PRESET = flags.DEFINE_enum(
    "eval_preset",
    None,
    presets.names(),
    "Evaluate by the whole eval section of this preset (batch size, segment, memory, clamp, span "
    "and layout as published) in place of the model's. Where a flag or --set says otherwise, it "
    "wins.",
)
_JIT = flags.DEFINE_bool("jit", False, "Compile with XLA; pays where there is a GPU or a TPU.")
model_flags.define(
    {
        "batch_size": "eval.batch_size",
        "segment_len": "eval.segment_len",
        "layout": "eval.layout",
        "reset_memory_at_documents": "data.reset_memory_at_documents",
    }
)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses arguments that are no flags
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
