"""Permutation language modelling's draws against plain Python, and their statistics."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
from txl_tf.ops import permutation, stateless_random
from txl_tf.ops.dropout import DropoutKey

OPTIONS = (
    dict(num_predict=4),
    dict(num_predict=1, max_span=1),
    dict(num_predict=24),
    dict(num_predict=9, block=8),
    dict(num_predict=12, reuse_len=10),
    dict(num_predict=12, block=5, reuse_len=12),
)
ROWS, LENGTH = 6, 24


def key(step=0, rows=ROWS, seed=1):
    return DropoutKey(tf.constant([seed, step]), tf.range(rows))


def draw(**options):
    """Token ids, and their permutation as arrays."""
    ids = helpers.draw_ids(ROWS, LENGTH)
    drawn = permutation.permute(ids, key(), **options)
    return ids, permutation.Permutation(*map(np.array, drawn))


def order_of(visible, positions):
    """The targets in the order in which they are predicted: each sees those before it."""
    return sorted(positions, key=lambda i: sum(visible[i, j] for j in positions))


class PermuteTest(parameterized.TestCase):
    @parameterized.parameters(*OPTIONS)
    def test_each_target_sees_what_an_order_lets_it_see(self, **options):
        _, drawn = draw(**options)
        block, reuse_len = options.get("block", LENGTH), options.get("reuse_len", 0)

        def block_of(i):
            return (0, i // block) if i < reuse_len else (1, (i - reuse_len) // block)

        for visible, positions in zip(drawn.visible, drawn.positions, strict=True):
            order = order_of(visible, positions)
            self.assertEqual([block_of(i) for i in order], sorted(map(block_of, order)))
            for i, j in np.ndindex(LENGTH, LENGTH):
                if i < reuse_len <= j:
                    expected = False  # what enters the memory knows nothing of what follows
                elif j not in positions:
                    expected = True
                else:
                    expected = i in positions and order.index(j) < order.index(i)
                self.assertEqual(visible[i, j], expected, (i, j, order))

    @parameterized.parameters(*OPTIONS)
    def test_targets_are_distinct_tokens_of_the_segment(self, **options):
        ids, drawn = draw(**options)
        self.assertEqual(drawn.positions.shape, (ROWS, options["num_predict"]))
        self.assertTrue((np.diff(drawn.positions, axis=1) > 0).all())
        self.assertTrue(((drawn.positions >= 0) & (drawn.positions < LENGTH)).all())
        np.testing.assert_array_equal(drawn.targets, np.take_along_axis(ids, drawn.positions, 1))

    def test_padding_has_no_targets(self):
        ids, lengths = helpers.draw_ids(ROWS, LENGTH), tf.constant([24, 20, 13, 5, 1, 0])
        drawn = permutation.permute(ids, key(), num_predict=12, lengths=lengths)
        real = np.array(drawn.positions) < np.array(lengths)[:, np.newaxis]
        np.testing.assert_array_equal(np.array(drawn.targets) >= 0, real)

    def test_all_tokens_are_targets_equally_often(self):
        ids = np.zeros([4000, 60], "int32")
        drawn = permutation.permute(ids, key(rows=4000), num_predict=10)
        chosen = np.zeros(ids.shape)
        np.put_along_axis(chosen, np.array(drawn.positions), 1.0, axis=1)
        deviation = (1 / 6 * 5 / 6 / 4000) ** 0.5  # of the share of a token
        middle = chosen.mean(axis=0)[6:-6]  # a short context at an end has few places for a span
        np.testing.assert_allclose(middle.mean(), 1 / 6, rtol=0, atol=4 * deviation)

    def test_short_spans_are_the_most_frequent(self):
        ids = np.zeros([4000, 500], "int32")

        @tf.function  # whose graph leaves out the masks, a gigabyte each
        def draw_positions():
            return permutation.permute(ids, key(rows=4000), num_predict=10).positions

        positions = draw_positions().numpy()
        # The first span is never cut, and in so long a context hardly ever meets the second.
        is_next = np.diff(positions, axis=1) == 1
        first = 1 + np.cumprod(is_next, axis=1).sum(axis=1)
        weights = 1 / np.arange(1, 6) / sum(1 / np.arange(1, 6))
        for size, expected in enumerate(weights, 1):
            deviation = (expected * (1 - expected) / 4000) ** 0.5
            self.assertAlmostEqual((first == size).mean(), expected, delta=4 * deviation)

    def test_orders_are_equally_likely(self):
        ids = np.zeros([4000, 3], "int32")
        drawn = permutation.permute(ids, key(rows=4000), num_predict=3)
        orders = [tuple(order_of(visible, range(3))) for visible in np.array(drawn.visible)]
        counts = [orders.count(order) for order in sorted(set(orders))]
        self.assertLen(counts, 6)
        deviation = (4000 * 1 / 6 * 5 / 6) ** 0.5
        np.testing.assert_allclose(counts, 4000 / 6, rtol=0, atol=4 * deviation)

    def test_draws_follow_from_key_and_row(self):
        ids = helpers.draw_ids(ROWS, LENGTH)
        whole = permutation.permute(ids, key(), num_predict=4)
        part_key = DropoutKey(key().seed, tf.range(2, 4))
        part = permutation.permute(ids[2:4], part_key, num_predict=4)
        for found, expected in zip(part, whole, strict=True):
            np.testing.assert_array_equal(found, expected[2:4])
        for other in (key(step=1), key(seed=2)):
            drawn = permutation.permute(ids, other, num_predict=4)
            self.assertTrue(np.any(drawn.positions != whole.positions))

    @parameterized.parameters(True, False)
    def test_compiled_equals_eager(self, jit):
        def run(ids):
            return permutation.permute(ids, key(), num_predict=7, block=9)

        ids = helpers.draw_ids(ROWS, LENGTH)
        compiled = tf.function(run, jit_compile=jit)
        for found, expected in zip(compiled(ids), run(ids), strict=True):
            np.testing.assert_array_equal(found, expected)

    def test_it_maps_over_a_dataset(self):
        ids = helpers.draw_ids(2 * ROWS, LENGTH)
        batches = tf.data.Dataset.from_tensor_slices(ids).batch(ROWS, drop_remainder=True)

        def permute(step, ids):
            seed = stateless_random.fold_in(tf.constant([1, 0]), tf.cast(step, tf.int32))
            return permutation.permute(ids, DropoutKey(seed, tf.range(ROWS)), num_predict=4)

        first, second = batches.enumerate().map(permute)
        self.assertEqual(first.positions.shape, (ROWS, 4))
        self.assertTrue(np.any(first.positions != second.positions))

    @parameterized.parameters(0, 25)
    def test_impossible_numbers_of_targets_are_refused(self, num_predict):
        message = f"num_predict must be from 1 to the 24 tokens of a segment, got {num_predict}"
        with self.assertRaisesRegex(ValueError, message):
            draw(num_predict=num_predict)


if __name__ == "__main__":
    absltest.main()
