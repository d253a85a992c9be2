"""Training loop of a classifier: step, log, validate, keep the best."""

import math
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf.classification import batches
from txl_tf.classification.classifier import Classifier, Encoded
from txl_tf.classification.metrics import Scores
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.data import outputs
from txl_tf.data.labelled_text import Text
from txl_tf.ops.dropout import DropoutKey
from txl_tf.training import optimizer as optimizers
from txl_tf.training import update
from txl_tf.training.distribution import make_distribution
from txl_tf.training.skips import SkippedSteps
from txl_tf.training.step import Metrics


def train(
    classifier: Classifier,
    texts: Sequence[Text],
    valid: Sequence[Text] | None,
    model_dir: str,
) -> Scores | None:
    """Trains on one device; the best weights end in `model_dir` and in `classifier`.

    The best have the highest accuracy on the validation texts, then the lowest nats; they are
    written at once. Without validation texts they are the last. The initial weights are drawn by
    Keras' seed.

    Args:
      classifier: made for the labels of the texts.
      texts: for training, labelled.
      valid: for validation, or None.
      model_dir: the folder to write; new or empty.

    Returns the validation metrics of the best weights, or None.

    Raises:
      ValueError: a validation loss is not finite, too many consecutive steps were skipped, the
        machine has too little memory, `model_dir` is not empty, or another process writes to it.
    """
    with outputs.held("model_dir", model_dir) as output:
        return _train(classifier, texts, valid, output)


def _train(
    classifier: Classifier,
    texts: Sequence[Text],
    valid: Sequence[Text] | None,
    output: outputs.Output,
) -> Scores | None:
    config = classifier.config.train
    encoded = classifier.encode(texts)
    classifier.check_memory(max(map(len, encoded.ids), default=1))
    held_out = None if valid is None else classifier.encode(valid)
    classifier.warn_of_cut(encoded.cut, len(texts), "training")
    if held_out is not None:
        classifier.warn_of_cut(held_out.cut, len(held_out.ids), "validation")
    logging.info(
        "texts=%d tokens=%d labels=%d parameters=%d sizes=%s",
        len(texts),
        sum(map(len, encoded.ids)),
        len(classifier.config.labels),
        classifier.model.count_params(),
        ",".join(map(str, classifier.sizes)),
    )
    if isinstance(classifier.config.model, TransformerXLConfig):
        for message in classifier.config.model.warnings():
            logging.info(message)
    run = _Run(classifier, encoded, held_out, output)
    while classifier.step < config.train_steps and not run.stops_early:
        run.advance()
    return run.finish()


