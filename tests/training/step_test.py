"""Laws of a training step: the meaning of its loss, and independence of splits of the rows."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
from trainee import ROWS, SMOOTH, TOKENS, Trainee, atol_of, farthest, make_batch
from txl_tf.configs.run import DataConfig
from txl_tf.data.batches import Batch
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.dropout import DropoutKey
from txl_tf.training.distribution import make_distribution


class LossTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)

    def test_is_the_mean_of_the_real_tokens(self):
        """By hand from the scores: minus the log-softmax at the target of the same place."""
        trainee, batch = Trainee(), make_batch()
        scores, _ = trainee.model(batch.ids, trainee.memory)
        log_probs = np.array(tf.nn.log_softmax(scores))
        targets = batch.targets.numpy()
        real = [(b, t) for b in range(ROWS) for t in range(TOKENS) if targets[b, t] >= 0]
        expected = -np.mean([log_probs[b, t, targets[b, t]] for b, t in real])
        nats, tokens, *_ = trainee.steps(batch)[0]
        self.assertAlmostEqual(nats, expected, delta=atol_of(trainee))
        self.assertEqual(tokens, len(real))

    @parameterized.parameters((0.5, 2), (0.2, 1), (1e-6, 1), (1.0, TOKENS))
    def test_of_the_end_of_segments(self, fraction, scored):
        """Equals the step on targets of which the first are ignored, in loss and in update."""
        ignored = make_batch().targets.numpy()
        ignored[:, : TOKENS - scored] = -1
        expected, found = Trainee(**SMOOTH), Trainee(scored_fraction=fraction, **SMOOTH)
        metrics = expected.steps(make_batch(targets=ignored))[0]
        np.testing.assert_array_equal(found.steps(make_batch())[0], metrics)
        self.assertEqual(farthest(found.weights(), expected.weights()), 0.0)
        self.assertEqual(metrics[1], np.count_nonzero(ignored >= 0))

    def test_of_one_row_of_shifted_targets(self):
        trainee = Trainee(batch_size=1)
        ids, targets = np.arange(1, 9)[np.newaxis], np.arange(2, 10)[np.newaxis]
        arrays = ids.astype("int32"), targets.astype("int32"), np.zeros([1, 8], bool), False
        batch = Batch(*map(tf.constant, arrays))
        memory = trainee.model.initial_mems(1)
        log_probs = tf.nn.log_softmax(trainee.model(batch.ids, memory)[0])
        expected = -np.mean([log_probs[0, t, t + 2] for t in range(8)])
        nats = float(trainee.step(batch, memory)[0].loss)
        self.assertAlmostEqual(nats, expected, delta=atol_of(trainee))

    def test_of_a_single_token_is_that_tokens(self):
        targets = np.full([ROWS, TOKENS], -1, np.int32)
        targets[2, 3] = 7
        trainee, batch = Trainee(), make_batch(targets=targets)
        scores, _ = trainee.model(batch.ids, trainee.memory)
        nats, tokens, *_ = trainee.steps(batch)[0]
        expected = -float(tf.nn.log_softmax(scores)[2, 3, 7])
        self.assertAlmostEqual(nats, expected, delta=atol_of(trainee))
        self.assertEqual(tokens, 1)

    def test_of_zero_output_weights_is_that_of_chance(self):
        trainee = Trainee(changes=dict(tie_embeddings=False))
        for weight in trainee.model.softmax.trainable_variables:
            weight.assign(tf.zeros(weight.shape))
        nats = trainee.steps(make_batch())[0][0]
        atol = rounding.tolerance(11, ROWS * TOKENS, scale=np.log(11))
        self.assertAlmostEqual(nats, 2.397895, delta=atol)
        self.assertAlmostEqual(np.exp(nats), 11.0, delta=11 * atol)
        self.assertAlmostEqual(nats / np.log(2), 3.459432, delta=2 * atol)

    def test_of_no_real_token_is_zero_and_changes_no_weight(self):
        trainee = Trainee()
        before = trainee.weights()
        targets = np.full([ROWS, TOKENS], -1, np.int32)
        nats, tokens, _, norm, *_ = trainee.steps(make_batch(targets=targets))[0]
        self.assertEqual((nats, tokens, norm), (0.0, 0.0, 0.0))
        self.assertEqual(farthest(trainee.weights(), before), 0.0)

    def test_auxiliary_losses_steer_but_are_not_reported(self):
        class Heavy(TransformerXL):
            def nll(self, *args, **kwargs):
                self.add_loss(1e3 * tf.reduce_sum(tf.square(self.softmax.biases[0])))
                return super().nll(*args, **kwargs)

        plain, heavy = Trainee(clip_norm=None), Trainee(Heavy, clip_norm=None)
        bias = heavy.model.softmax.biases[0].numpy()
        found, expected = heavy.steps(make_batch())[0], plain.steps(make_batch())[0]
        self.assertAlmostEqual(found[0], expected[0], delta=atol_of(plain))
        gradient = 2e3 * np.linalg.norm(bias)
        self.assertAlmostEqual(found[3] / gradient, 1.0, delta=0.01)

    def test_auxiliary_losses_are_counted_once_however_the_rows_are_cut(self):
        class Heavy(TransformerXL):
            def nll(self, *args, **kwargs):
                self.add_loss(tf.reduce_sum(tf.square(self.softmax.biases[0])))
                return super().nll(*args, **kwargs)

        whole, cut = Trainee(Heavy), Trainee(Heavy, accumulate_steps=4)
        found, expected = (each.steps(make_batch())[0][:7] for each in (cut, whole))
        bound = atol_of(whole)
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


class UpdateTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)

    def test_the_norm_is_that_before_the_clip_and_the_clip_acts(self):
        """Epsilon so large that Adam's step follows the gradient's size: it shrinks by the clip."""
        options = dict(adam_epsilon=1e3, learning_rate=1e3)
        free, clipped = (Trainee(clip_norm=c, **options) for c in (None, 0.01))
        start = free.weights()
        norms = [t.steps(make_batch())[0][3] for t in (free, clipped)]
        self.assertAlmostEqual(norms[0], norms[1], delta=atol_of(clipped) * norms[1])
        self.assertGreater(norms[0], 0.5)
        for end, other, begin in zip(clipped.weights(), free.weights(), start, strict=True):
            # Differences of weights are right to what weights are.
            atol = rounding.tolerance(4, scale=np.abs(begin).max())
            expected = (other - begin) * 0.01 / norms[0]
            np.testing.assert_allclose(end - begin, expected, rtol=0, atol=atol)

    def test_the_norm_sums_the_rows_of_a_table(self):
        """An id occurs many times: its parts of the tied table's gradient add up first."""
        trainee, batch = Trainee(), make_batch()
        self.assertLess(len(np.unique(batch.ids)), ROWS * TOKENS)
        with tf.GradientTape() as tape:
            nll, _ = trainee.model.nll(batch.ids, batch.targets, trainee.memory)
            loss = tf.reduce_sum(nll) / np.sum(batch.targets >= 0)
        gradients = tape.gradient(loss, trainee.model.trainable_variables)
        dense = [np.array(tf.convert_to_tensor(gradient)) for gradient in gradients]
        norm = np.sqrt(sum(np.sum(np.square(g, dtype=np.float64)) for g in dense))
        found = trainee.steps(batch)[0][3]
        self.assertAlmostEqual(found, norm, delta=atol_of(trainee) * norm)

    def test_no_gradient_flows_through_memory(self):
        """Ids of the first segment alone: their rows of an untied table stay as they are."""
        trainee = Trainee(changes=dict(tie_embeddings=False), learning_rate=0.0)
        first, second = np.full([ROWS, TOKENS], 3), np.full([ROWS, TOKENS], 5)
        batches = [
            Batch(tf.constant(ids, tf.int32), tf.constant(ids, tf.int32), *make_batch()[2:])
            for ids in (first, second)
        ]
        _, memory = trainee.step(batches[0], trainee.memory)
        fresh = Trainee(changes=dict(tie_embeddings=False), learning_rate=0.1)
        table = fresh.model.embedding.tables[0]
        before = table.numpy()
        fresh.step(batches[1], memory)
        changed = np.abs(table.numpy() - before).max(axis=1) > 0
        self.assertEqual(list(np.flatnonzero(changed)), [5])

    def check_parts(self, parts, cutoffs=(), **compiled):
        """With memory, dropout, clipping and rows of unequal weight."""
        changes = dict(dropout=0.2, attention_dropout=0.2, cutoffs=cutoffs)
        options = dict(changes=changes, clip_norm=0.1, **SMOOTH)
        whole, cut = Trainee(**options), Trainee(accumulate_steps=parts, **options, **compiled)
        start, batches = whole.weights(), [make_batch(seed) for seed in range(2)]
        expected = whole.steps(*batches)
        atol = atol_of(whole)
        np.testing.assert_allclose(cut.steps(*batches), expected, rtol=atol, atol=atol)
        self.assertLess(farthest(cut.memory.states, whole.memory.states), atol)
        np.testing.assert_array_equal(cut.memory.length, whole.memory.length)
        self.assertLess(farthest(cut.weights(), whole.weights()), atol)
        self.assertGreater(farthest(whole.weights(), start), 100 * atol)

    @parameterized.parameters(dict(parts=2, cutoffs=(4, 7)), dict(parts=4))
    def test_parts_equal_the_whole(self, **options):
        self.check_parts(**options)

    @pytest.mark.slow
    def test_parts_equal_the_whole_by_xla(self):
        self.check_parts(2, compiled=True, jit=True)

    def test_parts_belong_to_their_rows(self):
        """The law above fails if rows change places: they differ."""
        trainee = Trainee()
        trainee.steps(make_batch())
        rolled = np.roll(trainee.memory.states[0], 1, axis=0)
        self.assertGreater(np.abs(rolled - trainee.memory.states[0]).max(), 0.1)

    def check_compiled(self, jit):
        eager, compiled = (Trainee(jit=jit, compiled=c, **SMOOTH) for c in (False, True))
        batches = make_batch(0, restart=True), make_batch(1), make_batch(2)
        expected = eager.steps(*batches)
        atol = atol_of(eager)
        np.testing.assert_allclose(compiled.steps(*batches), expected, rtol=atol, atol=atol)
        self.assertLess(farthest(compiled.memory.states, eager.memory.states), atol)
        self.assertEqual(compiled.step.experimental_get_tracing_count(), 1)

    def test_compiles_once_to_the_same(self):
        self.check_compiled(jit=False)

    @pytest.mark.slow
    def test_compiles_once_to_the_same_by_xla(self):
        self.check_compiled(jit=True)

    def test_learning_rate_is_that_of_the_step(self):
        trainee = Trainee(learning_rate=0.1, warmup_steps=4)
        rates = trainee.steps(*(make_batch(seed) for seed in range(3)))[:, 2]
        np.testing.assert_allclose(rates, [0.0, 0.025, 0.05], rtol=rounding.tolerance(4))

    def test_bfloat16_is_close_and_keeps_weights_in_float32(self):
        half = Trainee(dtype="mixed_bfloat16", clip_norm=0.1, **SMOOTH)
        full = Trainee(clip_norm=0.1, **SMOOTH)
        batches = [make_batch(seed) for seed in range(3)]
        found, expected = half.steps(*batches), full.steps(*batches)
        atol = rounding.typical_of_scores(full.config.model)
        np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=0, atol=atol)
        self.assertEqual({v.dtype for v in half.model.trainable_variables}, {"float32"})
        self.assertEqual({s.dtype for s in half.memory.states}, {tf.bfloat16})


class MemoryTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)

    def test_carries_from_step_to_step(self):
        trainee = Trainee(learning_rate=0.0)
        memory = trainee.memory
        for seed in range(3):
            batch = make_batch(seed)
            nll, memory = trainee.model.nll(batch.ids, batch.targets, memory)
            expected = float(tf.reduce_sum(nll)) / np.sum(batch.targets >= 0)
            atol = atol_of(trainee)
            self.assertAlmostEqual(trainee.steps(batch)[0][0], expected, delta=atol)
        self.assertLess(farthest(trainee.memory.states, memory.states), atol)

    def test_restart_forgets_all_rows(self):
        trainee = Trainee(learning_rate=0.0)
        fresh = trainee.steps(make_batch(1))[0][0]
        going_on = trainee.steps(make_batch(1))[0][0]
        restarted = trainee.steps(make_batch(1, restart=True))[0][0]
        self.assertGreater(abs(going_on - fresh), 1e-3)
        self.assertAlmostEqual(restarted, fresh, delta=atol_of(trainee))

    def test_documents_reset_memory_only_when_asked(self):
        starts = np.zeros([ROWS, TOKENS], bool)
        starts[:, 0] = True
        losses = {}
        for asked in (False, True):
            data = DataConfig(reset_memory_at_documents=asked)
            trainee = Trainee(data=data, learning_rate=0.0)
            told = trainee.steps(make_batch(1), make_batch(1), make_batch(1, starts=starts))
            losses[asked] = told[:, 0]
        self.assertAlmostEqual(losses[True][2], losses[True][0], delta=atol_of(trainee))
        self.assertGreater(abs(losses[False][2] - losses[False][0]), 1e-3)


