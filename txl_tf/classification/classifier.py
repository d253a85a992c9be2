"""A classifier of texts: its model, tokenizer and config, and the folder that keeps them.

config.json                    the ClassifierConfig, labels included
tokenizer.json, vocab.txt      the tokenizer
checkpoints/ckpt-STEP.*        the weights
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from txl_tf import memory_estimate
from txl_tf import model_dir as model_dirs
from txl_tf.classification import batches
from txl_tf.classification.config import ClassifierConfig
from txl_tf.classification.metrics import Scores
from txl_tf.configs.run import POLICIES
from txl_tf.data import files, outputs, tokenizers
from txl_tf.data.labelled_text import Text
from txl_tf.models.sequence_classifier import SequenceClassifier
from txl_tf.ops import machine

_CONFIG = "config.json"
_OUR_FILES = {_CONFIG, model_dirs.CHECKPOINTS, *tokenizers.FILES}
_TOGETHER = 16  # batches of predictions whose texts are put together by length


class Encoded(NamedTuple):
    """Texts as the model reads them.

    Attributes:
      ids: of each text, [n] int32.
      labels: [N] int32, -1 for none.
      cut: how many of the texts are longer than `max_tokens`.
    """

    ids: list[np.ndarray]
    labels: np.ndarray
    cut: int


class Classifier:
    """Gives texts labels.

    Args:
      config: with the labels, and the vocabulary size of the tokenizer.
      tokenizer: made for the training texts.

    Attributes:
      config, tokenizer: as given.
      model: a SequenceClassifier, whose weights are random until trained or restored.
      step: optimizer steps behind the weights.
    """

    def __init__(self, config: ClassifierConfig, tokenizer: tokenizers.Tokenizer):
        self.config = config
        self.tokenizer = tokenizer
        self.step = 0
        sizes = memory_estimate.sizes_of(config.model)
        machine.check_memory({"weights": memory_estimate.least_weights(config.model)}, sizes)
        self.model = SequenceClassifier(
            config.model,
            len(config.labels),
            config.text.pooling,
            segment_len=config.segment_len,
            dtype=POLICIES[config.train.precision],
        )
        self.sizes = batches.sizes(config.text.max_tokens, config.segment_len)
        self._log_probs = tf.function(self._make_log_probs, autograph=False)

    def _make_log_probs(self, ids, lengths):
        scores = self.model(ids, lengths=lengths, global_tokens=self.global_tokens(ids))
        return tf.nn.log_softmax(scores)

    def check_memory(self, longest: int) -> None:
        """Refuses training on texts of at most so many tokens that cannot fit in the machine.

        Raises:
          ValueError: names the bytes, and the settings that they follow from.
        """
        config = self.config
        num_tokens = config.segment_len or next(n for n in self.sizes if n >= longest)
        needed = memory_estimate.memory_estimate(
            config.model,
            config.train,
            memory_estimate.least_parameters(config.model),
            num_tokens=num_tokens,
            num_words=len(config.labels),
        )
        numbers = dict(batch_size=config.train.batch_size, tokens_of_a_text=num_tokens)
        machine.check_memory(needed.parts, numbers | memory_estimate.sizes_of(config.model))

    def global_tokens(self, ids):
        """Which tokens see all, as the config says. [B, T] -> [B, T] bool, or None."""
        if self.config.text.global_tokens == "none":
            return None
        return (tf.zeros_like(ids) + tf.range(ids.shape[1])) == 0

    def encode(self, texts: Sequence[Text]) -> Encoded:
        """Texts as ids."""
        number = {label: i for i, label in enumerate(self.config.labels)}
        labels = [-1 if t.label is None else number[t.label] for t in texts]
        limit, ids, cut = self.config.text.max_tokens, [], 0
        for found in texts:
            whole = self.tokenizer.encode(found.content)
            cut += len(whole) > limit
            ids.append(batches.kept(whole, self.config.text))
        return Encoded(ids, np.array(labels, np.int32), cut)

    def warn_of_cut(self, cut: int, texts: int, name: str) -> None:
        """Logs how many texts are not read to their end, or from their beginning."""
        if cut:
            config = self.config.text
            logging.warning(
                "%d of %d %s texts are longer than max_tokens: of these the %s %d tokens are read",
                *(cut, texts, name, config.keep, config.max_tokens),
            )

    def log_probs(self, encoded: Encoded) -> np.ndarray:
        """Of all labels for each text. -> [N, number of labels] float32."""
        found = np.zeros([len(encoded.ids), len(self.config.labels)], np.float32)
        size = self.config.train.batch_size
        for batch in batches.in_order(encoded.ids, encoded.labels, size, self.sizes):
            real = batch.places >= 0
            log_probs = self._log_probs(tf.constant(batch.ids), tf.constant(batch.lengths))
            found[batch.places[real]] = log_probs.numpy()[real]
        return found

    def evaluate(self, encoded: Encoded) -> Scores:
        """How good the labels are that texts are given."""
        return Scores.of(self.log_probs(encoded), encoded.labels)

    def predict(self, texts: Iterable[Text | str]) -> Iterator[tuple[Text, dict[str, float]]]:
        """The probability of each label, text by text, in the order of texts.

        A text may be a plain string; its name is then its number, counted from 0.
        """
        window = _TOGETHER * self.config.train.batch_size
        named = (Text(str(i), t) if isinstance(t, str) else t for i, t in enumerate(texts))
        count = cut = 0
        while some := list(itertools.islice(named, window)):
            encoded = self.encode(some)
            count, cut = count + len(some), cut + encoded.cut
            probabilities = np.exp(self.log_probs(encoded))
            for found, row in zip(some, probabilities.tolist(), strict=True):
                yield found, dict(zip(self.config.labels, row, strict=True))
        self.warn_of_cut(cut, count, "given")

    def save(self, path: str) -> None:
        """Writes the folder, whole or not at all, in place of a classifier that is there.

        Raises:
          ValueError: something else is there, or another process writes there.
        """
        with outputs.held("model_dir", path, _check_folder) as output:
            self.write(output)

    def write(self, output: outputs.Output) -> None:
        """Writes the folder of an output that this process holds."""
        with output.filled() as folder:
            self.tokenizer.save(folder)
            model_dirs.save_weights(folder, self.model, self.step)
            config = self.config.to_json().encode("utf-8")
            files.write_bytes(os.path.join(folder, _CONFIG), config)

    @classmethod
    def load(cls, path: str) -> "Classifier":
        """Reads what `save` wrote.

        Raises:
          ValueError: it is not there or not in order; names the folder or the file.
        """
        config_path = os.path.join(path, _CONFIG)
        if not files.exists(config_path):
            raise ValueError(
                f"model_dir must hold a {_CONFIG} (train_classifier writes it), got {path}"
            )
        config = files.read_json(config_path, ClassifierConfig.from_json)
        # What it was trained in is not what it has to be used in.
        train = dataclasses.replace(config.train, precision="float32")
        found = cls(dataclasses.replace(config, train=train), tokenizers.load(path))
        found.step = model_dirs.restore_weights(path, found.model)
        return found


def _check_folder(name: str, path: str) -> None:
    """Refuses to replace anything but a classifier: a language model has the same files."""
    if not files.is_folder(path) or not files.names(path):
        outputs.check_new(name, path)
        return
    for found in files.names(path):
        if found not in _OUR_FILES:
            raise ValueError(f"{name} must hold nothing but a classifier, got {path}/{found}")
    try:
        files.read_json(os.path.join(path, _CONFIG), ClassifierConfig.from_json)
    except ValueError as error:
        raise ValueError(f"{name} must hold a classifier or nothing, got {error}") from error
