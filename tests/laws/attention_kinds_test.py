"""Laws of models with other than dense attention, in all layers or mixed."""

import functools

import keras
from absl.testing import absltest, parameterized

import helpers
import model_laws
from txl_tf.models.transformer_xl import TransformerXL

SPECS = {
    "topk": ("topk(k=2)",),
    "local": ("local(window=3, block=2)",),
    "dilated": ("local(window=2, dilations=(1, 3), block=1)",),
    "longformer": ("longformer(window=2)", "longformer(window=2, dilations=(1, 2), block=2)"),
    "best of a window": ("local(window=5, k=2)",),
    "routing": ("routing(clusters=3, local_heads=1, window=4, local_window=3)",),
    "mixed": ("local(window=2, block=1)", "dense"),
}


@functools.cache
def make_model(kind, **changes):
    keras.utils.set_random_seed(1)  # of weights that `loud` leaves: centroids
    sizes = dict(attention=SPECS[kind], mem_len=24)
    return helpers.loud(TransformerXL(helpers.tiny_config(**sizes | changes)))


class KindsTest(model_laws.Laws, parameterized.TestCase):
    KINDS = REMEMBERING = tuple(SPECS)
    LENGTH = 24

    def make_model(self, kind, **changes):
        return make_model(kind, **changes)


if __name__ == "__main__":
    absltest.main()
