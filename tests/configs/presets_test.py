import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from txl_tf.configs import presets
from txl_tf.configs.run import Config
from txl_tf.conversion import original_layout
from txl_tf.models.transformer_xl import TransformerXL

# Of the graphs that the original TensorFlow code builds (lm1b base: of its released script).
PARAMETERS = dict(
    enwik8_base=41_055_436,
    text8_base=40_964_635,
    enwik8_large=277_231_820,
    text8_large=277_050_395,
    wt103_base=151_119_838,
    wt103_large=285_205_322,
)
MILLIONS = dict(lm1b_base=355.7, lm1b_large=838.1)


class PresetsTest(parameterized.TestCase):
    def test_every_published_model_has_a_preset(self):
        published = [name for name in presets.names() if not name.startswith(("tiny", "small"))]
        self.assertSameElements(published, [*PARAMETERS, *MILLIONS])

    def test_an_unknown_name_lists_the_choices(self):
        with self.assertRaisesRegex(
            ValueError, "unknown preset 'base'; choose from tiny, tiny_topk"
        ):
            presets.preset("base")

    @parameterized.parameters(*presets.names())
    def test_survives_json(self, name):
        preset = presets.preset(name)
        self.assertEqual(Config.from_json(preset.to_json()), preset)

    @parameterized.parameters(*PARAMETERS)
    def test_has_the_published_size(self, name):
        self.assertEqual(count(name), PARAMETERS[name])

    @parameterized.parameters(*MILLIONS)
    def test_lm1b_has_the_published_size(self, name):
        self.assertEqual(presets.preset(name).model.vocab_size, 793_471)
        self.assertAlmostEqual(count(name) / 1e6, MILLIONS[name], delta=0.05)

    def test_tables_of_wt103_large_have_the_published_shapes(self):
        config = presets.preset("wt103_large").model
        model = without_values(dataclasses.replace(config, num_layers=1))
        shapes = {n: p.shape for n, p in original_layout.parameters(model).items()}
        self.assertEqual(shapes["adaptive_embed/cutoff_3/lookup_table"], (67_735, 16))
        self.assertEqual(shapes["adaptive_embed/cutoff_2/proj_W"], (64, 1024))
        self.assertEqual(shapes["adaptive_softmax/cutoff_0/proj"], (1024, 1024))
        self.assertNotIn("adaptive_softmax/cutoff_1/proj", shapes)
        self.assertEqual(shapes["adaptive_softmax/cutoff_0/cluster_W"], (3, 1024))


def without_values(config):
    """A model in a graph, where a weight has a shape and takes no memory."""
    with tf.Graph().as_default():
        return TransformerXL(config)


def count(name):
    model = without_values(presets.preset(name).model)
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)


if __name__ == "__main__":
    absltest.main()
