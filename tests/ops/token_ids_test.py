import numpy as np
from absl.testing import absltest

from txl_tf.ops.token_ids import check_ids


class CheckIdsTest(absltest.TestCase):
    def test_all_ids_of_the_vocabulary_pass(self):
        check_ids("ids", np.arange(11), 11)
        check_ids("ids", [], 11)

    def test_a_wrong_id_is_named_with_the_vocabulary(self):
        with self.assertRaisesRegex(
            ValueError, r"ids must lie in 0\.\.10 \(vocabulary of 11\), got 11"
        ):
            check_ids("ids", [[1, 11], [12, 0]], 11)
        with self.assertRaisesRegex(ValueError, "got -2"):
            check_ids("ids", [-1, -2], 11, ignored=-1)

    def test_the_ignored_value_passes_only_where_it_is_named(self):
        check_ids("targets", [3, -1], 11, ignored=-1)
        with self.assertRaisesRegex(ValueError, "targets .* got -1"):
            check_ids("targets", [3, -1], 11)


if __name__ == "__main__":
    absltest.main()
