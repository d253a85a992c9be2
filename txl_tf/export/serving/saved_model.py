"""Writes a model as a SavedModel that TF Serving loads as it is.

NAME/VERSION/saved_model.pb, variables/
NAME/VERSION/assets/               the tokenizer, as in a model_dir
NAME/VERSION/assets.extra/model.json
NAME/VERSION/assets.extra/tf_serving_warmup_requests
"""

import json
import os
import tempfile
from typing import Any

import tensorflow as tf

from txl_tf.configs.run import Config
from txl_tf.data import files, outputs
from txl_tf.data.tokenizers import Tokenizer
from txl_tf.export.serving import description, warmup
from txl_tf.export.serving.signatures import Signatures


def export_saved_model(
    model,
    tokenizer: Tokenizer,
    config: Config,
    output_dir: str,
    *,
    version: int = 1,
    state: str = "kv",
    state_dtype: str = "float32",
    segment_len: int = 128,
) -> dict[str, Any]:
    """Writes `output_dir`/`version`, whole or not at all; see `signatures.Signatures`.

    Args:
      model: a TransformerXL; its lengths and dtype policy are those of the export.
      tokenizer: the one it was trained with.
      config: of the run, for `model.json`.
      output_dir: the folder of the model's versions; its name is the name of the model.
      version: a server runs the highest that it finds.
      state: what clients hold from call to call, "kv" or "hidden".
      state_dtype: "float32" or "float16", of the state on the wire.
      segment_len: tokens read at once inside `score` and `generate`.

    Returns:
      what `model.json` holds.

    Raises:
      ValueError: a value breaks a rule, this version is there already, or a signature does not
        run or gives NaN.
    """
    if not 1 <= version < 2**63:  # int64, as a server reads it
        raise ValueError(f"version must be at least 1 and below 2**63, got {version}")
    path = os.path.join(output_dir, str(version))
    with outputs.held("output_dir", path, check_version) as output:
        module = Signatures(
            model, tokenizer, state=state, state_dtype=state_dtype, segment_len=segment_len
        )
        with output.filled() as draft, tempfile.TemporaryDirectory() as folder:
            tokenizer.save(folder)
            names = sorted(os.listdir(folder))
            module.assets = [tf.saved_model.Asset(os.path.join(folder, name)) for name in names]
            functions = module.concrete()
            tf.saved_model.save(module, draft, signatures=functions)
            told = description.describe(draft, module.wire, tokenizer, config, model)
            extra = os.path.join(draft, "assets.extra")
            files.make_folder(extra)
            text = json.dumps(told, indent=2) + "\n"
            files.write_bytes(os.path.join(extra, description.FILE_NAME), text.encode())
            name = os.path.basename(os.path.abspath(output_dir))
            requests = os.path.join(extra, warmup.FILE_NAME)
            warmup.write(requests, name, told, functions, warmup.text_of(tokenizer))
    return told


def check_version(name: str, path: str) -> None:
    """Refuses a version that is there."""
    if files.exists(path):
        raise ValueError(f"{name} must not hold version {os.path.basename(path)} yet, got {path}")
