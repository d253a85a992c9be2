"""Training loop: read, step, log, evaluate, checkpoint, stop."""

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
from txl_tf.models.recurrent_model import RecurrentModel
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
    """Outcome of a run.

    Attributes:
      step: number of optimizer steps of the weights.
      nats_per_token: mean training loss of the last steps; None if none were left.
      valid: the last validation; None if there was none.
      best_nats_per_token: best validation loss of the whole run; None without a validation.
      stopped_by: what ended the run before its last step: a signal ("SIGTERM"), "preemption" or
        "another worker" (stopped for one of these there), all to be resumed, or `EARLY_STOP`.
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
    """Trains the model of `model_dir` on the data of `data_dir`, or resumes its training.

    A run that was stopped, killed or crashed resumes from its newest checkpoint exactly as if it
    had not been. SIGTERM, Ctrl-C and a preemption notice save a checkpoint first. The initial
    weights depend on Keras' seed: call `keras.utils.set_random_seed(config.train.seed)` first.
    There is a log line every `config.train.log_every` steps; see `visible_log`.

    Args:
      config: of the run; `config.model.vocab_size` is that of the data.
      data_dir: output folder of `prepare`.
      model_dir: for checkpoints and the description of the model; created if missing.
      distribution: from `make_distribution`; None is one device.
      init_from: another model_dir whose weights a new run starts from; the data's vocabulary may
        extend that model's.
      new_data: whether to resume on another text, or with other validation settings; resets the
        position and the memory, or the best validation.
      profile_steps: first and last step to trace for TensorBoard.
      preemption_notice: a key of `interruption.NOTICES`: the cloud that each worker polls.

    Raises:
      ValueError: config, data and model_dir do not fit, the machine has too little memory,
        preemption notices are unavailable, or the loss stays NaN or infinite.
    """
    distribution = distribution or make_distribution("one_device")
    distribution.check_rows(config.train.batch_size, config.train.accumulate_steps)
    model_dir = outputs.resolve("model_dir", model_dir, filled=True)
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
            initialization.check_resumable(before, config, model_dir)
            data.check_vocabulary(model_dir)
        if init_from is not None and (before is None or not initialization.has_state(model_dir)):
            initialization.check(init_from, config, data.tokenizer)
        record = data_record.check(model_dir, data_record.of_run(config, data), new_data)
        run = _Run(config, data, model_dir, distribution, profile_steps)
        run.begin(init_from, before, record)
        result = run.train(stop)
        distribution.any(False)  # no worker leaves before all are done
        return result


class _Run:
    """Objects and state of one run."""

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
            self._model = model_dirs.make_model(
                config,
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
        eval_model = _for_evaluation(self._model, config.eval)
        self._validator = Validator(
            eval_model,
            distribution,
            segment_len=config.eval.segment_len or config.train.segment_len,
            reset_memory_at_documents=config.data.reset_memory_at_documents,
            objective=config.train.objective_spec,
        )
        self._reporter = RunReporter(config, data, eval_model, model_dir, distribution.is_chief)
        self._profile_steps = profile_steps
        self._profile = Profile(model_dir, profile_steps if distribution.is_chief else None)
        self._valid: Evaluation | None = None

    def begin(
        self, init_from: str | None, before: Config | None, record: data_record.DataRecord
    ) -> None:
        """Restores the run, or initialises it and writes its description into its folder.

        Weights of `init_from` are saved first: once described, a run no longer asks for them.
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
            initialization.warn_if_rate_jumps(before, self._config, done)
        if self._distribution.is_chief:
            data_record.write(self._model_dir, self._record)
            model_dirs.describe(self._model_dir, self._config, self._data.tokenizer)
        self._reporter.begin(done, self._record.valid_since)
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

    def train(self, stop: interruption.StopRequest) -> Result:
        """Trains to the end, until `stop` has a name, or until early stopping."""
        done = int(self._optimizer.iterations.numpy())
        start = done - (self._record.train.since or 0)
        with prefetch.prefetched(self._data.train.arrays(start_step=start)) as batches:
            return self._train(batches, done, stop)

    def _train(self, batches: Iterator[Batch], done: int, stop: interruption.StopRequest) -> Result:
        """Trains from step `done` on.

        Metrics are flushed before each evaluation and checkpoint, so a resumed run logs each step
        once.
        """
        train, progress_log = self._config.train, self._reporter.progress_log
        nats = None
        stops_early = self._stops_early()
        while not stops_early and done < train.train_steps:
            count = stride(done, train, self._profile_steps)
            with self._profile.step(done + 1):
                metrics = self._advance(itertools.islice(batches, count))
            progress_log.note(done + 1, metrics)
            done += count
            must_stop = self._distribution.any(stop.name is not None)  # all workers agree on a step
            if must_stop:
                stop.name = stop.name or "another worker"
            is_last = must_stop or done == train.train_steps
            if self._profile.is_edge(done):
                with progress_log.paused():
                    self._profile.end()
            to_validate = self._is_to_validate(done)
            to_save = is_last or done % train.checkpoint_every == 0
            if to_validate or to_save or progress_log.is_due(done, train.log_every):
                nats = progress_log.log_interval(done)
            if to_validate:
                with progress_log.paused():
                    self._validate(done)
                stops_early = self._stops_early()
            if to_save or stops_early:
                with progress_log.paused():
                    self._save()
            if is_last:
                break
        self._profile.end()
        return self._result(done, nats, stop, stops_early)

    def _advance(self, batches: Iterable[Batch]) -> Metrics:
        """Runs one step for each batch, in one call; does not wait for the result."""
        dealt = []
        for batch in batches:
            self._check_ids(batch)
            dealt.append(self._distribution.deal(Batch(*map(tf.constant, batch))))
        if len(dealt) == 1:
            metrics, self._memory = self._step(dealt[0], self._memory)
        else:
            metrics, self._memory = self._loop(tuple(dealt), self._memory)
        return metrics

    def _stops_early(self) -> bool:
        """Whether to stop early; the same on all workers."""
        return self._distribution.any(self._reporter.stops_early)

    def _save(self) -> None:
        """Gathers the memory, on all workers, and saves on the chief."""
        memory = self._distribution.gather(self._memory)
        if self._distribution.is_chief:
            self._checkpoints.save(memory)

    def _check_ids(self, batch: Batch) -> None:
        """Raises if an id is out of range; on the host, as the compiled step would clamp it."""
        check_ids("input ids", batch.ids, self._config.model.vocab_size)
        check_ids("targets", batch.targets, self._config.model.vocab_size, ignored=-1)

    def _is_to_validate(self, step: int) -> bool:
        train = self._config.train
        if self._data.valid is None or train.eval_every is None:
            return False
        return step == train.train_steps or step % train.eval_every == 0

    def _validate(self, step: int) -> None:
        """Evaluates, and saves the weights if they are the best so far."""
        with Progress("validate", "batches") as progress:
            valid = self._validator.evaluate(
                self._data.valid,
                max_batches=self._config.train.eval_batches,
                progress=lambda done, batches, _: progress.reach(done, done / batches),
            )
        self._reporter.report_validation(step, valid)
        if self._distribution.is_chief and valid.nats_per_token < self._checkpoints.best_nats:
            self._checkpoints.save_best(valid.nats_per_token)
        self._valid = valid

    def _result(
        self, step: int, nats: float | None, stop: interruption.StopRequest, stops_early: bool
    ) -> Result:
        best = self._checkpoints.best_nats
        is_early = stops_early and step < self._config.train.train_steps
        return Result(
            step=step,
            nats_per_token=nats,
            valid=self._valid,
            best_nats_per_token=best if math.isfinite(best) else None,
            stopped_by=stop.name or (EARLY_STOP if is_early else None),
        )


def _for_evaluation(model: RecurrentModel, config: EvalConfig) -> RecurrentModel:
    """Returns the model with its evaluation lengths, sharing the weights."""
    lengths = {name: getattr(config, name) for name in ("mem_len", "clamp_len", "attention_span")}
    return model.with_lengths(**{k: v for k, v in lengths.items() if v is not None})


def stride(done: int, train: TrainConfig, profile_steps: tuple[int, int] | None) -> int:
    """Returns the steps of the next compiled call: `steps_per_loop`, or 1 before an event.

    It depends on the number of steps done alone: a resumed run makes the calls of an uninterrupted
    one, and all workers make the same.
    """
    whole = train.steps_per_loop
    first, last = profile_steps or (1, train.train_steps)
    periods = (whole, train.log_every, train.checkpoint_every, train.eval_every or whole)
    stops = [(done // period + 1) * period for period in periods]
    stops += [stop for stop in (first - 1, last, train.train_steps) if stop > done]
    return whole if done + whole <= min(stops) else 1
