"""The run around the steps: read, train, tell, validate, save, stop."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

import tensorflow as tf
from absl import logging

from txl_tf import model_dir as model_dirs
from txl_tf import visible_log
from txl_tf.configs.run import POLICIES, Config, EvalConfig, TrainConfig
from txl_tf.data import outputs, prefetch
from txl_tf.data.batches import Batch
from txl_tf.inference.evaluation import Evaluation
from txl_tf.memory_estimate import memory_estimate
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.token_ids import check_ids
from txl_tf.progress import Progress
from txl_tf.training import (
    checkpoint,
    data_record,
    initialization,
    interruption,
    profiler,
    reporter,
)
from txl_tf.training.checkpoint import Checkpoints
from txl_tf.training.distribution import Distribution, make_distribution
from txl_tf.training.memory_check import check_memory, check_validation_memory
from txl_tf.training.optimizer import LossScale, make_optimizer
from txl_tf.training.profiler import Profile
from txl_tf.training.reporter import RunReporter
from txl_tf.training.run_data import RunData
from txl_tf.training.step import Metrics, make_train_loop, make_train_step
from txl_tf.training.validation import Validator

EARLY_STOP = "early stop"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended.

    Attributes:
      step: optimizer steps behind the weights.
      nats_per_token: mean training loss of the last steps; None if there was nothing left to do.
      valid: the last validation; None if there was none.
      best_nats_per_token: of the best validation of the whole run; None if there was none.
      stopped_by: what ended the run before its last step: a signal, for example "SIGTERM", or
        "preemption" ("another worker" where that got it), both to be run again, or `EARLY_STOP`.
    """

    step: int
    nats_per_token: float | None
    valid: Evaluation | None
    best_nats_per_token: float | None
    stopped_by: str | None


@visible_log.shown()
def train(
    config: Config,
    *,
    data_dir: str,
    model_dir: str,
    distribution: Distribution | None = None,
    init_from: str | None = None,
    new_data: bool = False,
    profile_steps: tuple[int, int] | None = None,
    preemption_notice: str = "none",
) -> Result:
    """Trains, or goes on training, the model of `model_dir` on the data of `data_dir`.

    A run that was stopped, killed or crashed goes on from its newest checkpoint exactly as if
    nothing had been. SIGTERM, Ctrl-C and a preemption notice save before they end it. The initial
    weights follow from Keras' seed: call `keras.utils.set_random_seed(config.train.seed)` first.
    Every `config.train.log_every` steps there is a log line, see `visible_log` for who sees it.

    Args:
      config: of the run; `config.model.vocab_size` is that of the data.
      data_dir: what `prepare` wrote.
      model_dir: for checkpoints and the description of the model; made if need be.
      distribution: from `make_distribution`; None is one device.
      init_from: another model_dir whose weights a new run starts from; the data's vocabulary may
        be that model's with more symbols at its end.
      new_data: whether a run goes on with another text than it was begun with, or with other
        settings of validation: the position and the memory, or the best validation, start anew.
      profile_steps: the first and the last of those that are traced for TensorBoard.
      preemption_notice: in `interruption.NOTICES`: whom each worker asks whether its machine will
        be taken away.

    Raises:
      ValueError: config, data and model_dir do not fit, the machine has too little memory,
        preemption notices cannot be asked for, or the loss is no longer a number.
    """
    distribution = distribution or make_distribution("one_device")
    distribution.check_rows(config.train.batch_size, config.train.accumulate_steps)
    model_dir = outputs.place("model_dir", model_dir, filled=True)
    profiler.check(profile_steps, config.train.train_steps)
    reporter.check(config)
    check_memory(config, distribution.num_replicas)
    interruption.check(preemption_notice)
    data = RunData(config, data_dir, distribution)
    if data.valid is not None:
        check_validation_memory(config)
    held = checkpoint.sole_trainer(model_dir) if distribution.is_chief else contextlib.nullcontext()
    with held, interruption.StopRequest() as stop, interruption.noted(preemption_notice, stop):
        before = model_dirs.read_config(model_dir) if model_dirs.exists(model_dir) else None
        if before is not None:
            initialization.check_goes_on(before, config, model_dir)
            data.check_vocabulary(model_dir)
        if init_from is not None and (before is None or not initialization.has_state(model_dir)):
            initialization.check(init_from, config, data.tokenizer)
        record = data_record.check(model_dir, data_record.of_run(config, data), new_data)
        run = _Run(config, data, model_dir, distribution, profile_steps)
        run.begin(init_from, before, record)
        result = run.go_on(stop)
        distribution.any(False)  # no worker leaves before all are done
        return result


