"""A new run from the weights of another model, whose vocabulary may grow at its end."""

import itertools

import keras
import tensorflow as tf
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config
from txl_tf.data import tokenizers
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training import resume


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
    resume.check_fits_weights(before, config, init_from)
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