class CentroidsTest(parameterized.TestCase):
    """Centroids of routing attention move once in a step, by the sums over all its rows."""

    SPEC = "routing(clusters=3, local_heads=1, window=4, local_window=3, decay=0.5)"

    def make(self, model_class=TransformerXL, **options):
        keras.utils.set_random_seed(1)
        changes = dict(attention=(self.SPEC,), mem_len=6)
        return Trainee(model_class, changes=changes, **(SMOOTH | options))

    def centroids(self, trainee):
        return [core.centroids.numpy() for core in trainee.model.routing_cores]

    def test_by_hand(self):
        trainee, batch = self.make(), make_batch()
        key = DropoutKey(tf.constant([0, 0]), tf.range(ROWS))
        trainee.model(batch.ids, trainee.memory, dropout_key=key, training=True)
        (sums,), (old,) = trainee.model.cluster_sums(), self.centroids(trainee)
        self.assertEqual(sums[..., -1].numpy().sum(), ROWS * TOKENS)
        directions = tf.math.l2_normalize(sums[..., :-1], axis=-1)
        expected = np.where(sums[..., -1:] > 0, 0.5 * old + 0.5 * directions, old)
        trainee.steps(batch)
        self.assertLess(farthest(self.centroids(trainee), [expected]), atol_of(trainee))
        self.assertGreater(farthest([old], [expected]), 0.1)

    def check_same(self, **options):
        plain, other = self.make(), self.make(**options)
        batches = [make_batch(seed) for seed in range(3)]
        expected = plain.steps(*batches)
        atol = atol_of(plain)
        np.testing.assert_allclose(other.steps(*batches), expected, rtol=atol, atol=atol)
        self.assertLess(farthest(self.centroids(other), self.centroids(plain)), atol)
        self.assertLess(farthest(other.weights(), plain.weights()), atol)

    @parameterized.parameters(
        dict(accumulate_steps=2),
        dict(accumulate_steps=4, compiled=True),
        dict(model_class=functools.partial(TransformerXL, rematerialize=True), compiled=True),
    )
    def test_are_the_same_however_a_step_is_computed(self, **options):
        self.check_same(**options)

    @pytest.mark.slow
    def test_are_the_same_by_xla(self):
        self.check_same(jit=True, compiled=True, accumulate_steps=2)

    def test_stay_where_a_step_is_skipped_or_has_no_target(self):
        trainee = self.make()
        before = self.centroids(trainee)
        trainee.steps(make_batch(targets=np.full([ROWS, TOKENS], -1, np.int32)))
        self.assertEqual(farthest(self.centroids(trainee), before), 0.0)
        bias = trainee.model.softmax.biases[0]
        bias.assign(np.full(bias.shape, np.nan))
        self.assertEqual(trainee.steps(make_batch())[0][4], 1.0)
        self.assertEqual(farthest(self.centroids(trainee), before), 0.0)

    def test_commitment_is_an_auxiliary_loss(self):
        trainee = self.make()
        auxiliary = trainee.steps(make_batch())[0][7]
        (loss,) = trainee.model.losses
        self.assertAlmostEqual(auxiliary, float(loss), delta=atol_of(trainee))
        self.assertGreater(auxiliary, 0.0)


class DropoutTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(1)

    def make(self, **train):
        return Trainee(changes=dict(dropout=0.3, attention_dropout=0.3), **train)

    def test_follows_from_seed_and_step(self):
        batch = make_batch(restart=True)
        trainee = self.make(learning_rate=0.0)
        losses = trainee.steps(batch, batch)[:, 0]
        self.assertGreater(abs(losses[0] - losses[1]), 1e-3)
        for index, loss in enumerate(losses):
            key = DropoutKey(tf.constant([1, index]), tf.range(ROWS))
            mems = trainee.model.initial_mems(ROWS)
            nll, _ = trainee.model.nll(
                batch.ids, batch.targets, mems, dropout_key=key, training=True
            )
            expected = float(tf.reduce_sum(nll)) / np.sum(batch.targets >= 0)
            self.assertAlmostEqual(loss, expected, delta=atol_of(trainee))

    def test_another_seed_is_another_run(self):
        losses = [self.make(seed=seed).steps(make_batch())[0][0] for seed in (1, 1, 2)]
        self.assertEqual(losses[0], losses[1])
        self.assertGreater(abs(losses[0] - losses[2]), 1e-3)


class StrategyTest(absltest.TestCase):
    def test_an_unknown_one_is_refused(self):
        with self.assertRaisesRegex(
            ValueError, "strategy must be one of auto, one_device, .*, got 'mirror'"
        ):
            make_distribution("mirror")

    def test_metrics_are_scalars_in_the_order_of_their_names(self):
        trainee = Trainee(train_steps=3)
        metrics, _ = trainee.step(make_batch(), trainee.memory)
        names = ("loss", "tokens", "learning_rate", "gradient_norm", "skipped")
        names += ("dropped", "expert_entropy", "auxiliary", "weight_bound")
        self.assertEqual(metrics._fields, names)
        self.assertEqual({value.shape.rank for value in metrics}, {0})


if __name__ == "__main__":
    absltest.main()
