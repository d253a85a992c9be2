"""Start of a run: from the weights of another model, or resumed under a changed config."""

import dataclasses
import itertools
import os
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config
from txl_tf.data import tokenizers
from txl_tf.models.recurrent_model import RecurrentModel
from txl_tf.training import optimizer


def check(init_from: str, config: Config, tokenizer: tokenizers.Tokenizer) -> None:
    """Raises if a new run cannot start from these weights.

    Args:
      init_from: the model_dir of the weights.
      config: of the new run.
      tokenizer: of the new run's data.

    Raises:
      ValueError: a setting that weights depend on differs, or the vocabulary is neither that of
        `init_from` nor an extension of it; names the first difference.
    """
    before = model_dirs.read_config(init_from)
    check_fits_weights(before, config, init_from)
    known = tokenizers.load(init_from)
    check_extends(known, tokenizer, init_from)
    size = before.model.vocab_size
    if size not in (known.vocab_size, config.model.vocab_size):  # rows without a symbol
        raise ValueError(
            f"model.vocab_size must stay {size} as in {init_from}, whose vocabulary has "
            f"{known.vocab_size} symbols, got {config.model.vocab_size}"
        )


def check_extends(
    known: tokenizers.Tokenizer, tokenizer: tokenizers.Tokenizer, origin: str
) -> None:
    """Raises if a tokenizer assigns other ids to old text than `known`, which is from `origin`.

    Raises:
      ValueError: names the option, or the first id whose symbol differs.
    """
    if tokenizer.checksum == known.checksum:
        return
    before, after = ({"tokenizer": t.kind} | dict(t.options) for t in (known, tokenizer))
    for name, value in before.items():
        if after.get(name) != value:
            raise ValueError(
                f"{name} must be {value!r} as in {origin}, got {after.get(name)!r}; "
                "prepare_data --extend_vocab takes all settings from there"
            )
    symbols = enumerate(itertools.zip_longest(known.symbols, tokenizer.symbols))
    for token_id, (old, new) in itertools.islice(symbols, known.vocab_size):
        if old != new:
            raise ValueError(
                f"vocabulary must begin with the {known.vocab_size} symbols of {origin}, "
                f"got {'none' if new is None else repr(new)} in place of {old!r} at id {token_id}; "
                "prepare_data --extend_vocab keeps them"
            )
    if not known.can_grow:
        raise ValueError(
            f"vocabulary must be that of {origin}, as a {known.kind} tokenizer cannot grow, "
            f"got another of {tokenizer.vocab_size} symbols"
        )
    if known.unknown_id not in (None, tokenizer.unknown_id):
        raise ValueError(
            f"vocabulary must keep id {known.unknown_id} for unknown symbols, as in {origin}, "
            f"got {tokenizer.unknown_id}"
        )


def take_weights(init_from: str, model: RecurrentModel) -> None:
    """Fills a new model with the weights of `init_from`, except for the rows of new words.

    Old words keep their weights and logits bit by bit. New words keep their initial weights:
    embeddings of `init_std`, biases of 0. Their logits are thus about 0, like an average word's, as
    the gradient of a softmax sums to 0 over the biases. With cut-offs they join the last cluster,
    whose total probability is unchanged.

    Raises:
      ValueError: all checkpoints are damaged, or none was saved.
    """
    weights = model_dirs.weights_of(model)
    grown = model.config.vocab_size - model_dirs.read_config(init_from).model.vocab_size
    names = [model_dirs.name_of(weight) for weight in _last_word_tables(model)] if grown else []
    parts = {name: tf.Variable(weights[name][:-grown]) for name in names}
    step = model_dirs.restore_variables(init_from, weights | parts)
    for name, part in parts.items():
        weights[name].assign(tf.concat([part, weights[name][-grown:]], axis=0))
    logging.info("starting from the weights of %s: step=%d new_words=%d", init_from, step, grown)


