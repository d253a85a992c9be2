"""Damage to a checkpoint is named, whatever tensor it hits."""

import functools

import numpy as np
from absl.testing import absltest, parameterized

import helpers
from txl_tf.conversion import original_layout, shape_checks, shape_inference
from txl_tf.conversion.formats import FORMATS
from txl_tf.models.transformer_xl import TransformerXL

MODELS = {
    "plain": dict(),
    "projected": dict(d_embed=6),
    "own_projection": dict(d_embed=6, tie_output_projection=False),
    "one_table": dict(cutoffs=(3, 7), d_embed=6, tie_projections=(False, True)),
    "tables": dict(cutoffs=(3, 7), div_val=2, untie_biases=True, num_layers=3),
    "without_first": dict(cutoffs=(3, 7), div_val=2, project_same_dim=False),
    "untied": dict(cutoffs=(3, 7), div_val=2, tie_embeddings=False),
    "shaw": dict(position="shaw", num_positions=6),
    "absolute_per_layer": dict(position="absolute_per_layer", num_positions=6, mem_len=0),
}


@functools.cache
def shapes_of(name):
    model = TransformerXL(helpers.tiny_config(**MODELS[name]))
    return {n: p.shape for n, p in original_layout.parameters(model).items()}


def label(name):
    return f"<{name}>"


def refusal(shapes):
    """The message about shapes, or "" where nothing is wrong."""
    try:
        shape_checks.check(shapes, {}, label)
    except ValueError as error:
        return str(error)
    return ""


class ConsistencyTest(parameterized.TestCase):
    @parameterized.parameters(*MODELS)
    def test_nothing_is_wrong_with_a_whole_one(self, name):
        self.assertEqual(refusal(shapes_of(name)), "")

    @parameterized.parameters(*MODELS)
    def test_whatever_is_missing_is_named(self, name):
        for lost in shapes_of(name):
            rest = {n: s for n, s in shapes_of(name).items() if n != lost}
            if lost.endswith("/lookup_table") and lost.startswith("adaptive_softmax"):
                self.assertIn("must equal the embedding's", refusal(rest))
            elif (name, lost) not in UNNOTICED:
                self.assertIn(f"<{lost}>", refusal(rest), lost)

    @parameterized.parameters(*MODELS)
    def test_whatever_is_left_over_is_named(self, name):
        for extra in ("x", "layer_0/gate/kernel", "adaptive_softmax/cutoff_0/x"):
            shapes = shapes_of(name) | {extra: (3,)}
            self.assertEndsWith(refusal(shapes), f"missing: none; unused: <{extra}>")

    @parameterized.parameters(*MODELS)
    def test_whatever_has_grown_is_named_or_does_not_fit_the_model(self, name):
        for wrong, shape in shapes_of(name).items():
            shapes = shapes_of(name) | {wrong: (shape[0] + 1, *shape[1:])}
            message = refusal(shapes)
            if not message:
                with self.assertRaisesRegex(ValueError, "must|got"):
                    flags = shape_inference.hparams(shapes, {"mem_len": 0})
                    model = TransformerXL(FORMATS["pytorch"].config_from_hparams(flags))
                    values = {n: np.zeros(s, "float32") for n, s in shapes.items()}
                    original_layout.assign(model, values)
            else:
                self.assertIn(f"<{wrong}>", message, wrong)

    def assertEndsWith(self, text, end):
        self.assertTrue(text.endswith(end), text)


# Without them there is another, whole model: one of fewer projections, or of another position.
UNNOTICED = {("absolute_per_layer", "r_emb"), ("own_projection", "adaptive_softmax/proj")}


if __name__ == "__main__":
    absltest.main()
