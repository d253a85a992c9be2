"""Exports a model's weights to another implementation; the inverse of import_checkpoint.

    txl-export --format=tf1 --model_dir=RUN --output_dir=DIR
    txl-export --format=huggingface --model_dir=RUN --output_dir=DIR
    txl-export --format=xlnet --model_dir=RUN --output_dir=DIR

tf1 writes model.ckpt-STEP and config.json with the original's flags; huggingface writes the files
of TransfoXLLMHeadModel.from_pretrained, xlnet those of XLNetLMHeadModel.from_pretrained. The
tokenizer is written to DIR/tokenizer. A warning lists what the other code computes differently with
the same weights; options that it does not support are refused. The last line of stdout is one JSON
object.
"""

import json
from typing import NoReturn

from absl import flags

from txl_tf.cli import entry_point
from txl_tf.configs import choices
from txl_tf.data import outputs
from txl_tf.progress import Progress

_FORMAT = flags.DEFINE_enum(
    "format", None, choices.EXPORT_FORMATS, "Implementation to export to.", required=True
)
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Model, the output of train or import_checkpoint.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "New folder to write.", required=True)
_CHECKPOINT = flags.DEFINE_enum(
    "checkpoint",
    None,
    ["best", "latest"],
    "Weights to use; default: the best if saved, else the latest.",
)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    outputs.checked("output_dir", _OUTPUT_DIR.value)
    from txl_tf import model_dir as model_dirs
    from txl_tf.conversion import export_checkpoint

    loaded = model_dirs.load(_MODEL_DIR.value, _CHECKPOINT.value)
    with Progress("export"):
        parameters = export_checkpoint.export_checkpoint(_FORMAT.value, loaded, _OUTPUT_DIR.value)
    result = {"output_dir": _OUTPUT_DIR.value, "format": _FORMAT.value}
    print(json.dumps(result | {"parameters": parameters, "step": loaded.step}))


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
