"""Routing attention against a plain loop; where its window holds all tokens, it obeys all laws."""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import model_laws
import rounding
import spec_layers
from txl_tf.inference.decode_state import KeyValueState
from txl_tf.models.sequence_classifier import SequenceClassifier
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.attention_mask import AttentionMask
from txl_tf.ops.dropout import DropoutKey

LOCAL, HEADS, WIDTH = 1, 3, 4
SMALL = "routing(clusters=3, local_heads=1, window=4, local_window=3)"


def make_core(clusters=3, window=4, **options):
    options = "".join(f", {name}={value}" for name, value in options.items())
    core = spec_layers.core(
        f"routing(clusters={clusters}, local_heads={LOCAL}, window={window}, local_window=2"
        f"{options})"
    )
    core.build_weights(8, HEADS, WIDTH, 0.5)
    core.centroids.assign(np.random.default_rng(7).normal(size=core.centroids.shape))
    return core


def draw(rows, queries, slots):
    """content_query, position_query, keys, values, encodings."""
    normal = np.random.default_rng(0).normal
    queries, keys = [rows, LOCAL, queries, WIDTH], [rows, HEADS, slots + queries, WIDTH]
    shapes = queries, queries, keys, keys, [LOCAL, slots + queries[2], WIDTH]
    return [normal(size=shape).astype("float32") for shape in shapes]


def by_hand(core, keys, values, slots, competes, document, span):
    """Outputs of the routed heads and how many clusters took a token, loop by loop in float64."""
    keys, values = (x[:, LOCAL:].astype(float) for x in (keys, values))
    rows, heads, num_keys, width = keys.shape
    centroids, sums = core.centroids.numpy(), np.zeros([rows, heads, num_keys - slots, width])
    counts = np.zeros(sums.shape[:3])
    for b, h, c in np.ndindex(rows, heads, core.spec.clusters):
        directions = keys[b, h] / np.linalg.norm(keys[b, h], axis=-1, keepdims=True)
        similarity = np.round(2**12 * directions @ centroids[h, c])
        ranked = sorted(range(num_keys), key=lambda j: (similarity[j], j), reverse=True)
        members = sorted([j for j in ranked if competes[b, j]][: core.spec.window])
        for i in (i for i in members if i >= slots):
            seen = [j for j in members if j < i and document[b, j] == document[b, i]]
            seen = [j for j in seen if span is None or i - j < span] or [i]
            scores = directions[seen] @ keys[b, h, i] / width**0.5
            weights = np.exp(scores - scores.max())
            sums[b, h, i - slots] += weights / weights.sum() @ values[b, h, seen]
            counts[b, h, i - slots] += 1
    return sums / (counts + 1e-5)[..., np.newaxis], counts


