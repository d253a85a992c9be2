"""What may differ between the config of a run and the one it goes on with, or starts from."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config
from txl_tf.training import schedule

# Fields that only say how training goes on from here; all others decide what the run is.
_FREE_OF_MODEL = {"dropout", "attention_dropout"}
_BOUND_OF_TRAIN = {"seed", "batch_size", "segment_len"}
# Fields of a model that its weights do not depend on.
_NOT_IN_WEIGHTS = _FREE_OF_MODEL | {
    "mem_len",
    "clamp_len",
    "attention_span",
    "attend_to_initial_zeros",
    "init_std",
    "proj_init_std",
}
_MAY_GROW = {"vocab_size"}  # the vocabularies themselves are compared, see `warm_start`


_SMALL = 0.01  # change of the learning rate that is not worth a line


def has_state(model_dir: str) -> bool:
    """Whether there is a checkpoint to go on from."""
    return bool(model_dirs.checkpoints(os.path.join(model_dir, model_dirs.CHECKPOINTS)))


def warn_of_rate(old: Config, new: Config, step: int) -> None:
    """Warns if the learning rate jumps at the step that a run goes on from.

    The schedule is that of the whole run, from its first step to `train_steps`: a longer run has
    another rate at the same step.
    """
    before, after = (float(schedule.of(config.train)(step)) for config in (old, new))
    if step and abs(after - before) > _SMALL * max(before, after):
        peak = new.train.learning_rate * before / after if after else before
        logging.warning(
            "the learning rate jumps at step %d from %.3g to %.3g, as the schedule is now that of "
            "%d steps; learning_rate %.3g would go on with the old rate",
            *(step, before, after, new.train.train_steps, peak),
        )


def check_goes_on(old: Config, new: Config, model_dir: str) -> None:
    """Refuses to go on with another model, other batches or another seed; logs what does change.

    Raises:
      ValueError: names the first such field with both values.
    """
    for section, field, before, after in _changes(old, new):
        free = {
            "model": field in _FREE_OF_MODEL,
            "data": False,
            "train": field not in _BOUND_OF_TRAIN,
            "eval": True,
        }
        if not free[section]:
            raise ValueError(
                f"{section}.{field} must stay {before!r} in {model_dir}, got {after!r}; "
                "for another run take a new model_dir"
            )
        logging.info("%s.%s changes from %r to %r", section, field, before, after)


def check_fits_weights(old: Config, new: Config, model_dir: str) -> None:
    """Refuses to start from the weights of another architecture; vocabularies are not compared.

    Raises:
      ValueError: names the first field that differs, with both values.
    """
    for section, field, before, after in _changes(old, new):
        if section == "model" and field not in _NOT_IN_WEIGHTS | _MAY_GROW:
            raise ValueError(
                f"model.{field} must be {before!r} as in {model_dir}, whose weights are to be "
                f"taken, got {after!r}"
            )


def _changes(old: Config, new: Config) -> Iterator[tuple[str, str, Any, Any]]:
    """Section, field, old and new value wherever two configs differ."""
    for section in dataclasses.fields(Config):
        before, after = (getattr(config, section.name) for config in (old, new))
        for field in dataclasses.fields(before):
            values = getattr(before, field.name), getattr(after, field.name)
            if values[0] != values[1]:
                yield section.name, field.name, *values
