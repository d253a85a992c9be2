"""Checkpoint averaging: the mean of a run's last weights is often better than the last."""

import os
from collections.abc import Sequence

import numpy as np
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.data import outputs, tokenizers
from txl_tf.models.recurrent_model import RecurrentModel


def average(
    run: str, output_dir: str, *, last: int | None = None, steps: Sequence[int] | None = None
) -> list[int]:
    """Writes a model_dir whose weights are the mean of several checkpoints of a run.

    It has the run's config and tokenizer, and the last of the steps. Checkpoints are read one at a
    time; sums are in float64.

    Args:
      run: a model_dir with at least two checkpoints, besides the best.
      output_dir: the model_dir to make; new, or an empty folder.
      last: number of newest checkpoints to average; None averages all.
      steps: the steps to average, instead of `last`.

    Returns:
      The averaged steps, ascending.

    Raises:
      ValueError: too few checkpoints, a damaged one, or an `output_dir` that is not new.
    """
    config, tokenizer = model_dirs.read_config(run), tokenizers.load(run)
    with outputs.held("output_dir", output_dir) as output:
        prefixes = _chosen(run, last, steps)
        model = model_dirs.make_model(config)
        _average(model, list(prefixes.values()))
        with output.filled() as draft:
            model_dirs.save_weights(draft, model, step=max(prefixes))
            model_dirs.describe(draft, config, tokenizer)
    return list(prefixes)


def _chosen(run: str, last: int | None, steps: Sequence[int] | None) -> dict[int, str]:
    """Returns the prefixes of the checkpoints to average, by ascending step."""
    folder = os.path.join(run, model_dirs.CHECKPOINTS)
    kept = {model_dirs.step_of(prefix): prefix for prefix in model_dirs.checkpoints(folder)}
    there = f"{folder} has steps {', '.join(map(str, sorted(kept)))}"
    if len(kept) < 2:
        raise ValueError(
            f"model_dir must hold at least two checkpoints, got {len(kept)} in {folder}; "
            "train.keep_checkpoints is the number that a run keeps"
        )
    if steps is not None:
        if last is not None:
            raise ValueError(f"last must be left out with steps, got {last}")
        if len(set(steps)) < max(2, len(steps)):
            raise ValueError(
                f"steps must name two different checkpoints or more, got {list(steps)}"
            )
        for step in steps:
            if step not in kept:
                raise ValueError(f"steps must be those of saved checkpoints, got {step}; {there}")
        return {step: kept[step] for step in sorted(steps)}
    last = len(kept) if last is None else last
    if not 2 <= last <= len(kept):
        raise ValueError(f"last must lie in 2..{len(kept)}, got {last}; {there}")
    return {step: kept[step] for step in sorted(kept)[-last:]}


def _average(model: RecurrentModel, prefixes: Sequence[str]) -> None:
    """Fills `model` with means; non-float weights are those of the last checkpoint."""
    weights = model_dirs.weights_of(model)
    floats = {name: weight for name, weight in weights.items() if weight.dtype.is_floating}
    sums = {name: np.zeros(weight.shape, np.float64) for name, weight in floats.items()}
    for prefix in prefixes:
        model_dirs.restore_first(
            [prefix], lambda path: model_dirs.restore_checkpoint(weights, path)
        )
        for name, weight in floats.items():
            sums[name] += weight.numpy()
        logging.info("read %s", prefix)
    for name, weight in floats.items():
        weight.assign((sums[name] / len(prefixes)).astype(np.float32))