class OracleTest(parameterized.TestCase):
    @parameterized.product(
        slots=(0, 6), window=(1, 4, 30), lengths=(None, (5, 2)), documents=(False, True)
    )
    def test_equals_a_plain_loop(self, slots, window, lengths, documents):
        num_tokens, remembered, span = 7, np.minimum([6, 2], slots), 5 if documents else None
        core, arrays = make_core(window=window), draw(2, num_tokens, slots)
        starts = np.cumsum(np.arange(num_tokens) == [[3], [5]], axis=1) * documents
        real = None if lengths is None else np.arange(num_tokens) < np.array(lengths)[:, np.newaxis]
        mask = AttentionMask(
            remembered=tf.constant(remembered, tf.int32),
            documents=tf.constant(starts, tf.int32) if documents else None,
            attention_span=span,
        )
        run = tf.function(lambda: core(*arrays, visibility=mask, real=real), jit_compile=True)
        key = np.arange(slots + num_tokens)
        competes = key >= slots - remembered[:, np.newaxis]
        competes[:, slots:] &= True if real is None else real
        document = np.pad(starts, [[0, 0], [slots, 0]])
        expected, counts = by_hand(core, *arrays[2:4], slots, competes, document, span)
        shown = competes[:, np.newaxis, slots:, np.newaxis]  # outputs of padding are undefined
        atol = 2 * rounding.of_attention(WIDTH, slots + num_tokens, arrays[3])
        for found in (core(*arrays, visibility=mask, real=real), run()):
            found = np.where(shown, found[:, LOCAL:], 0.0)
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        if window == 4 and not slots:
            self.assertEqual({0, 1, 2} - set(counts.ravel()), set())  # none, one and several

    def test_local_heads_are_local_attention(self):
        core, arrays = make_core(), draw(2, 5, 3)
        local = [arrays[0], arrays[1], arrays[2][:, :LOCAL], arrays[3][:, :LOCAL], arrays[4]]
        mask = AttentionMask(remembered=tf.constant([3, 1]))
        expected = spec_layers.core("local(window=2)")(*local, visibility=mask)
        np.testing.assert_array_equal(core(*arrays, visibility=mask)[:, :LOCAL], expected)

    def test_keys_in_a_ring(self):
        core, arrays, slots = make_core(), draw(2, 1, 6), 6
        mask = AttentionMask(remembered=tf.constant([6, 3]))
        expected = core(*arrays, visibility=mask)
        for shift in range(slots + 1):
            turned = [np.roll(x, shift, axis=2) for x in arrays[2:4]]
            ring = dataclasses.replace(mask, ring_index=tf.constant((slots + shift) % (slots + 1)))
            found = core(*arrays[:2], *turned, arrays[4], visibility=ring)
            atol = rounding.of_attention(WIDTH, slots + 1, arrays[3])
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


class CentroidsTest(parameterized.TestCase):
    def counted(self, real=None, **options):
        core, arrays = make_core(**options), draw(2, 6, 3)
        key = DropoutKey(tf.constant([0, 0]), tf.range(2))
        mask = AttentionMask(remembered=tf.constant([3, 1]))
        core(*arrays, visibility=mask, dropout_key=key, real=real)
        return core, arrays[2][:, LOCAL:, 3:]  # only the segment counts

    @parameterized.parameters(False, True)
    def test_sums_and_loss_by_hand(self, padded):
        real = np.arange(6) < [[6], [3]] if padded else np.ones([2, 6], bool)
        core, keys = self.counted(real=tf.constant(real) if padded else None, commitment=0.1)
        centroids, sums = core.centroids.numpy(), np.zeros(core.sums_shape)
        squares = []
        for b, h, t in np.ndindex(keys.shape[:3]):
            if real[b, t]:
                direction = keys[b, h, t] / np.linalg.norm(keys[b, h, t])
                nearest = np.argmax(centroids[h] @ direction)
                sums[h, nearest] += [*direction, 1.0]
                squares.append(np.square(direction - centroids[h, nearest]))
        atol = rounding.tolerance(WIDTH, 12, scale=np.abs(centroids).max() ** 2)
        np.testing.assert_allclose(core.cluster_sums, sums, rtol=0, atol=atol)
        self.assertAlmostEqual(float(core.commitment), 0.1 * np.mean(squares), delta=atol)

    def test_move_towards_the_mean_direction_of_their_tokens(self):
        core = make_core(decay=0.75)
        before = core.centroids.numpy()
        sums = np.zeros(core.sums_shape, "float32")
        sums[0, 1] = [3.0, 0.0, 4.0, 0.0, 7.0]
        core.move_centroids(tf.constant(sums), tf.constant(False))
        np.testing.assert_array_equal(core.centroids, before)
        core.move_centroids(tf.constant(sums), tf.constant(True))
        expected = before.copy()
        expected[0, 1] = 0.75 * before[0, 1] + 0.25 * np.array([0.6, 0.0, 0.8, 0.0])
        atol = rounding.tolerance(WIDTH, scale=np.abs(before).max())
        np.testing.assert_allclose(core.centroids, expected, rtol=0, atol=atol)
        empty = np.ones(core.sums_shape[:2], bool)
        empty[0, 1] = False  # centroids without tokens stay as they are
        np.testing.assert_array_equal(core.centroids.numpy()[empty], before[empty])

    def test_start_as_random_directions(self):
        core = spec_layers.core("routing(clusters=5, local_heads=1)")
        core.build_weights(8, HEADS, WIDTH, 0.5)
        norms = np.linalg.norm(core.centroids.numpy(), axis=-1)
        np.testing.assert_allclose(norms, np.ones([2, 5]), rtol=rounding.tolerance(2 * WIDTH))
        self.assertGreater(core.centroids.numpy().std(), 0.3)

    def test_without_training_nothing_is_counted(self):
        core, arrays = make_core(), draw(2, 6, 0)
        core(*arrays, visibility=AttentionMask(remembered=tf.constant([0, 0])))
        self.assertIsNone(core.cluster_sums)
        self.assertIsNone(core.commitment)


