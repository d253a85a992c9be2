"""A new run from the weights of another model, whose vocabulary may grow at its end."""

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
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import optimizer


def check(init_from: str, config: Config, tokenizer: tokenizers.Tokenizer) -> None:
    """Refuses weights that a new run cannot start from.

    Args:
      init_from: the model_dir with the weights.
      config: of the new run.
      tokenizer: of the new run's data.

    Raises:
      ValueError: a setting that weights depend on is another, or the vocabulary is neither that of
        `init_from` nor that with more symbols at its end; names the first difference.
    """
    before = model_dirs.read_config(init_from)
    check_fits_weights(before, config, init_from)
    known = tokenizers.load(init_from)
    check_extends(known, tokenizer, init_from)
    size = before.model.vocab_size
    if size not in (known.vocab_size, config.model.vocab_size):  # rows that no symbol has
        raise ValueError(
            f"model.vocab_size must stay {size} as in {init_from}, whose vocabulary is of "
            f"{known.vocab_size} symbols, got {config.model.vocab_size}"
        )


def check_extends(known: tokenizers.Tokenizer, tokenizer: tokenizers.Tokenizer, place: str) -> None:
    """Refuses a tokenizer that gives old text other ids than the one from `place` does.

    Raises:
      ValueError: names the option, or the first id whose symbol is another.
    """
    if tokenizer.checksum == known.checksum:
        return
    before, after = ({"tokenizer": t.kind} | dict(t.options) for t in (known, tokenizer))
    for name, value in before.items():
        if after.get(name) != value:
            raise ValueError(
                f"{name} must be {value!r} as in {place}, got {after.get(name)!r}; "
                "prepare_data --extend_vocab takes all settings from there"
            )
    symbols = enumerate(itertools.zip_longest(known.symbols, tokenizer.symbols))
    for token_id, (old, new) in itertools.islice(symbols, known.vocab_size):
        if old != new:
            raise ValueError(
                f"vocabulary must begin with the {known.vocab_size} symbols of {place}, "
                f"got {'none' if new is None else repr(new)} in place of {old!r} at id {token_id}; "
                "prepare_data --extend_vocab keeps them"
            )
    if not known.can_grow:
        raise ValueError(
            f"vocabulary must be that of {place}, as a {known.kind} tokenizer cannot grow, "
            f"got another of {tokenizer.vocab_size} symbols"
        )
    if known.unknown_id not in (None, tokenizer.unknown_id):
        raise ValueError(
            f"vocabulary must keep id {known.unknown_id} for what it lacks, as in {place}, "
            f"got {tokenizer.unknown_id}"
        )


def take_weights(init_from: str, model: TransformerXL) -> None:
    """Fills a new model with the weights of `init_from`, up to the words that are new.

    Those of other words become bit by bit what they were, and so do their logits. New words keep
    what the initialisers gave the model: embeddings of `init_std`, and biases of 0. So about 0 is
    their logit, and that of an average word: what a softmax's gradient adds to the biases of some
    words it takes from those of others. With cut-offs they join the last cluster, whose
    probability as a whole stays.

    Raises:
      ValueError: there is no undamaged checkpoint.
    """
    weights = model_dirs.weights_of(model)
    grown = model.config.vocab_size - model_dirs.read_config(init_from).model.vocab_size
    names = [model_dirs.name_of(weight) for weight in _of_last_words(model)] if grown else []
    parts = {name: tf.Variable(weights[name][:-grown]) for name in names}
    step = model_dirs.restore_variables(init_from, weights | parts)
    for name, part in parts.items():
        weights[name].assign(tf.concat([part, weights[name][-grown:]], axis=0))
    logging.info("starting from the weights of %s: step=%d new_words=%d", init_from, step, grown)


def _of_last_words(model: TransformerXL) -> list[keras.Variable]:
    """The weights that have a row for the last word of the vocabulary."""
    softmax = model.softmax  # whose own tables are none where they are tied
    return [model.embedding.tables[-1], *softmax.tables[-1:], softmax.biases[-1]]


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
    before, after = (float(optimizer.of(config.train)(step)) for config in (old, new))
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
