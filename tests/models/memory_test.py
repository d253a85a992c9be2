import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from txl_tf.models import memory


def column(*values):
    """One row of one-dimensional states. [1, len, 1]"""
    return np.array(values, "float32")[np.newaxis, :, np.newaxis]


class RememberTest(parameterized.TestCase):
    @parameterized.parameters(
        ((0, 0, 0), (1, 2), (0, 1, 2)),
        ((1, 2, 3), (4,), (2, 3, 4)),
        ((1, 2), (3, 4, 5), (4, 5)),
        ((), (1, 2), ()),
    )
    def test_keeps_the_newest(self, past, new, expected):
        kept = memory.remember(column(*past), column(*new))
        np.testing.assert_array_equal(np.ravel(kept), expected)

    def test_leaves_padding_out(self):
        past, new = np.tile(column(1, 2), (3, 1, 1)), np.tile(column(3, 4, 5), (3, 1, 1))
        kept = memory.remember(past, new, lengths=np.array([0, 1, 3], "int32"))
        np.testing.assert_array_equal(kept[..., 0], [[1, 2], [2, 3], [4, 5]])

    def test_stops_the_gradient(self):
        new = tf.Variable(column(3, 4))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(memory.remember(column(1, 2), new))
        self.assertIsNone(tape.gradient(loss, new))


class RememberedAfterTest(parameterized.TestCase):
    def after(self, remembered, **kwargs):
        return list(np.array(memory.remembered_after(tf.constant(remembered), 5, 3, **kwargs)))

    def test_counts_up_to_the_slots(self):
        self.assertEqual(self.after([0, 1, 2, 4]), [3, 4, 5, 5])

    def test_counts_real_tokens(self):
        self.assertEqual(self.after([0, 1, 4], lengths=tf.constant([0, 2, 3])), [0, 3, 5])

    def test_starts_again_with_the_last_document(self):
        starts = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]], bool)
        self.assertEqual(self.after([4, 4, 1], document_start=starts), [3, 1, 4])

    def test_a_start_in_the_padding_is_none(self):
        starts = np.array([[0, 0, 1], [0, 1, 1]], bool)
        lengths = tf.constant([2, 2])
        self.assertEqual(self.after([1, 1], lengths=lengths, document_start=starts), [3, 1])


if __name__ == "__main__":
    absltest.main()
