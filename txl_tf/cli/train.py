"""Trains a Transformer-XL on data prepared by prepare_data; resumes the run if it exists.

    txl-train --data_dir=DATA --model_dir=RUN --preset=tiny --train_steps=1000

A new run starts from the preset, changed by flags. If model_dir holds a run, its config is used
instead (or --preset, if given); changes that would make it a different run are refused, and so is
other data without --new_data. The last line of stdout is one JSON object. Exit code 75: stopped by
a signal or a preemption notice with a saved checkpoint; run the same command again to resume.

Fine-tuning, with a vocabulary that extends that of the model:

    txl-prepare --extend_vocab=MODEL --train=TEXT --output_dir=DATA
    txl-train --data_dir=DATA --init_from=MODEL --model_dir=RUN --train_steps=1000
"""

import dataclasses
import json
from typing import NoReturn

from absl import app, flags

from txl_tf.cli import config_flags, entry_point
from txl_tf.configs import choices, presets
from txl_tf.configs.run import Config
from txl_tf.data.metadata import Metadata
from txl_tf.inference.metrics import plain
from txl_tf.training import interruption

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Prepared data, the output of prepare_data.", required=True
)
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Folder of the run, new or to be resumed.", required=True
)
_INIT_FROM = flags.DEFINE_string(
    "init_from",
    None,
    "Another model_dir whose weights a new run starts from, with a new optimizer, and with its "
    "config unless --preset is given. The vocabulary of the data must be that of the model, or "
    "extend it.",
)
_NEW_DATA = flags.DEFINE_bool(
    "new_data",
    False,
    "Resume with other text or other validation settings; resets the position in the text and the "
    "memory, or the best validation.",
)
_STRATEGY = flags.DEFINE_enum(
    "strategy",
    "auto",
    choices.STRATEGIES,
    "Devices that share the rows of a step: one_device; mirrored, all GPUs of this machine; "
    "multi_worker, the machines of TF_CONFIG; tpu. auto uses the last of these that is available.",
)
_TPU = flags.DEFINE_string("tpu", None, "TPU to use: local, a name, or grpc://ADDRESS.")
_PROFILE_STEPS = flags.DEFINE_string(
    "profile_steps",
    None,
    "FIRST,LAST: steps to trace for TensorBoard's profiler, in model_dir/tensorboard.",
)
_PREEMPTION_NOTICE = flags.DEFINE_enum(
    "preemption_notice",
    "none",
    list(interruption.NOTICES),
    "Source of preemption notices, asked every few seconds; on a notice, the run saves a "
    "checkpoint and stops. gce is the metadata server of a Google Compute Engine or TPU VM.",
)
_PRESET = config_flags.define_preset(None)
config_flags.define_shorthands(
    {
        "batch_size": "train.batch_size",
        "segment_len": "train.segment_len",
        "train_steps": "train.train_steps",
        "learning_rate": "train.learning_rate",
        "precision": "train.precision",
        "jit": "train.jit",
        "seed": "train.seed",
        "reset_memory_at_documents": "data.reset_memory_at_documents",
    }
)

_TO_BE_RUN_AGAIN = 75  # EX_TEMPFAIL


def main(argv: list[str]) -> int:
    del argv  # entry_point refuses positional arguments
    import keras

    from txl_tf.training import loop
    from txl_tf.training.distribution import make_distribution

    profile_steps = _profile_steps()
    distribution = make_distribution(_STRATEGY.value, _TPU.value)  # before any other op
    entry_point.log_devices()
    config = _config()
    keras.utils.set_random_seed(config.train.seed)
    result = loop.train(
        config,
        data_dir=_DATA_DIR.value,
        model_dir=_MODEL_DIR.value,
        distribution=distribution,
        init_from=_INIT_FROM.value,
        new_data=_NEW_DATA.value,
        profile_steps=profile_steps,
        preemption_notice=_PREEMPTION_NOTICE.value,
    )
    valid = result.valid.to_dict() if result.valid else None
    summary = dataclasses.asdict(result) | {"valid": valid, "model_dir": _MODEL_DIR.value}
    print(json.dumps(plain(summary)))
    return 0 if result.stopped_by in (None, loop.EARLY_STOP) else _TO_BE_RUN_AGAIN


def _profile_steps() -> tuple[int, int] | None:
    from txl_tf.training import profiler

    try:
        return None if _PROFILE_STEPS.value is None else profiler.parse(_PROFILE_STEPS.value)
    except ValueError as error:
        raise app.UsageError(str(error)) from error


def _config() -> Config:
    """Returns the config of the run: the base, the data's vocabulary size, and flags."""
    from txl_tf import model_dir as model_dirs

    vocab_size = Metadata.load(_DATA_DIR.value).vocab_size
    if _PRESET.value is not None:
        base = presets.preset(_PRESET.value)
    elif model_dirs.exists(_MODEL_DIR.value):
        return config_flags.resolve(model_dirs.read_config(_MODEL_DIR.value))
    elif _INIT_FROM.value is not None:
        base = model_dirs.read_config(_INIT_FROM.value)
    else:
        base = presets.preset("tiny")
    return config_flags.resolve(base, {"model.vocab_size": vocab_size})


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
