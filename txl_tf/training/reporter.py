"""All that is told of a run: to its log, its metrics.jsonl and its TensorBoard folder."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from absl import logging

from txl_tf.configs.run import Config
from txl_tf.data.tokenizers.tokenizer import Tokenizer
from txl_tf.inference.evaluation import Evaluation
from txl_tf.inference.generation import Generator
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training.metric_writers import MetricsFile, Summaries
from txl_tf.training.progress_log import ProgressLog
from txl_tf.training.run_data import RunData


class EarlyStop:
    """Counts the validations since the best one.

    What is known of a run that goes on comes from the lines of its metrics.jsonl up to the
    checkpoint, so the count is that of a run that was never stopped. Without that file it starts
    anew.

    loss       2.0  1.5  1.6  1.5      of two validations as good the first is the best
    since_best  0    0    1    2

    Args:
      limit: validations in a row without a better one that end the run; None is never.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._best = math.inf
        self._since_best = 0

    def note(self, nats: float) -> None:
        """Takes note of a validation."""
        if nats < self._best:
            self._best, self._since_best = nats, 0
        else:
            self._since_best += 1

    def note_all(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Takes note of the validations among the lines of a metrics.jsonl."""
        for line in lines:
            if line.get("split") == "valid":
                nats = line.get("loss", line.get("nats"))  # its name in older files
                self.note(math.inf if nats is None else nats)

    @property
    def is_due(self) -> bool:
        """Whether the run is to end."""
        return self._limit is not None and self._since_best >= self._limit

    def __str__(self) -> str:
        return f"no better validation than loss={self._best:.4g} since {self._since_best} of them"


class RunReporter:
    """Keeps the numbers and texts of a run, and sees when it no longer gets better.

    Args:
      config: of the run.
      data: what it reads.
      evaluated: the model in its lengths for evaluation, which samples are of.
      model_dir: of the run.
      is_chief: whether this worker writes files; all of them log.

    Attributes:
      journal: what it tells of steps.
    """

    def __init__(
        self,
        config: Config,
        data: RunData,
        evaluated: TransformerXL,
        model_dir: str,
        is_chief: bool,
    ) -> None:
        train = config.train
        self._config = config
        self._is_chief = is_chief
        self._summaries, self._metrics = Summaries(model_dir), MetricsFile(model_dir)
        records = (self._summaries, self._metrics) if is_chief else ()
        size = data.train.split_metadata.size
        self.journal = ProgressLog(train, data.tokenizer.UNIT, size, records)
        self._early_stop = EarlyStop(train.stop_after_evals)
        self._samples = None
        if train.sample_length:
            self._samples = TrainingSamples(
                evaluated, data.tokenizer, train.sample_length, train.seed
            )

    def begin(self, step: int, valid_since: int) -> None:
        """Goes on after this step, of which and of those before metrics.jsonl knows.

        Validations up to `valid_since` are of another text or other settings.
        """
        if not self._is_chief:
            return
        lines = self._metrics.keep_until(step)
        self.journal.go_on(lines)
        self._early_stop.note_all(line for line in lines if line["step"] > valid_since)
        self._summaries.begin(step, self._config.to_json())

    def tell_validation(self, step: int, valid: Evaluation) -> None:
        """Tells of a validation, and writes a sample if there is to be one."""
        self.journal.tell_validation(step, valid)
        self._early_stop.note(valid.nats_per_token)
        if self.is_enough:
            logging.info("step=%d: %s", step, self._early_stop)
        if self._samples is not None:
            text = self._samples.write()
            logging.info("step=%d sample: %r", step, text)
            if self._is_chief:
                self._summaries.write_text("valid", step, "sample", text)

    @property
    def is_enough(self) -> bool:
        """Whether the run is to end early; the chief knows, who has seen all of it."""
        return self._is_chief and self._early_stop.is_due


def check(config: Config) -> None:
    """Refuses samples of a model that, evaluated, has no memory of what it wrote.

    Raises:
      ValueError: names the length.
    """
    length = config.train.sample_length
    mem_len = config.model.mem_len if config.eval.mem_len is None else config.eval.mem_len
    if length and not mem_len:
        raise ValueError(f"sample_length must be 0 without mem_len in evaluation, got {length}")


class TrainingSamples:
    """Writes a text of its own accord, from an empty prompt; the same for the same weights.

    Args:
      model: in its lengths for evaluation, see `check`.
      tokenizer: of the run.
      length: tokens to write.
      seed: of the choices.
    """

    def __init__(self, model: TransformerXL, tokenizer: Tokenizer, length: int, seed: int) -> None:
        self._generator = Generator(model, tokenizer)
        self._length = length
        self._seed = seed

    def write(self) -> str:
        """The text under the present weights."""
        self._generator.refresh()
        ((sample,),) = self._generator.samples([""], self._length, seed=self._seed)
        return sample.text