class _Run:
    """One run: what it is made of, and its state."""

    def __init__(
        self,
        config: Config,
        data: RunData,
        model_dir: str,
        distribution: Distribution,
        profile_steps: tuple[int, int] | None,
    ) -> None:
        self._config = config
        self._distribution = distribution
        self._data = data
        self._model_dir = model_dir
        with distribution.strategy.scope():
            self._model = TransformerXL(
                config.model,
                rematerialize=config.train.rematerialize,
                dtype=POLICIES[config.train.precision],
            )
            self._optimizer = make_optimizer(config.train)
            self._optimizer.build(self._model.trainable_variables)
            loss_scale = LossScale() if config.train.precision == "float16" else None
        trained = self._model, self._optimizer, distribution, config, loss_scale
        self._step, self._loop = make_train_step(*trained), make_train_loop(*trained)
        first, end = distribution.rows(config.train.batch_size)
        self._memory = distribution.deal(self._model.initial_mems(end - first))
        self._checkpoints = Checkpoints(
            model_dir,
            self._model,
            self._optimizer,
            config.train.batch_size,
            config.train.keep_checkpoints,
            loss_scale,
        )
        in_evaluation = _for_evaluation(self._model, config.eval)
        self._validator = Validator(
            in_evaluation,
            distribution,
            segment_len=config.eval.segment_len or config.train.segment_len,
            reset_memory_at_documents=config.data.reset_memory_at_documents,
        )
        self._watch = RunReporter(config, data, in_evaluation, model_dir, distribution.is_chief)
        self._profile_steps = profile_steps
        self._profile = Profile(model_dir, profile_steps if distribution.is_chief else None)
        self._valid: Evaluation | None = None

    def begin(
        self, init_from: str | None, before: Config | None, record: data_record.DataRecord
    ) -> None:
        """Restores the run, or starts it and describes it in its folder.

        Weights that come from elsewhere are saved before that: from then on nothing asks for them.
        """
        memory = self._checkpoints.restore()
        done = int(self._optimizer.iterations.numpy())
        if init_from is not None and (memory is None or before is None and not done):
            initialization.take_weights(init_from, self._model)
            self._save()
        elif memory is not None:
            self._memory = self._distribution.deal_all(memory)
        self._record = record.at(done)
        self._checkpoints.forget_best(self._record.valid_since)
        if before is not None:
            initialization.warn_of_rate(before, self._config, done)
        if self._distribution.is_chief:
            data_record.write(self._model_dir, self._record)
            model_dirs.describe(self._model_dir, self._config, self._data.tokenizer)
        self._watch.begin(done, self._record.valid_since)
        reader = self._data.train
        logging.info("%s", self._config)
        logging.info(
            "parameters=%d steps_per_epoch=%d pairs_dropped=%d",
            *(self._model.count_params(), reader.steps_per_epoch, reader.dropped),
        )
        replicas = self._distribution.num_replicas
        estimate = memory_estimate(
            self._config.model, self._config.train, self._model.count_params(), replicas
        )
        logging.info("memory estimate per replica: %s", estimate)
        for note in self._config.model.warnings():
            logging.info(note)

    def go_on(self, stop: interruption.StopRequest) -> Result:
        """Trains to the end, until `stop` has a name, or until nothing gets better."""
        done = int(self._optimizer.iterations.numpy())
        start = done - (self._record.train.since or 0)
        with prefetch.prefetched(self._data.train.arrays(start_step=start)) as batches:
            return self._train(batches, done, stop)

    def _train(self, batches: Iterator[Batch], done: int, stop: interruption.StopRequest) -> Result:
        """As `go_on`, from step `done` on.

        What a line tells ends with each validation and checkpoint, so that a run that goes on from
        there tells of every step once.
        """
        train, journal = self._config.train, self._watch.journal
        nats = None
        is_enough = self._is_enough()
        while not is_enough and done < train.train_steps:
            count = stride(done, train, self._profile_steps)
            with self._profile.step(done + 1):
                metrics = self._advance(itertools.islice(batches, count))
            journal.note(done + 1, metrics)
            done += count
            is_asked = self._distribution.any(stop.name is not None)  # all workers agree on a step
            if is_asked:
                stop.name = stop.name or "another worker"
            is_last = is_asked or done == train.train_steps
            if self._profile.is_edge(done):
                with journal.paused():
                    self._profile.end()
            to_validate = self._is_to_validate(done)
            to_save = is_last or done % train.checkpoint_every == 0
            if to_validate or to_save or journal.is_due(done, train.log_every):
                nats = journal.tell(done)
            if to_validate:
                with journal.paused():
                    self._validate(done)
                is_enough = self._is_enough()
            if to_save or is_enough:
                with journal.paused():
                    self._save()
            if is_last:
                break
        self._profile.end()
        return self._result(done, nats, stop, is_enough)

    def _advance(self, batches: Iterable[Batch]) -> Metrics:
        """One step for each batch, in one call; does not wait for its end."""
        dealt = []
        for batch in batches:
            self._check_ids(batch)
            dealt.append(self._distribution.deal(Batch(*map(tf.constant, batch))))
        if len(dealt) == 1:
            metrics, self._memory = self._step(dealt[0], self._memory)
        else:
            metrics, self._memory = self._loop(tuple(dealt), self._memory)
        return metrics

    def _is_enough(self) -> bool:
        """Whether the run is to end early, for all workers alike."""
        return self._distribution.any(self._watch.is_enough)

    def _save(self) -> None:
        """Gathers the memory, which takes all workers, and saves on the chief."""
        memory = self._distribution.gather(self._memory)
        if self._distribution.is_chief:
            self._checkpoints.save(memory)

    def _check_ids(self, batch: Batch) -> None:
        """On the host: the compiled step would clamp a wrong id."""
        check_ids("input ids", batch.ids, self._config.model.vocab_size)
        check_ids("targets", batch.targets, self._config.model.vocab_size, ignored=-1)

    def _is_to_validate(self, step: int) -> bool:
        train = self._config.train
        if self._data.valid is None or train.eval_every is None:
            return False
        return step == train.train_steps or step % train.eval_every == 0

    def _validate(self, step: int) -> None:
        """Evaluates, and keeps the weights if they are the best so far."""
        with Progress("validate", "batches") as progress:
            valid = self._validator.evaluate(
                self._data.valid,
                max_batches=self._config.train.eval_batches,
                progress=lambda done, batches, _: progress.reach(done, done / batches),
            )
        self._watch.tell_validation(step, valid)
        if self._distribution.is_chief and valid.nats_per_token < self._checkpoints.best_nats:
            self._checkpoints.save_best(valid.nats_per_token)
        self._valid = valid

    def _result(
        self, step: int, nats: float | None, stop: interruption.StopRequest, is_enough: bool
    ) -> Result:
        best = self._checkpoints.best_nats
        is_early = is_enough and step < self._config.train.train_steps
        return Result(
            step=step,
            nats_per_token=nats,
            valid=self._valid,
            best_nats_per_token=best if math.isfinite(best) else None,
            stopped_by=stop.name or (EARLY_STOP if is_early else None),
        )


def _for_evaluation(model: TransformerXL, config: EvalConfig) -> TransformerXL:
    """The model with the lengths of its evaluation, sharing the weights."""
    lengths = {name: getattr(config, name) for name in ("mem_len", "clamp_len", "attention_span")}
    return model.with_lengths(**{k: v for k, v in lengths.items() if v is not None})


def stride(done: int, train: TrainConfig, profile_steps: tuple[int, int] | None) -> int:
    """`steps_per_loop`, or 1 where something is to be done in between.

    It follows from the number of steps done alone: so a run that goes on makes the calls of one
    that was never stopped, and all workers make the same.
    """
    whole = train.steps_per_loop
    first, last = profile_steps or (1, train.train_steps)
    periods = (whole, train.log_every, train.checkpoint_every, train.eval_every or whole)
    stops = [(done // period + 1) * period for period in periods]
    stops += [stop for stop in (first - 1, last, train.train_steps) if stop > done]
    return whole if done + whole <= min(stops) else 1