class _Run:
    """State of a training run."""

    def __init__(
        self,
        classifier: Classifier,
        encoded: Encoded,
        valid: Encoded | None,
        output: outputs.Output,
    ):
        self._classifier = classifier
        self._config = config = classifier.config.train
        self._valid = valid
        self._output = output
        self._batches = batches.shuffled(
            encoded.ids, encoded.labels, config.batch_size, classifier.sizes, config.seed
        )
        self._optimizer = optimizers.make_optimizer(config)
        self._optimizer.build(classifier.model.trainable_variables)
        jit = make_distribution("one_device").jit(config.jit)
        self._step = tf.function(self._make_step, jit_compile=jit, autograph=False)
        self._best: Scores | None = None
        self._best_weights: list[np.ndarray] = []
        self._best_step = 0
        self._evals_since_best = 0
        self._skips = SkippedSteps(config.train_steps, config.max_skipped_steps)
        self._pending: list[Metrics] = []  # since the last log line
        self._compiled: set[int] = set()  # lengths of batches
        self._timed = 0  # steps since the last log line, without compilation, and their tokens
        self._tokens = 0
        self._logged_at = time.monotonic()

    @property
    def stops_early(self) -> bool:
        """Whether `stop_after_evals` validations have brought no improvement."""
        limit = self._config.stop_after_evals
        return limit is not None and self._evals_since_best >= limit

    def advance(self) -> None:
        """Runs a step, and logs and validates if due."""
        classifier, config = self._classifier, self._config
        batch = next(self._batches)
        start = time.monotonic()
        self._pending.append(self._step(*map(tf.constant, batch[:3])))
        if batch.ids.shape[1] in self._compiled:
            self._timed += 1
            self._tokens += int(batch.lengths[batch.labels >= 0].sum())
        else:  # the time of compilation does not count
            self._compiled.add(batch.ids.shape[1])
            self._logged_at += time.monotonic() - start
        classifier.step += 1
        is_last = classifier.step == config.train_steps
        if is_last or classifier.step % config.log_every == 0:
            self._log()
        is_due = config.eval_every is not None and classifier.step % config.eval_every == 0
        if self._valid is not None and (is_last or is_due):
            self._validate(self._valid)

    def finish(self) -> Scores | None:
        """Restores the best weights; without validation, writes the last ones."""
        classifier = self._classifier
        if self._best is None:
            classifier.write(self._output)
        else:
            for weight, value in zip(classifier.model.weights, self._best_weights, strict=True):
                weight.assign(value)
            classifier.step = self._best_step
        return self._best

    def _make_step(self, ids, lengths, labels):
        """Runs one training step; see `update.apply` for skipped ones."""
        model, config = self._classifier.model, self._config
        seed = tf.stack([config.seed, tf.cast(self._optimizer.iterations, tf.int32)])
        with tf.GradientTape() as tape:
            nats = model.nll(
                ids,
                labels,
                lengths=lengths,
                global_tokens=self._classifier.global_tokens(ids),
                dropout_key=DropoutKey(seed, tf.range(ids.shape[0])),
                training=True,
            )  # [B]
            num_real = tf.math.count_nonzero(labels >= 0, dtype=tf.float32)
            nats = tf.reduce_sum(nats) / tf.maximum(num_real, 1.0)
            auxiliary = model.auxiliary_loss()
            loss = nats + auxiliary
        weights = model.trainable_variables
        gradients = tape.gradient(
            loss,
            [weight.value for weight in weights],  # see `training.step`
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        rate = tf.identity(self._optimizer.learning_rate)  # before `apply` increments the step
        result = update.apply(
            self._optimizer,
            gradients,
            weights,
            losses=(nats, auxiliary),
            num_real=num_real,
            clip_norm=config.clip_norm,
        )
        return Metrics(
            nats,
            num_real,
            rate,
            result.gradient_norm,
            skipped=1.0 - tf.cast(result.good, tf.float32),
            auxiliary=auxiliary,
            weight_bound=result.weight_bound,
        )

    def _log(self) -> None:
        step = self._classifier.step
        nats = []
        for number, tensors in enumerate(self._pending, start=step + 1 - len(self._pending)):
            metrics = Metrics(*map(float, tensors))  # waits for the device
            self._skips.note(number, metrics)
            nats += [] if metrics.skipped else [metrics.loss]
        now = time.monotonic()
        seconds = now - self._logged_at
        rates = ""
        if self._timed:
            left = seconds / self._timed * (self._config.train_steps - step)
            rates = f" tokens_per_s={self._tokens / seconds:.0f} seconds_left={left:.0f}"
        if self._skips.skipped:
            rates += f" skipped_steps={self._skips.skipped}"
        logging.info("step=%d loss=%.4f%s", step, np.mean(nats) if nats else math.nan, rates)
        self._pending, self._timed, self._tokens, self._logged_at = [], 0, 0, now

    def _validate(self, valid: Encoded) -> None:
        start = time.monotonic()
        classifier = self._classifier
        scores = classifier.evaluate(valid)
        logging.info(
            "step=%d valid_accuracy=%.4f valid_macro_f1=%.4f valid_loss=%.4f",
            *(classifier.step, scores.accuracy, scores.macro_f1, scores.nats),
        )
        if not math.isfinite(scores.nats):
            raise ValueError(
                f"loss must be finite, got {scores.nats} in the validation at step "
                f"{classifier.step}; try a lower learning_rate"
            )
        best = self._best
        if best is None or (scores.accuracy, -scores.nats) > (best.accuracy, -best.nats):
            if best is None:
                classifier.write(self._output)
            else:
                model_dirs.save_weights(self._output.path, classifier.model, classifier.step)
            self._best, self._best_step, self._evals_since_best = scores, classifier.step, 0
            self._best_weights = [weight.numpy() for weight in classifier.model.weights]
        else:
            self._evals_since_best += 1
        self._logged_at += time.monotonic() - start  # excluded from tokens_per_s
