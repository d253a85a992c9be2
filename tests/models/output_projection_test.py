"""A softmax without cut-offs that has a projection of its own, as in the PyTorch codes."""

import keras
import numpy as np
import safetensors.numpy
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf import model_dir as model_dirs
from txl_tf.conversion import hparams, import_checkpoint, original_layout, torch_naming
from txl_tf.models.transformer_xl import TransformerXL

OWN = dict(d_embed=6, tie_output_projection=False)
EMBEDDING, SOFTMAX = "word_emb.emb_projs.0", "crit.out_projs.0"


def make(**changes):
    return helpers.loud(TransformerXL(helpers.tiny_config(**(OWN | changes))))


def state_of(model):
    """The state dict of the PyTorch original."""
    return torch_naming.to_state(original_layout.values_of(model), num_clusters=1)


def scores_by_hand(model, state, ids):
    """The original's softmax in float64: linear(linear(hidden, proj.t()), weight, bias)."""
    states, _ = model.hidden_states(ids)
    hidden = np.array(states[-1], float)  # [B, T, D]
    table = state["word_emb.emb_layers.0.weight"].astype(float)
    bias = state["crit.out_layers.0.bias"].astype(float)
    return hidden @ state[SOFTMAX].astype(float) @ table.T + bias


class ImportTest(parameterized.TestCase):
    def imported(self, state, **given):
        folder = helpers.temp_dir(self)
        path = str(folder / "model.safetensors")
        safetensors.numpy.save_file({n: np.ascontiguousarray(v) for n, v in state.items()}, path)
        given = dict(mem_len=4, tie_weight=True) | given
        import_checkpoint.import_checkpoint("pytorch", path, str(folder / "model"), given=given)
        return model_dirs.load(str(folder / "model")).model

    @parameterized.parameters({}, dict(tie_projs=[False]))
    def test_scores_are_the_originals(self, **given):
        model, ids = make(), helpers.draw_ids(2, 5)
        state = state_of(model)
        found = self.imported(state, **given)
        self.assertFalse(found.config.tie_output_projection)
        self.assertEqual(hparams.from_config(found.config)["tie_projs"], [False])
        expected = scores_by_hand(found, state, ids)
        scores, _ = found(ids)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=rounding.of_scores(found.config))
        log_probs = expected - np.log(np.exp(expected).sum(axis=-1, keepdims=True))
        nats = -np.take_along_axis(log_probs, ids[..., np.newaxis], axis=-1)[..., 0]
        ours, _ = found.nll(ids, ids)
        np.testing.assert_allclose(ours, nats, rtol=0, atol=rounding.of_scores(found.config))
        tied = state | {SOFTMAX: state[EMBEDDING]}
        self.assertGreater(np.abs(expected - scores_by_hand(found, tied, ids)).max(), 0.1)

    def test_one_of_equal_value_is_tied(self):
        model = self.imported(state_of(make(tie_output_projection=True)))
        self.assertTrue(model.config.tie_output_projection)
        self.assertEqual(hparams.from_config(model.config)["tie_projs"], [True])

    def test_contradicting_flags_are_rejected(self):
        state = state_of(make())
        message = f"{SOFTMAX} must equal {EMBEDDING}, to which it is tied, got other values"
        with self.assertRaisesRegex(ValueError, message):
            self.imported(state, tie_projs=[True])
        del state[SOFTMAX]
        message = rf"hold {SOFTMAX} beside {EMBEDDING}, as tie_projs \[False\] requires, got none"
        with self.assertRaisesRegex(ValueError, message):
            self.imported(state, tie_projs=[False])
        del state[EMBEDDING]
        with self.assertRaisesRegex(ValueError, "emb_layers.0.weight .* must be as wide as"):
            self.imported(state)


class ConfigTest(parameterized.TestCase):
    @parameterized.parameters(dict(d_embed=None), dict(cutoffs=(4, 7)))
    def test_it_is_of_a_plain_softmax_of_another_width(self, **changes):
        message = "tie_output_projection must be true with cutoffs, .* got False with cutoffs"
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(**(OWN | changes))

    def test_it_learns_and_is_saved(self):
        model, ids = make(), helpers.draw_ids(2, 5)
        model.compile("sgd", run_eagerly=True)
        (projection,) = model.softmax.projections
        before = np.array(projection)
        model.fit(ids, ids, verbose=0)
        self.assertGreater(np.abs(projection - before).max(), 1e-4)
        path = helpers.temp_dir(self) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path)
        self.assertEqual(again.config, model.config)
        np.testing.assert_array_equal(again(ids)[0], model(ids)[0])


if __name__ == "__main__":
    absltest.main()
