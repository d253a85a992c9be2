"""Laws of every kind of position; laws/golden_test.py compares them with the originals."""

import functools

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import model_laws
import rounding
from txl_tf.configs.model import TransformerXLConfig
from txl_tf.layers.position_kinds import POSITIONS
from txl_tf.models.transformer_xl import TransformerXL

OPTIONS = {
    "xl": {},
    "shaw": dict(num_positions=6),
    "absolute": dict(mem_len=0),
    "absolute_per_layer": dict(mem_len=0, num_positions=6),
}


@functools.cache
def make_model(kind, **changes):
    sizes = dict(position=kind, **(OPTIONS[kind] | changes))
    return helpers.loud(TransformerXL(helpers.tiny_config(**sizes)))


class KindsTest(model_laws.Laws, parameterized.TestCase):
    KINDS = tuple(OPTIONS)
    REMEMBERING = ("xl", "shaw")
    LENGTH = 8

    def make_model(self, kind, **changes):
        lengths = dict(mem_len=12) if kind in self.REMEMBERING else {}
        return make_model(kind, **lengths | changes)

    def test_every_kind_is_covered(self):
        self.assertEqual(tuple(POSITIONS), TransformerXLConfig.POSITIONS)
        self.assertEqual(tuple(OPTIONS), TransformerXLConfig.POSITIONS)

    @parameterized.parameters(*OPTIONS)
    def test_places_matter(self, kind):
        model = make_model(kind)
        scores, _ = model(np.array([[3, 5, 7, 1], [5, 3, 7, 1]], "int32"))
        self.assertGreater(np.abs(scores[0, -1] - scores[1, -1]).max(), 1e-3)

    def test_beyond_the_table_the_first_row_serves(self):
        ids = helpers.draw_ids(1, 5)
        for kind in ("shaw", "absolute_per_layer"):
            small, large = make_model(kind, num_positions=2), make_model(kind, num_positions=5)
            for weight, source in zip(large.variables, small.variables, strict=True):
                value = np.asarray(source.numpy())
                if value.shape != weight.shape:  # three more rows like the first
                    value = np.concatenate([np.repeat(value[:1], 3, axis=0), value])
                weight.assign(value)
            atol = rounding.of_scores(small.config)
            np.testing.assert_allclose(small(ids)[0], large(ids)[0], rtol=0, atol=atol)


class ConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(position="absolute"), "mem_len must be 0 for position absolute, as memory .* got 4"),
        (dict(position="absolute_per_layer", num_positions=6), "mem_len must be 0 .* got 4"),
        (dict(position="shaw"), "num_positions must be given for position shaw, got none"),
        (dict(num_positions=6), "num_positions must be none for position xl, .* got 6"),
        (dict(position="shaw", num_positions=0), "num_positions must be at least 1, got 0"),
    )
    def test_refusals(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(**changes)

    def test_odd_widths_where_there_are_no_sinusoids(self):
        config = helpers.tiny_config(position="shaw", num_positions=6, d_model=7)
        scores, _ = TransformerXL(config)(helpers.draw_ids(1, 3))
        self.assertEqual(scores.shape, (1, 3, 11))

    def test_absolute_positions_reject_memory(self):
        with self.assertRaisesRegex(ValueError, "mem_len must be 0 for position absolute"):
            make_model("absolute").with_lengths(mem_len=4)


if __name__ == "__main__":
    absltest.main()
