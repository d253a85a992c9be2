"""Tests of txl_tf.inference.sampling."""

import numpy as np
from absl.testing import absltest, parameterized

import draw_laws
from txl_tf.inference import sampling
from txl_tf.inference.sampling import Sampling


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def distribution(scores, temperature=1.0, top_k=None, top_p=1.0, banned_ids=()):
    """The probability of each id of one row, in plain NumPy."""
    scores = np.array(scores, np.float64)
    scores[list(banned_ids)] = -np.inf
    order = np.argsort(-scores, kind="stable")
    probabilities = np.zeros(len(scores))
    order = order[:top_k]
    probabilities[order] = softmax(scores[order] / temperature)
    together = 0.0
    for place, index in enumerate(order):
        if together >= top_p:
            probabilities[order[place:]] = 0.0
            break
        together += probabilities[index]
    return probabilities / probabilities.sum()


def choose(scores, uniforms, **options):
    scores = np.repeat(np.array(scores, "float32")[np.newaxis], len(uniforms), axis=0)
    return np.array(sampling.choose(scores, np.array(uniforms, "float32"), Sampling(**options)))


class ChooseByRowTest(absltest.TestCase):
    def test_rows_are_chosen_as_if_alone(self):
        settings = [
            {},
            {"temperature": 0.5},
            {"temperature": 0.0},
            {"temperature": 1e-30},
            {"top_k": 1},
            {"top_k": 3},
            {"top_k": 100},
            {"top_p": 0.5},
            {"top_p": 1e-9},
            {"temperature": 0.7, "top_k": 5, "top_p": 0.8},
        ]
        draw = np.random.default_rng(3)
        scores = draw.normal(scale=2.0, size=[200, len(settings), 11]).astype("float32")
        uniforms = draw.random(size=[200, len(settings)]).astype("float32")
        columns = [
            np.array([row.get("temperature", 1.0) for row in settings], "float32"),
            np.array([row.get("top_k", 0) for row in settings], "int32"),
            np.array([row.get("top_p", 1.0) for row in settings], "float32"),
        ]
        draws = zip(scores, uniforms, strict=True)
        found = np.array([sampling.choose_by_row(*drawn, *columns) for drawn in draws])
        for i, options in enumerate(settings):
            expected = sampling.choose(scores[:, i], uniforms[:, i], Sampling(**options))
            np.testing.assert_array_equal(found[:, i], expected)
        self.assertGreater(len(set(found[:, 0].tolist())), 5)
        self.assertGreater(np.count_nonzero(found[:, 0] != found[:, 2]), 20)


class ChooseTest(parameterized.TestCase):
    @parameterized.parameters(
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 3},
        {"top_k": 100},
        {"top_p": 0.5},
        {"top_p": 0.9},
        {"top_p": 1e-9},
        {"temperature": 0.7, "top_k": 5, "top_p": 0.8},
        {"banned_ids": (2, 7)},
        {"top_k": 4, "banned_ids": (2,)},
    )
    def test_evenly_spaced_uniforms_give_the_oracles_distribution(self, **options):
        scores = np.random.default_rng(3).normal(scale=2.0, size=11)
        count = 20_000
        chosen = choose(scores, (np.arange(count) + 0.5) / count, **options)
        found = np.bincount(chosen, minlength=11) / count
        # Each end of a word's stretch may fall to the uniform on its other side.
        expected = distribution(scores, **options)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2 * 2 / count)

    @parameterized.parameters({"temperature": 0.0}, {"top_k": 1}, {"temperature": 1e-30})
    def test_no_room_for_chance_is_greedy(self, **options):
        scores = [1.0, 4.0, 4.0, 2.0]  # of equals the first
        np.testing.assert_array_equal(choose(scores, np.linspace(0, 0.999, 50), **options), 1)

    @parameterized.parameters({"temperature": 1e-5}, {"temperature": 1e30}, {"top_p": 1e-30})
    def test_extremes_are_no_nan(self, **options):
        chosen = choose([1e4, -1e4, 0.0], np.linspace(0, 0.999999, 50), **options)
        self.assertTrue(np.all((chosen >= 0) & (chosen < 3)))

    def test_extreme_uniforms_choose_ids_with_weight(self):
        scores = [-1e30, 0.0, 0.0, -1e30]
        np.testing.assert_array_equal(choose(scores, [0.0, np.nextafter(1, 0, dtype="f")]), [1, 2])

    def test_ban_leaves_other_scores(self):
        scores = np.arange(6, dtype="float32").reshape(2, 3)
        np.testing.assert_array_equal(sampling.ban(scores, ()), scores)
        banned = np.array(sampling.ban(scores, (1,)))
        np.testing.assert_array_equal(banned[:, [0, 2]], scores[:, [0, 2]])
        self.assertLess(banned[:, 1].max(), -1e29)


class ChancesTest(absltest.TestCase):
    def test_a_row_depends_on_its_own_seed_alone(self):
        many = np.array(sampling.uniforms(np.array([[5, 0], [5, 1], [6, 0]], "int32"), 2, 8))
        one = np.array(sampling.uniforms(np.array([[5, 1]], "int32"), 2, 8))
        np.testing.assert_array_equal(many[1], one[0])
        self.assertLen({row.tobytes() for row in many}, 3)

    def test_blocks_differ(self):
        seeds = np.array([[5, 0]], "int32")
        first, second = (np.array(sampling.uniforms(seeds, block, 8)) for block in (0, 1))
        self.assertGreater(np.abs(first - second).min(), 0.0)

    def test_compiled_is_bit_for_bit_the_same(self):
        draw_laws.check_compiled(lambda seed: sampling.uniforms(seed[np.newaxis], 2, 5))

    def test_uniforms_are_even_and_independent(self):
        seeds = np.stack([np.full(500, 7), np.arange(500)], axis=1).astype("int32")
        drawn = np.array(sampling.uniforms(seeds, 0, 32))
        self.assertTrue(np.all((drawn >= 0) & (drawn < 1)))
        cells = np.histogram(drawn, bins=20, range=(0, 1))[0]
        expected = drawn.size / 20
        self.assertLess(np.sum((cells - expected) ** 2 / expected), 36.2)  # 1% of chi-square, 19
        self.assertLess(abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]), 0.03)


class SamplingTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"temperature": -0.1}, "temperature must be at least 0 and finite, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be at least 0 and finite, got nan"),
        ({"temperature": float("inf")}, "temperature must be at least 0 and finite, got inf"),
        ({"top_k": 0}, "top_k must be at least 1 or none, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
    )
    def test_refusals(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            Sampling(**options)


if __name__ == "__main__":
    absltest.main()
