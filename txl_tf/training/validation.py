"""Evaluation within a run, on all devices that train."""

import numpy as np
import tensorflow as tf

from txl_tf.inference.evaluation import Evaluator
from txl_tf.training.distribution import Distribution


class Validator(Evaluator):
    """An Evaluator whose rows are split among all replicas of all workers; all get the same result.

    Rows are padded to an equal split; padding does not count. All workers must call it, each with
    all batches.

    Args:
      model: as for an Evaluator, made in the strategy's scope.
      distribution: of the run.
      options: of an Evaluator.
    """

    def __init__(self, model, distribution: Distribution, **options):
        with distribution.strategy.scope():
            super().__init__(model, **options)
        self._distribution = distribution
        on_one = self._step

        def on_all(*inputs):
            return distribution.strategy.run(on_one, args=inputs)

        self._step = tf.function(on_all, autograph=False)

    def _initial(self, num_rows):
        first, end = self._distribution.rows(self._padded(num_rows))
        return self._distribution.deal(super()._initial(end - first))

    def _read(self, batch, row_ids, state):
        more = self._padded(len(batch.ids)) - len(batch.ids)

        def pad(x, value):
            widths = [(0, more), *[(0, 0)] * (x.ndim - 1)]
            padded = np.pad(x, widths, constant_values=value)
            return self._distribution.deal_all(tf.constant(padded))

        ids, targets = pad(batch.ids, 0), pad(batch.targets, -1)
        starts = pad(batch.document_start, False)
        *found, state = self._step(ids, targets, starts, pad(row_ids, 0), state)
        nll, targets = (self._distribution.gather(x).numpy()[: len(batch.ids)] for x in found)
        return nll, targets, state

    def _padded(self, num_rows):
        """Returns the next number of rows that divides equally among replicas."""
        return -(-num_rows // self._distribution.num_replicas) * self._distribution.num_replicas
