"""Reports of a run: log, metrics.jsonl, TensorBoard, early stopping and samples."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from absl import logging

from txl_tf.configs.run import Config
from txl_tf.data.tokenizers.tokenizer import Tokenizer
from txl_tf.inference.evaluation import Evaluation
from txl_tf.inference.generation import Generator
from txl_tf.models.recurrent_model import RecurrentModel
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training.metric_writers import MetricsFile, Summaries
from txl_tf.training.progress_log import ProgressLog
from txl_tf.training.run_data import RunData


class EarlyStop:
    """Early stopping: counts the validations since the best one.

    A resumed run restores the count from the lines of its metrics.jsonl up to the checkpoint, so it
    equals that of an uninterrupted run. Without that file the count starts at 0.

    loss       2.0  1.5  1.6  1.5      a tie does not count as better
    since_best  0    0    1    2

    Args:
      limit: validations in a row without improvement that end the run; None never does.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._best = math.inf
        self._since_best = 0

    def note(self, nats: float) -> None:
        """Counts a validation by its loss."""
        if nats < self._best:
            self._best, self._since_best = nats, 0
        else:
            self._since_best += 1

    def note_all(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Counts the validations among the lines of a metrics.jsonl."""
        for line in lines:
            if line.get("split") == "valid":
                nats = line.get("loss", line.get("nats"))  # its name in older files
                self.note(math.inf if nats is None else nats)

    @property
    def is_due(self) -> bool:
        """Whether to stop."""
        return self._limit is not None and self._since_best >= self._limit

    def __str__(self) -> str:
        return f"no improvement on loss={self._best:.4g} in {self._since_best} validations"


class RunReporter:
    """Reports steps and validations of a run, and decides on early stopping.

    Args:
      config: of the run.
      data: of the run.
      evaluated: the model with its evaluation lengths, for samples.
      model_dir: of the run.
      is_chief: whether this worker writes files; all workers log.

    Attributes:
      progress_log: log of the steps.
    """

    def __init__(
        self,
        config: Config,
        data: RunData,
        evaluated: RecurrentModel,
        model_dir: str,
        is_chief: bool,
    ) -> None:
        train = config.train
        self._config = config
        self._is_chief = is_chief
        self._summaries, self._metrics = Summaries(model_dir), MetricsFile(model_dir)
        records = (self._summaries, self._metrics) if is_chief else ()
        size = data.train.split_metadata.size
        unit = data.tokenizer.UNIT if train.objective_spec.predicts_all else None
        self.progress_log = ProgressLog(train, unit, size, records)
        self._early_stop = EarlyStop(train.stop_after_evals)
        self._samples = None
        if train.sample_length:
            self._samples = TrainingSamples(
                evaluated, data.tokenizer, train.sample_length, train.seed
            )

    def begin(self, step: int, valid_since: int) -> None:
        """Starts after this step: drops later records and restores counts from earlier ones.

        Validations up to `valid_since` are of another text or other settings and do not count.
        """
        if not self._is_chief:
            return
        lines = self._metrics.keep_until(step)
        self.progress_log.resume(lines)
        self._early_stop.note_all(line for line in lines if line["step"] > valid_since)
        self._summaries.begin(step, self._config.to_json())

    def report_validation(self, step: int, valid: Evaluation) -> None:
        """Reports a validation, and a sample if configured."""
        self.progress_log.log_validation(step, valid)
        self._early_stop.note(valid.nats_per_token)
        if self.stops_early:
            logging.info("step=%d: %s", step, self._early_stop)
        if self._samples is not None:
            text = self._samples.write()
            logging.info("step=%d sample: %r", step, text)
            if self._is_chief:
                self._summaries.write_text("valid", step, "sample", text)

    @property
    def stops_early(self) -> bool:
        """Whether to stop early; only the chief, which has all validations, returns True."""
        return self._is_chief and self._early_stop.is_due


def check(config: Config) -> None:
    """Raises if samples are configured but the model has no memory in evaluation.

    Raises:
      ValueError: names the length.
    """
    length = config.train.sample_length
    mem_len = config.model.mem_len if config.eval.mem_len is None else config.eval.mem_len
    if length and not mem_len:
        raise ValueError(f"sample_length must be 0 without mem_len in evaluation, got {length}")


class TrainingSamples:
    """Unconditional samples, deterministic for given weights.

    Args:
      model: with its evaluation lengths, see `check`.
      tokenizer: of the run.
      length: number of tokens to write.
      seed: of sampling.
    """

    def __init__(self, model: TransformerXL, tokenizer: Tokenizer, length: int, seed: int) -> None:
        self._generator = Generator(model, tokenizer)
        self._length = length
        self._seed = seed

    def write(self) -> str:
        """Returns the text for the current weights."""
        self._generator.refresh()
        ((sample,),) = self._generator.samples([""], self._length, seed=self._seed)
        return sample.text
