import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import draw_laws
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.dropout import DropoutKey


def key(step=5, rows=(0, 1, 2, 3), seed=1):
    return dropouts.DropoutKey(tf.constant([seed, step]), tf.constant(rows))


def drop(x, rate=0.25, site=3, **kwargs):
    return np.array(dropouts.dropout(tf.constant(x), rate, key(**kwargs), site))


ONES = np.ones([4, 50, 40], "float32")


class DropoutTest(parameterized.TestCase):
    def test_kept_values_are_scaled_and_their_share_is_right(self):
        for rate in (0.1, 0.5, 0.9):
            dropped = drop(ONES, rate=rate)
            self.assertSameElements(np.unique(dropped), [0, np.float32(1 / (1 - rate))])
            # 8,000 draws: five deviations of the share.
            width = 5 * (rate * (1 - rate) / dropped.size) ** 0.5
            self.assertAlmostEqual((dropped == 0).mean(), rate, delta=width)

    def test_nothing_is_dropped_without_key_or_rate(self):
        np.testing.assert_array_equal(dropouts.dropout(ONES, 0.5, None, 0), ONES)
        np.testing.assert_array_equal(dropouts.dropout(ONES, 0.0, key(), 0), ONES)

    def test_same_seed_step_row_and_site_give_the_same_mask(self):
        np.testing.assert_array_equal(drop(ONES), drop(ONES))

    @parameterized.parameters(dict(step=6), dict(seed=2), dict(site=4), dict(rows=(4, 5, 6, 7)))
    def test_any_other_gives_another_mask(self, **change):
        same = (drop(ONES) == drop(ONES, **change)).mean()
        self.assertAlmostEqual(same, 0.75**2 + 0.25**2, delta=0.03)  # as if drawn apart

    def test_rows_differ_from_each_other(self):
        dropped = drop(ONES, rate=0.5)
        for a in range(4):
            for b in range(a):
                self.assertAlmostEqual((dropped[a] == dropped[b]).mean(), 0.5, delta=0.06)

    def test_a_row_keeps_its_mask_wherever_it_is_computed(self):
        whole = drop(ONES)
        np.testing.assert_array_equal(drop(ONES[:2], rows=(2, 3)), whole[2:])

    def test_one_draw_for_all_rows(self):
        table = np.ones([7, 9], "float32")
        one = dropouts.dropout(table, 0.5, key(rows=(0,)), 1, by_row=False)
        other = dropouts.dropout(table, 0.5, key(rows=(8, 9)), 1, by_row=False)
        np.testing.assert_array_equal(one, other)

    @parameterized.parameters(
        lambda key: dropouts.dropout(ONES[:3, :5], 0.25, key, 3),
        lambda key: dropouts.dropout(ONES[:3, :5], 0.25, key, 3, by_row=False),
        lambda key: dropouts.dropout(ONES[:3, :5], 0.25, key.fold_in(1), 3),
        lambda key: dropouts.uniform([3, 7, 2], key, 3),
    )
    def test_compiled_is_bit_for_bit_the_same(self, draw):
        draw_laws.check_compiled(lambda seed: draw(DropoutKey(seed, tf.range(3))))

    def test_parts_of_a_place_draw_on_their_own(self):
        masks = [dropouts.dropout(ONES, 0.5, key().fold_in(n), 3) for n in (0, 1, 1)]
        np.testing.assert_array_equal(masks[1], masks[2])
        self.assertAlmostEqual((masks[0] == masks[1]).numpy().mean(), 0.5, delta=0.03)


if __name__ == "__main__":
    absltest.main()
