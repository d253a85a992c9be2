"""Training in 16 bits reaches nearly the loss of 32 bits, on real text."""

import keras
import numpy as np
import pytest
from absl.testing import absltest

import helpers
from txl_tf.configs import presets
from txl_tf.configs.run import override_all
from txl_tf.data import prepare, recipe
from txl_tf.data import text as texts
from txl_tf.training import loop

_CHANGES = (
    "model.num_layers=2",
    "model.d_model=64",
    "model.num_heads=2",
    "model.d_inner=128",
    "train.batch_size=16",
    "train.train_steps=200",
    "train.warmup_steps=20",
    "train.eval_every=200",
    "train.eval_batches=20",
    "train.log_every=100",
)


@pytest.mark.half_precision
@pytest.mark.slow
class PrecisionTest(absltest.TestCase):
    def test_losses_are_near_after_200_steps(self):
        content = helpers.shared("data/tinyshakespeare.txt").read_text()
        folder = helpers.temp_dir(self)
        parts = {"train": content[:500_000], "valid": content[-50_000:]}
        sources = {s: [texts.Source.from_text(f"{s}.txt", part)] for s, part in parts.items()}
        data = str(folder / "data")
        prepare.prepare(sources, data, recipe.Recipe(tokenizer="byte"))
        nats = {}
        for precision in ("float32", "bfloat16", "float16"):
            config = override_all(
                presets.preset("tiny"), [*_CHANGES, f"train.precision={precision}"]
            )
            keras.utils.set_random_seed(1)
            run = loop.train(config, data_dir=data, model_dir=str(folder / precision))
            nats[precision] = run.valid.nats_per_token
        self.assertLess(nats["float32"], 2.8)  # of 5.5 at first
        for precision in ("bfloat16", "float16"):
            np.testing.assert_allclose(nats[precision], nats["float32"], rtol=0.02)
        print(nats)


if __name__ == "__main__":
    absltest.main()
