"""All that is told of a run: to its log, its metrics.jsonl and its TensorBoard folder."""

from absl import logging

from txl_tf.configs.run import Config
from txl_tf.inference.evaluation import Evaluation
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training.early_stop import EarlyStop
from txl_tf.training.metric_writers import MetricsFile
from txl_tf.training.progress_log import Journal
from txl_tf.training.run_data import RunData
from txl_tf.training.samples import Samples
from txl_tf.training.summaries import Summaries


class Watch:
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
        self.journal = Journal(train, data.tokenizer.UNIT, size, records)
        self._early_stop = EarlyStop(train.stop_after_evals)
        self._samples = None
        if train.sample_length:
            self._samples = Samples(evaluated, data.tokenizer, train.sample_length, train.seed)

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
