"""Classifier of texts: model, tokenizer and config, and its model_dir.

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
_WINDOW = 16  # batches of predictions whose texts are sorted by length together


class Encoded(NamedTuple):
    """Tokenized texts.

    Attributes:
      ids: token ids of each text, [n] int32.
      labels: [N] int32, -1 for none.
      cut: number of texts longer than `max_tokens`.
    """

    ids: list[np.ndarray]
    labels: np.ndarray
    cut: int


class Classifier:
    """Classifier of texts.

    Args:
      config: with the labels, and the vocabulary size of the tokenizer.
      tokenizer: made for the training texts.

    Attributes:
      config, tokenizer: as given.
      model: a SequenceClassifier, whose weights are random until trained or restored.
      step: number of optimizer steps of the weights.
    """

    def __init__(self, config: ClassifierConfig, tokenizer: tokenizers.Tokenizer):
        self.config = config
        self.tokenizer = tokenizer
        self.step = 0
        sizes = memory_estimate.sizes_of(config.model)
        machine.check_memory({"weights": memory_estimate.min_weight_bytes(config.model)}, sizes)
        self.model = SequenceClassifier(
            config.model,
            len(config.labels),
            config.text.pooling,
            segment_len=config.segment_len,
            dtype=POLICIES[config.train.precision],
        )
        self.sizes = batches.sizes(
            config.text.max_tokens, config.segment_len, config.model.token_limit
        )
        self._log_probs = tf.function(self._make_log_probs, autograph=False)

    def take_weights(self, path: str) -> None:
        """Fills the backbone with the weights of a model_dir that has its architecture."""
        step = model_dirs.restore_weights(path, self.model.backbone)
        logging.info("starting from the weights of %s: step=%d", path, step)

    def _make_log_probs(self, ids, lengths):
        scores = self.model(ids, lengths=lengths, global_tokens=self.global_tokens(ids))
        return tf.nn.log_softmax(scores)

    def check_memory(self, longest: int) -> None:
        """Raises if training on texts of at most `longest` tokens needs too much memory.

        Raises:
          ValueError: names the bytes and the settings that determine them.
        """
        config = self.config
        num_tokens = config.segment_len or next(n for n in self.sizes if n >= longest)
        needed = memory_estimate.memory_estimate(
            config.model,
            config.train,
            memory_estimate.min_parameters(config.model),
            num_tokens=num_tokens,
            num_words=len(config.labels),
        )
        numbers = dict(batch_size=config.train.batch_size, tokens_of_a_text=num_tokens)
        machine.check_memory(needed.parts, numbers | memory_estimate.sizes_of(config.model))

    def global_tokens(self, ids):
        """Returns the mask of global tokens by the config. [B, T] -> [B, T] bool, or None."""
        if self.config.text.global_tokens == "none":
            return None
        return (tf.zeros_like(ids) + tf.range(ids.shape[1])) == 0

    def encode(self, texts: Sequence[Text]) -> Encoded:
        """Tokenizes texts."""
        label_ids = {label: i for i, label in enumerate(self.config.labels)}
        labels = [-1 if t.label is None else label_ids[t.label] for t in texts]
        limit, ids, cut = self.config.text.max_tokens, [], 0
        for sample in texts:
            all_ids = self.tokenizer.encode(sample.content)
            cut += len(all_ids) > limit
            ids.append(batches.kept(all_ids, self.config.text))
        return Encoded(ids, np.array(labels, np.int32), cut)

    def warn_of_cut(self, cut: int, texts: int, name: str) -> None:
        """Logs the number of truncated texts, if any."""
        if cut:
            config = self.config.text
            logging.warning(
                "%d of %d %s texts are longer than max_tokens: only their %s %d tokens are read",
                *(cut, texts, name, config.keep, config.max_tokens),
            )

    def log_probs(self, encoded: Encoded) -> np.ndarray:
        """Returns log-probabilities of all labels for each text, [N, number of labels] float32."""
        result = np.zeros([len(encoded.ids), len(self.config.labels)], np.float32)
        size = self.config.train.batch_size
        for batch in batches.in_order(encoded.ids, encoded.labels, size, self.sizes):
            real = batch.indices >= 0
            log_probs = self._log_probs(tf.constant(batch.ids), tf.constant(batch.lengths))
            result[batch.indices[real]] = log_probs.numpy()[real]
        return result

    def evaluate(self, encoded: Encoded) -> Scores:
        """Returns the metrics of the predicted labels."""
        return Scores.of(self.log_probs(encoded), encoded.labels)

    def predict(self, texts: Iterable[Text | str]) -> Iterator[tuple[Text, dict[str, float]]]:
        """Yields each text with the probability of each label, in order.

        A text may be a plain string; its name is then its index from 0.
        """
        window = _WINDOW * self.config.train.batch_size
        named = (Text(str(i), t) if isinstance(t, str) else t for i, t in enumerate(texts))
        count = cut = 0
        while texts_of_window := list(itertools.islice(named, window)):
            encoded = self.encode(texts_of_window)
            count, cut = count + len(texts_of_window), cut + encoded.cut
            probabilities = np.exp(self.log_probs(encoded))
            for text, row in zip(texts_of_window, probabilities.tolist(), strict=True):
                yield text, dict(zip(self.config.labels, row, strict=True))
        self.warn_of_cut(cut, count, "given")

    def save(self, path: str) -> None:
        """Writes the folder atomically; replaces an existing classifier.

        Raises:
          ValueError: the folder holds anything else, or another process writes to it.
        """
        with outputs.held("model_dir", path, _check_folder) as output:
            self.write(output)

    def write(self, output: outputs.Output) -> None:
        """Writes the folder of an output locked by this process."""
        with output.filled() as folder:
            self.tokenizer.save(folder)
            model_dirs.save_weights(folder, self.model, self.step)
            config = self.config.to_json().encode("utf-8")
            files.write_bytes(os.path.join(folder, _CONFIG), config)

    @classmethod
    def load(cls, path: str) -> "Classifier":
        """Loads a classifier written by `save`.

        Raises:
          ValueError: it is missing or damaged; names the folder or the file.
        """
        config_path = os.path.join(path, _CONFIG)
        if not files.exists(config_path):
            raise ValueError(
                f"model_dir must hold a {_CONFIG} (train_classifier writes it), got {path}"
            )
        config = files.read_json(config_path, ClassifierConfig.from_json)
        # Inference is in float32, whatever the precision of training.
        train = dataclasses.replace(config.train, precision="float32")
        classifier = cls(dataclasses.replace(config, train=train), tokenizers.load(path))
        classifier.step = model_dirs.restore_weights(path, classifier.model)
        return classifier


def _check_folder(name: str, path: str) -> None:
    """Raises if a folder holds anything but a classifier; a language model has the same files."""
    if not files.is_folder(path) or not files.names(path):
        outputs.check_new(name, path)
        return
    for file in files.names(path):
        if file not in _OUR_FILES:
            raise ValueError(f"{name} must hold nothing but a classifier, got {path}/{file}")
    try:
        files.read_json(os.path.join(path, _CONFIG), ClassifierConfig.from_json)
    except ValueError as error:
        raise ValueError(f"{name} must hold a classifier or nothing, got {error}") from error
