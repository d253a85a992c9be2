from absl.testing import absltest

from txl_tf.layers import clusters


class ClustersTest(absltest.TestCase):
    def test_bounds_cover_the_vocabulary(self):
        self.assertEqual(clusters.bounds(10, (4, 7)), [(0, 4), (4, 7), (7, 10)])
        self.assertEqual(clusters.bounds(10, ()), [(0, 10)])

    def test_a_table_a_cluster_only_where_widths_differ(self):
        self.assertEqual(clusters.table_shapes(10, 8, (4, 7), 1), [(10, 8)])
        self.assertEqual(clusters.table_shapes(10, 8, (4, 7), 2), [(4, 8), (3, 4), (3, 2)])
        self.assertEqual(clusters.table_shapes(10, 9, (4,), 2), [(4, 9), (6, 4)])

    def test_only_one_of_several_is_numbered(self):
        self.assertEqual(clusters.named("table", ["a"]), [("table", "a")])
        self.assertEqual(clusters.named("table", ["a", "b"]), [("table_0", "a"), ("table_1", "b")])


if __name__ == "__main__":
    absltest.main()
