"""Exports a model to TensorFlow Serving: a SavedModel that includes its tokenizer.

    txl-export-saved-model --model_dir=RUN --output_dir=EXPORTS/NAME

Writes EXPORTS/NAME/1, which a server with --model_name=NAME --model_base_path=EXPORTS/NAME loads as
it is; --version=2 adds a newer version. Signatures: step (ids and state in, scores and state out),
score and generate (text in; loop inside the graph), encode, decode and initial_state. The state is
kept by the client. See docs/serving.md. The last line of stdout is one JSON object.
"""

import json
import os
from typing import NoReturn

from absl import flags, logging

from txl_tf.cli import entry_point, model_flags
from txl_tf.configs import choices
from txl_tf.data import outputs
from txl_tf.progress import Progress

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of all versions; its name is the model's name.", required=True
)
_VERSION = flags.DEFINE_integer(
    "version", 1, "Version number; a server runs the highest.", 1, 2**63 - 1
)
_STATE_DTYPE = flags.DEFINE_enum(
    "state_dtype",
    "float32",
    choices.STATE_DTYPES,
    "Type of the state in messages; float16 halves its size.",
)
model_flags.define({"segment_len": "eval.segment_len"})


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    from txl_tf.export.serving.saved_model import check_version, export_saved_model

    path = os.path.join(_OUTPUT_DIR.value, str(_VERSION.value))
    outputs.checked("output_dir", path, check_version)  # before a model is loaded
    loaded = model_flags.load()
    with Progress("export"):
        description = export_saved_model(
            loaded.model,
            loaded.tokenizer,
            loaded.config,
            _OUTPUT_DIR.value,
            version=_VERSION.value,
            state=model_flags.state(),
            state_dtype=_STATE_DTYPE.value,
            segment_len=model_flags.segment_len(loaded.config),
        )
    logging.info("signatures: %s", ", ".join(description["signatures"]))
    result = {"path": path, "step": loaded.step}
    print(json.dumps(result | {"state_bytes_per_row": description["state_bytes_per_row"]}))


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
