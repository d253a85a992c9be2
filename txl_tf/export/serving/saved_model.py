"""Export of a model as a SavedModel for TF Serving.

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
    """Writes `output_dir`/`version`, complete or not at all; see `signatures.Signatures`.

    Args:
      model: a TransformerXL; the export keeps its lengths and dtype policy.
      tokenizer: of the model.
      config: of the run, for `model.json`.
      output_dir: folder of the model's versions; its name is the model's name.
      version: a server runs the highest version.
      state: the state that clients hold between calls, "kv" or "hidden".
      state_dtype: "float32" or "float16", of the state tensors.
      segment_len: tokens per segment inside `score` and `generate`.

    Returns:
      The contents of `model.json`.

    Raises:
      ValueError: an argument is invalid, the version exists, or a signature does not run or gives
        NaN.
    """
    if not 1 <= version < 2**63:  # int64 in servers
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
            about = description.describe(draft, module.wire, tokenizer, config, model)
            extra = os.path.join(draft, "assets.extra")
            files.make_folder(extra)
            text = json.dumps(about, indent=2) + "\n"
            files.write_bytes(os.path.join(extra, description.FILE_NAME), text.encode())
            name = os.path.basename(os.path.abspath(output_dir))
            requests = os.path.join(extra, warmup.FILE_NAME)
            warmup.write(requests, name, about, functions, warmup.text_of(tokenizer))
    return about


def check_version(name: str, path: str) -> None:
    """Raises if the version exists."""
    if files.exists(path):
        raise ValueError(f"{name} must not hold version {os.path.basename(path)} yet, got {path}")