def _last_word_tables(model: RecurrentModel) -> list[keras.Variable]:
    """Returns the weights with a row for the last word of the vocabulary."""
    softmax = model.softmax  # has no tables of its own if they are tied
    return [model.embedding.tables[-1], *softmax.tables[-1:], softmax.biases[-1]]


# Fields that may change when a run is resumed; all others define the run.
_RESUMABLE_MODEL_FIELDS = {"dropout", "attention_dropout"}
_FIXED_TRAIN_FIELDS = {"objective", "seed", "batch_size", "segment_len"}
# Fields of a model that do not affect its weights.
_NOT_IN_WEIGHTS = _RESUMABLE_MODEL_FIELDS | {
    "mem_len",
    "clamp_len",
    "attention_span",
    "attend_to_initial_zeros",
    "bidirectional",
    "init_std",
    "proj_init_std",
}
_MAY_GROW = {"vocab_size"}  # `check_extends` compares the vocabularies


_RATE_TOLERANCE = 0.01  # relative change of the learning rate that is not worth a warning


def has_state(model_dir: str) -> bool:
    """Whether the run has a checkpoint to resume from."""
    return bool(model_dirs.checkpoints(os.path.join(model_dir, model_dirs.CHECKPOINTS)))


def warn_if_rate_jumps(old: Config, new: Config, step: int) -> None:
    """Warns if the learning rate jumps at the step where a run resumes.

    The schedule spans the whole run, from its first step to `train_steps`: a longer run has another
    rate at the same step.
    """
    before, after = (float(optimizer.make_schedule(config.train)(step)) for config in (old, new))
    if step and abs(after - before) > _RATE_TOLERANCE * max(before, after):
        peak = new.train.learning_rate * before / after if after else before
        logging.warning(
            "the learning rate jumps at step %d from %.3g to %.3g, as the schedule now spans "
            "%d steps; learning_rate %.3g would keep the old rate",
            *(step, before, after, new.train.train_steps, peak),
        )


def check_resumable(old: Config, new: Config, model_dir: str) -> None:
    """Raises if a run would resume with another model, batches or seed; logs other changes.

    Raises:
      ValueError: names the first such field with both values.
    """
    _check_same_model(old, new, model_dir)
    for section, field, before, after in _changes(old, new):
        free = {
            "model": field in _RESUMABLE_MODEL_FIELDS,
            "data": False,
            "train": field not in _FIXED_TRAIN_FIELDS,
            "eval": True,
        }
        if not free[section]:
            raise ValueError(
                f"{section}.{field} must stay {before!r} in {model_dir}, got {after!r}; "
                "use a new model_dir for another run"
            )
        logging.info("%s.%s changes from %r to %r", section, field, before, after)


def check_fits_weights(old: Config, new: Config, model_dir: str) -> None:
    """Raises if the weights are of another architecture; vocabularies are not compared.

    Raises:
      ValueError: names the first field that differs, with both values.
    """
    _check_same_model(old, new, model_dir)
    for section, field, before, after in _changes(old, new):
        if section == "model" and field not in _NOT_IN_WEIGHTS | _MAY_GROW:
            raise ValueError(
                f"model.{field} must be {before!r} as in {model_dir}, the source of the weights, "
                f"got {after!r}"
            )


def _check_same_model(old: Config, new: Config, model_dir: str) -> None:
    """Raises if the models are of different classes, whose fields cannot be compared."""
    if type(old.model) is not type(new.model):
        before, after = old.train.objective, new.train.objective
        raise ValueError(f"train.objective must be {before!r} as in {model_dir}, got {after!r}")


def _changes(old: Config, new: Config) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields section, field, old and new value wherever two configs differ."""
    for section in dataclasses.fields(Config):
        before, after = (getattr(config, section.name) for config in (old, new))
        for field in dataclasses.fields(before):
            values = getattr(before, field.name), getattr(after, field.name)
            if values[0] != values[1]:
                yield section.name, field.name, *values