@functools.cache
def make_model(attention, **changes):
    keras.utils.set_random_seed(1)
    sizes = dict(attention=(attention,), mem_len=12)
    return helpers.loud(TransformerXL(helpers.tiny_config(**sizes | changes)))


class WholeWindowTest(model_laws.Laws, parameterized.TestCase):
    """Clusters that take all tokens: nothing depends on which are read together."""

    KINDS = REMEMBERING = ("routing(clusters=2, local_heads=1, window=24, local_window=24)",)

    def make_model(self, kind, **changes):
        return make_model(kind, **changes)

    def depends_on_segment(self, model):
        return False


class ModelTest(parameterized.TestCase):
    def test_keys_are_queries(self):
        (block, _) = make_model(SMALL).blocks
        shapes = {w.name: tuple(w.shape) for w in block.attention.weights}
        self.assertEqual(shapes["key_kernel"], (8, 2, 4))
        self.assertEqual(shapes["query_kernel"], (8, 1, 4))
        self.assertEqual(shapes["position_kernel"], (8, 1, 4))

    def test_the_ring_selects_as_single_tokens_do(self):
        model, ids = make_model(SMALL), helpers.draw_ids(2, 20)
        state, mems = KeyValueState(model), None
        ring = state.to_ring_buffer(state.initial(2))
        step = tf.function(state.next_scores, autograph=False)
        for place in range(20):
            expected, mems = model(ids[:, place : place + 1], mems)
            found, ring = step(tf.constant(ids[:, place]), ring)
            atol = rounding.of_scores(model.config, 12)
            np.testing.assert_allclose(found, expected[:, 0], rtol=0, atol=atol)

    def test_is_refused_in_a_backbone(self):
        with self.assertRaisesRegex(ValueError, "attention must not be routing .* centroids are"):
            SequenceClassifier(make_model(SMALL).config, 3, segment_len=4)

    @parameterized.parameters(False, True)
    def test_fit_moves_the_centroids_as_a_step_does(self, jit):
        attention = SMALL.replace(")", ", decay=0.5)")
        config = helpers.tiny_config(attention=(attention,), mem_len=4)
        keras.utils.set_random_seed(1)
        model = helpers.loud(TransformerXL(config))
        before = [core.centroids.numpy() for core in model.routing_cores]
        ids = helpers.draw_ids(2, 6)
        model(ids, training=True)
        sums = [x.numpy() for x in model.cluster_sums()]
        model.compile(keras.optimizers.SGD(0.01), jit_compile=jit)
        model.fit(ids, ids, batch_size=2, verbose=0)
        for core, old, counted in zip(model.routing_cores, before, sums, strict=True):
            found = core.centroids.numpy()
            core.centroids.assign(old)
            core.move_centroids(tf.constant(counted), True)
            atol = rounding.of_states(config, 6)
            np.testing.assert_allclose(found, core.centroids, rtol=0, atol=atol)
            self.assertGreater(np.abs(found - old).max(), 0.1)


if __name__ == "__main__":
    absltest.main()
