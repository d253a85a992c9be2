"""Reading the originals' own files, and refusing what does not fit."""

import json

import numpy as np
from absl.testing import absltest, parameterized

import helpers
from txl_tf.importers import original, pytorch, tf1
from txl_tf.models.transformer_xl import TransformerXL


def read_case(case):
    folder = helpers.shared(f"golden/{case}")
    return folder, json.loads((folder / "config.json").read_text())


class FilesTest(parameterized.TestCase):
    @parameterized.parameters(
        "T1_char_tied_r", "T3_word_div2_tied_projs", "T5_lm1b_div4_untied_projs"
    )
    def test_reads_tensorflow_files(self, case):
        folder, config = read_case(case)
        model = TransformerXL(tf1.config_from_hparams(config["hparams"]))
        total = tf1.load_weights(model, str(folder / config["checkpoint"]["prefix"]))
        self.assertEqual(total, sum(np.prod(v.shape) for v in model.trainable_variables))
        io = np.load(folder / "io.npz")
        nll, _ = model.nll(io["inputs_0"].T, io["labels_0"].T)
        np.testing.assert_allclose(nll, io["nll_0"].T, atol=2e-5)

    def test_reads_safetensors(self):
        folder, config = read_case("P1_attn0_adaptive")
        model = TransformerXL(pytorch.config_from_hparams(config["hparams"]))
        pytorch.load_weights(model, folder / "model.safetensors")
        io = np.load(folder / "io.npz")
        nll, _ = model.nll(io["inputs_0"].T, io["labels_0"].T)
        np.testing.assert_allclose(nll, io["nll_0"].T, atol=2e-5)

    def test_other_attention_types_are_refused(self):
        _, config = read_case("P2_attn1_learned_relative")
        with self.assertRaisesRegex(ValueError, "attn_type must be 0 .* got 1"):
            pytorch.config_from_hparams(config["hparams"])

    def test_a_missing_checkpoint_is_named(self):
        with self.assertRaisesRegex(ValueError, "checkpoint must be readable, got nowhere/model"):
            tf1.read_parameters("nowhere/model")


class AssignTest(parameterized.TestCase):
    def values(self, model):
        return {n: np.zeros(p.shape, "float32") for n, p in original.parameters(model).items()}

    def test_every_weight_has_a_name(self):
        for changes in ({}, dict(untie_biases=True, cutoffs=(4, 7), div_val=2)):
            model = TransformerXL(helpers.tiny_config(**changes))
            named = [w.path for p in original.parameters(model).values() for w in p.weights]
            self.assertCountEqual(named, [w.path for w in model.trainable_variables])

    def test_what_does_not_fit_is_named(self):
        model = TransformerXL(helpers.tiny_config())
        values = self.values(model)
        del values["r_w_bias"]
        values["extra"] = np.zeros(1)
        with self.assertRaisesRegex(ValueError, "missing: r_w_bias; unused: extra"):
            original.assign(model, values)
        values = self.values(model) | {"r_w_bias": np.zeros((2, 5))}
        with self.assertRaisesRegex(ValueError, r"r_w_bias must have shape \(2, 4\), got \(2, 5\)"):
            original.assign(model, values)

    def test_nothing_is_assigned_when_something_does_not_fit(self):
        model = TransformerXL(helpers.tiny_config())
        before = model.get_weights()
        values = self.values(model) | {"r_w_bias": np.zeros((2, 5))}
        with self.assertRaises(ValueError):
            original.assign(model, values)
        for a, b in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


if __name__ == "__main__":
    absltest.main()
