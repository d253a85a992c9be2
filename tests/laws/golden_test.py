"""Equality with the original implementations: losses, hidden states, memories, gradients.

tests/golden/*.npz holds what the originals computed in float32.
"""

import json

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.conversion import original_layout, pytorch, tf1
from txl_tf.inference.decode_state import KeyValueState
from txl_tf.models.memory import Memory
from txl_tf.models.transformer_xl import TransformerXL

TENSORFLOW = (
    "T1_char_tied_r",
    "T2_char_eval_same_length_clamp",
    "T3_word_div2_tied_projs",
    "T4_base_div1",
    "T5_lm1b_div4_untied_projs",
    "T8_div1_embed_proj",
    "T9_nocutoff_embed_proj",
)
PYTORCH = (
    "P1_attn0_adaptive",
    "P1n_attn0_adaptive_prelnorm",
    "P2_attn1_learned_relative",
    "P3n_attn2_absolute_sinusoid_prelnorm",
    "P4_attn3_absolute_learned",
)


def load(case):
    """The case's model with the original's weights, and all its arrays."""
    arrays = np.load(helpers.GOLDEN / f"{case}.npz")
    source = pytorch if case in PYTORCH else tf1
    model = TransformerXL(source.config_from_hparams(json.loads(str(arrays["hparams"]))))
    weights = part(arrays, "weights")
    if case in PYTORCH:
        weights = pytorch.to_original(weights, model)
    original_layout.assign(model, weights)
    return model, arrays


def part(arrays, prefix):
    return {k.removeprefix(f"{prefix}/"): arrays[k] for k in arrays if k.startswith(f"{prefix}/")}


def close(found, expected, model):
    """Checks float32 arrays, none of which is 0 throughout."""
    config, tokens = model.config, np.shape(expected)[1] if np.ndim(expected) > 1 else 1
    terms = rounding.stack_terms(config, tokens), config.d_model, config.vocab_size
    atol = rounding.tolerance(*terms, scale=np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


class ForwardTest(parameterized.TestCase):
    @parameterized.parameters(*TENSORFLOW, *PYTORCH)
    def test_segments_equal_the_original(self, case):
        model, arrays = load(case)
        expected = part(arrays, "io")
        segments = sum(name.startswith("inputs_") for name in expected)
        self.assertGreater(segments, 1)
        mems = None
        for k in range(segments):
            ids, targets = expected[f"inputs_{k}"].T, expected[f"labels_{k}"].T
            nll, new_mems = model.nll(ids, targets, mems)
            states, _ = model.hidden_states(ids, mems)
            close(nll, expected[f"nll_{k}"].T, model)
            close(np.mean(nll), expected[f"loss_{k}"], model)
            close(states[-1], expected[f"hidden_{k}"].transpose(1, 0, 2), model)
            if model.config.mem_len:
                self.check_mems(new_mems, expected[f"mems_{k}"], model)
            if f"logprob_{k}" in expected:
                scores, _ = model(ids, mems)
                log_probs = tf.nn.log_softmax(scores)
                close(log_probs, expected[f"logprob_{k}"].transpose(1, 0, 2), model)
            mems = new_mems

    @parameterized.parameters(*TENSORFLOW, *PYTORCH)
    def test_keys_and_values_equal_the_original(self, case):
        model, arrays = load(case)
        expected = part(arrays, "io")
        state = KeyValueState(model, segment_len=1)
        carried = state.initial(expected["inputs_0"].shape[1])
        for k in range(sum(name.startswith("inputs_") for name in expected)):
            ids, targets = expected[f"inputs_{k}"].T, expected[f"labels_{k}"].T
            nll, carried = state.nll(ids, targets, carried)
            close(nll, expected[f"nll_{k}"].T, model)

    def check_mems(self, mems, expected, model):
        """Theirs [L or L + 1, m, B, D] may hold fewer rows while it grows."""
        rows = expected.shape[1]
        np.testing.assert_array_equal(mems.length, np.full(expected.shape[2], rows))
        for ours, theirs in zip(mems.states, expected, strict=False):
            close(ours[:, ours.shape[1] - rows :], theirs.transpose(1, 0, 2), model)

    @parameterized.parameters("T3_word_div2_tied_projs", "P1_attn0_adaptive")
    def test_a_wrong_convention_shows(self, case):
        model, arrays = load(case)
        cluster = model.softmax.cluster_weight
        cluster.assign(np.array(tf.convert_to_tensor(cluster))[::-1])
        nll, _ = model.nll(arrays["io/inputs_0"].T, arrays["io/labels_0"].T)
        self.assertGreater(np.abs(nll - arrays["io/nll_0"].T).max(), 1e-2)


class GradientTest(parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_gradients_equal_the_original(self, jit):
        model, arrays = load("T7_gradients")
        states = tuple(tf.constant(s.transpose(1, 0, 2)) for s in arrays["io/mems_in"])
        mems = Memory(states, tf.fill([2], model.config.mem_len))

        @tf.function(jit_compile=jit)
        def gradients(ids, targets):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model.nll(ids, targets, mems)[0])
            found = tape.gradient(loss, model.trainable_variables)
            return loss, [tf.convert_to_tensor(g) for g in found]

        ids, targets = (arrays[f"io/{name}"].T for name in ("inputs", "labels"))
        loss, found = gradients(tf.constant(ids), tf.constant(targets))
        close(loss, arrays["io/loss"], model)
        ours = dict(zip([v.path for v in model.trainable_variables], found, strict=True))
        expected = part(arrays, "grads")
        parameters = original_layout.parameters(model)
        self.assertEqual(parameters.keys(), expected.keys())
        rtol = rounding.tolerance(2 * rounding.stack_terms(model.config), ids.size)
        for name, parameter in parameters.items():
            pieces = parameter.cut(expected[name])
            for weight, theirs in zip(parameter.weights, pieces, strict=True):
                difference = np.array(ours[weight.path]).ravel() - theirs.ravel()
                relative = np.linalg.norm(difference) / np.linalg.norm(theirs)
                self.assertLess(relative, rtol, name)
        norm = tf.linalg.global_norm(found)
        np.testing.assert_allclose(norm, arrays["io/gnorm_merged"], rtol=rtol)


if __name__ == "__main__":
    absltest.main()
