import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding

BOUNDS = ((0, 4), (4, 7), (7, 11))
KINDS = dict(
    plain=dict(d_embed=8),
    narrow=dict(d_embed=6),
    one_table=dict(d_embed=6, cutoffs=(4, 7)),
    halves=dict(d_embed=8, cutoffs=(4, 7), div_val=2),
    quarters=dict(d_embed=16, cutoffs=(4, 7), div_val=4),
    unprojected=dict(d_embed=8, cutoffs=(4, 7), div_val=2, project_same_dim=False),
    wide=dict(d_embed=16, cutoffs=(4, 7), div_val=2, project_same_dim=False),
)
WEIGHTS = dict(
    plain={"table": (11, 8)},
    narrow={"table": (11, 6), "projection": (6, 8)},
    one_table={"table": (11, 6), "projection": (6, 8)},
    halves={
        "table_0": (4, 8), "table_1": (3, 4), "table_2": (4, 2),
        "projection_0": (8, 8), "projection_1": (4, 8), "projection_2": (2, 8),
    },
    quarters={
        "table_0": (4, 16), "table_1": (3, 4), "table_2": (4, 1),
        "projection_0": (16, 8), "projection_1": (4, 8), "projection_2": (1, 8),
    },
    unprojected={
        "table_0": (4, 8), "table_1": (3, 4), "table_2": (4, 2),
        "projection_1": (4, 8), "projection_2": (2, 8),
    },
    wide={
        "table_0": (4, 16), "table_1": (3, 8), "table_2": (4, 4),
        "projection_0": (16, 8), "projection_2": (4, 8),
    },
)  # fmt: skip
IDS = helpers.draw_ids(3, 7)
ATOL = rounding.tolerance(16, scale=8**0.5 * 16 * 0.5**2)  # a projection, times the root of D


def make(kind, **options):
    layer = AdaptiveEmbedding(vocab_size=11, d_model=8, **KINDS[kind], **options)
    layer.build()
    return helpers.loud(layer)


def to_numpy(weight):
    return np.array(tf.convert_to_tensor(weight), "float64")


def oracle(layer, ids):
    """Looks up and projects one id at a time."""
    out = np.zeros([*ids.shape, 8])
    for place in np.ndindex(*ids.shape):
        cluster, first = 0, 0
        if len(layer.tables) > 1:
            for i, (start, end) in enumerate(BOUNDS):
                if start <= ids[place] < end:
                    cluster, first = i, start
        row = to_numpy(layer.tables[cluster])[ids[place] - first]
        projection = layer.projections[cluster]
        row = row if projection is None else row @ to_numpy(projection)
        out[place] = row * np.sqrt(8)
    return out


def probe_gradients(layer, ids):
    """Gradients of the sum of the squares, with respect to every weight."""
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.cast(layer(ids), tf.float32) ** 2)
    return tape.gradient(total, [weight.value for weight in layer.trainable_variables])


class AdaptiveEmbeddingTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_matches_a_plain_loop(self, kind):
        layer = make(kind)
        np.testing.assert_allclose(layer(IDS), oracle(layer, IDS), rtol=0, atol=ATOL)

    @parameterized.parameters(*KINDS)
    def test_has_the_weights_of_the_original(self, kind):
        layer = make(kind)
        self.assertEqual({w.name: tuple(w.shape) for w in layer.weights}, WEIGHTS[kind])
        self.assertLen(layer.projections, len(layer.tables))
        for table, projection in zip(layer.tables, layer.projections, strict=True):
            if projection is not None:
                self.assertEqual(tuple(projection.shape), (table.shape[1], 8))

    @parameterized.parameters("narrow", "halves", "unprojected")
    def test_gradients_are_dense_and_right(self, kind):
        layer = make(kind)
        gradients = probe_gradients(layer, IDS)
        for weight, gradient in zip(layer.trainable_variables, gradients, strict=True):
            self.assertIsInstance(gradient, tf.Tensor)
            self.check_slope(layer, weight, gradient)

    def check_slope(self, layer, weight, gradient):
        """Compares with the change of the float64 oracle in one random direction."""
        before = to_numpy(weight)
        direction = np.random.default_rng(1).normal(size=before.shape)
        totals = []
        for step in (1e-3, -1e-3):
            weight.assign(before + step * direction)
            totals.append((oracle(layer, IDS) ** 2).sum())
        weight.assign(before)
        slope = (totals[0] - totals[1]) / 2e-3
        products = np.array(gradient) * direction  # a square's slope is exact but for the weights,
        scale = np.abs(products).sum() * np.abs(before).max() / 1e-3  # which steps of 1e-3 round
        atol = rounding.tolerance(1, scale=scale)
        np.testing.assert_allclose(products.sum(), slope, rtol=0, atol=atol)

    @parameterized.parameters("narrow", "halves")
    def test_compiled_by_xla_is_the_same(self, kind):
        layer = make(kind)
        compiled = tf.function(functools.partial(probe_gradients, layer), jit_compile=True)
        gradients = probe_gradients(layer, IDS)
        scale = max(np.abs(gradient).max() for gradient in gradients)
        atol = rounding.tolerance(2 * 16, 8, IDS.size, scale=scale)
        for got, expected in zip(compiled(IDS), gradients, strict=True):
            np.testing.assert_allclose(got, expected, rtol=0, atol=atol)

    @parameterized.product(kind=("plain", "halves"), wrong=(-1, 11))
    def test_an_id_outside_the_vocabulary_is_an_error(self, kind, wrong):
        layer = make(kind)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "is not in"):
            layer(np.array([[0, wrong, 5]], "int32"))

    @parameterized.parameters("narrow", "wide")  # no projection has a table's shape
    def test_bfloat16_is_close_and_casts_rows_not_tables(self, kind):
        exact, layer = make(kind), make(kind, dtype="mixed_bfloat16")
        out = layer(IDS)
        self.assertEqual(out.dtype, tf.bfloat16)
        self.assertEqual({w.dtype for w in layer.weights}, {"float32"})
        error = np.abs(tf.cast(out, tf.float32) - exact(IDS)).mean()
        self.assertLess(error, rounding.typical(2 + 16, scale=8**0.5 * 16**0.5 * 0.5**2))
        self.assertEqual({g.dtype for g in probe_gradients(layer, IDS)}, {tf.float32})
        graph = tf.function(layer).get_concrete_function(IDS).graph
        casts = [op.outputs[0].shape for op in graph.get_operations() if op.type == "Cast"]
        self.assertNotEmpty(casts)
        for table in layer.tables:
            self.assertNotIn(tuple(table.shape), [tuple(shape) for shape in casts])

    def test_fresh_weights_have_their_deviations_and_are_not_alike(self):
        layer = AdaptiveEmbedding(
            vocab_size=400, d_model=64, d_embed=64, cutoffs=(100, 200), div_val=2, init_std=0.5
        )
        layer.build()
        for weights, deviation in ((layer.tables, 0.5), (layer.projections, 0.01)):
            for weight in weights:
                np.testing.assert_allclose(to_numpy(weight).std(), deviation, rtol=0.1)
        first, second = (to_numpy(layer.projections[i]).ravel()[:8] for i in (0, 1))
        self.assertGreater(np.abs(first - second).max(), 1e-3)

    @parameterized.parameters("unprojected", "narrow")
    def test_config_and_weights_make_the_same_layer_again(self, kind):
        layer = make(kind, init_std=0.3, proj_init_std=0.2)
        config = keras.saving.serialize_keras_object(layer)
        twin = keras.saving.deserialize_keras_object(config)
        self.assertEqual(twin.get_config(), layer.get_config())
        twin.set_weights(layer.get_weights())
        np.testing.assert_array_equal(twin(IDS), layer(IDS))


if __name__ == "__main__":
    absltest.main()
