"""Tests of the memory estimate against numbers computed by hand."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
from txl_tf.configs.model import EncoderConfig, StarTransformerConfig
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.inference.decode_state import KeyValueState
from txl_tf.memory_estimate import inference_estimate, memory_estimate, min_parameters, sizes_of
from txl_tf.models.encoder import Encoder
from txl_tf.models.star_transformer import StarTransformer
from txl_tf.models.transformer_xl import TransformerXL


def estimate(replicas=1, model=None, **train):
    settings = dict(batch_size=8, segment_len=5, precision="float32") | train
    config = Config(model=helpers.tiny_config(**(model or {})), train=TrainConfig(**settings))
    return memory_estimate(config.model, config.train, 1000, replicas)


class MemoryEstimateTest(parameterized.TestCase):
    def test_a_hand_count(self):
        """V 11, L 2, D 8, H K 8, F 16, M 4, T 5, S 9, and 8 rows."""
        found = estimate()
        self.assertEqual((found.weights, found.optimizer, found.gradients), (4000, 8000, 4000))
        self.assertEqual(found.memory, 2 * 8 * (2 * 4 * 8) * 4)
        stream = 6 * 5 * 8 + 4 * 5 * 8 + 2 * 5 * 16 + 2 * 9 * 8  # 704
        layer = 4 * stream + 4 * 2 * (2 * 5 * 9)  # 3536
        logits = 4 * 3 * 5 * 11  # 660
        self.assertEqual(found.activations, 8 * (2 * layer + logits))
        self.assertEqual(found.total, 16000 + 4096 + 61856)
        self.assertEqual(
            str(found),
            "weights=0.004MB optimizer=0.008MB gradients=0.004MB memory=0.004096MB "
            "activations=0.06186MB total=0.08195MB",
        )

    def test_replicas_and_parts_share_the_rows(self):
        whole, shared = estimate(), estimate(replicas=2)
        self.assertEqual(shared.weights, whole.weights)
        self.assertEqual(shared.memory * 2, whole.memory)
        self.assertEqual(shared.activations * 2, whole.activations)
        parts = estimate(accumulate_steps=4)
        self.assertEqual(parts.activations * 4, whole.activations)
        self.assertEqual((parts.memory, parts.gradients), (whole.memory, 2 * whole.gradients))

    def test_rematerialized_activations_are_not_kept(self):
        whole, again = estimate(), estimate(rematerialize=True)
        self.assertEqual(whole.activations - again.activations, 8 * (3536 - 2 * 4 * 5 * 8))

    def test_half_precision_halves_what_is_computed_in_it(self):
        whole, half = estimate(), estimate(precision="bfloat16")
        self.assertEqual(half.memory * 2, whole.memory)
        self.assertEqual(whole.activations - half.activations, 8 * 2 * 2 * 704)
        same = dataclasses.replace(half, memory=whole.memory, activations=whole.activations)
        self.assertEqual(same, whole)

    def test_cutoffs_leave_the_logits_of_the_head(self):
        whole, cut = estimate(), estimate(model=dict(cutoffs=(4, 8)))
        self.assertEqual(whole.activations - cut.activations, 8 * 4 * 3 * 5 * (11 - 6))

    def test_windows_leave_the_scores_within_reach(self):
        whole = estimate(model=dict(mem_len=8))
        local = estimate(model=dict(mem_len=8, attention=("dense", "local(window=6)")))
        scores = 4 * 2 * 2 * 5  # float32, scores and weights, heads, tokens
        self.assertEqual(whole.activations - local.activations, 8 * scores * (13 - 7))

    @parameterized.parameters(
        {},
        dict(cutoffs=(40, 80), div_val=2, d_embed=32),
        dict(feed_forward=("dense", "switch(experts=3)"), num_layers=3),
        dict(position="shaw", num_positions=70),
        dict(tie_embeddings=False, attention=("local(window=3)",)),
    )
    def test_parameters_by_the_config_are_most_of_a_models(self, **changes):
        sizes = dict(vocab_size=99, d_model=32, num_heads=4, head_dim=8, d_inner=64)
        model = TransformerXL(helpers.tiny_config(**(sizes | changes)))
        model.build()
        self.assertBetween(
            min_parameters(model.config), model.count_params() // 2, model.count_params()
        )

    def test_mixtures_of_tokens_are_counted(self):
        sizes = dict(vocab_size=9, num_layers=3, d_model=8, num_heads=2, position="absolute")
        plain = EncoderConfig(**sizes)
        train = TrainConfig(batch_size=1, segment_len=40, precision="float32")
        for sharing, matrices in (
            ("none", 12),
            ("headwise", 6),
            ("key_value", 3),
            ("layerwise", 1),
        ):
            spec = f"linformer(max_tokens=50, k=5, sharing={sharing!r})"
            config = EncoderConfig(attention=(spec,), **sizes)
            added = min_parameters(config) - min_parameters(plain)
            self.assertEqual(added, matrices * 50 * 5)
            self.assertEqual(Encoder(config).count_params() - Encoder(plain).count_params(), added)
            saved = (memory_estimate(c, train, 0).activations for c in (plain, config))
            self.assertEqual(int(np.subtract(*saved)), 4 * 3 * 2 * 2 * 40 * (40 - 5))

    @parameterized.parameters(None, 40)
    def test_a_star_transformer_by_hand(self, num_positions):
        """V 9, L 3, D 8, N 6, T 5 and a row."""
        config = StarTransformerConfig(
            vocab_size=9,
            num_layers=3,
            d_model=8,
            num_heads=2,
            head_dim=3,
            num_positions=num_positions,
        )
        model, found = StarTransformer(config), min_parameters(config)
        self.assertEqual(found, 8 * (9 + (num_positions or 0)) + 3 * 8 * 8 * 6)
        self.assertBetween(found, model.count_params() // 2, model.count_params())
        train = TrainConfig(batch_size=1, segment_len=5, precision="float32")
        estimate = memory_estimate(config, train, model.count_params())
        layer = 4 * 5 * (3 * 8 + 12 * 6) + 4 * 5 * 12 * 2
        self.assertEqual(estimate.activations, 3 * layer + 4 * 3 * 5 * 9)
        self.assertEqual(estimate.memory, 0)
        self.assertEqual(sizes_of(config)["num_positions"], num_positions)

    def test_inference_by_hand(self):
        """V 11, L 2, D 8, N 8, M 4, T 3, S 7, and 5 rows that write 6 ids."""
        config = helpers.tiny_config()
        found = inference_estimate(config, 5, 3, num_encodings=7, num_generated=6)
        self.assertEqual(found.encodings, 2 * 7 * 8 * 4)
        self.assertEqual(found.state, 2 * 5 * 2 * 4 * (2 * 8) * 4)
        self.assertEqual(found.activations, 5 * 4 * (2 * 7 * 8 + 3 * (8 + 11)))
        self.assertEqual(found.generated, 48 * 5 * 6)
        hidden = inference_estimate(config, 5, 3, keeps_keys=False, compute=2, mem_len=1)
        self.assertEqual((hidden.encodings, hidden.state), (0, 2 * 5 * 2 * 1 * 8 * 2))

    def test_a_keys_state_is_what_is_estimated(self):
        model = TransformerXL(helpers.tiny_config())
        state = KeyValueState(model, 3)
        found = inference_estimate(model.config, 5, 3, num_encodings=7)
        held = sum(x.numpy().nbytes for x in tf.nest.flatten(state.initial(5))[:-1])
        self.assertEqual(found.state, 2 * held)
        self.assertEqual(found.encodings, sum(x.numpy().nbytes for x in state.encodings))

    def test_layers_without_number_cost_no_time(self):
        config = helpers.tiny_config(num_layers=10**9, attention=("dense", "topk(k=2)"))
        self.assertEqual(min_parameters(config), 10**9 * (4 * 8 * 8 + 2 * 8 * 16) + 11 * 8)

    def test_weights_are_those_of_a_model(self):
        model = TransformerXL(helpers.tiny_config())
        model.build()
        bytes_held = sum(v.numpy().nbytes for v in model.weights)
        config = Config(model=model.config, train=TrainConfig())
        self.assertEqual(
            memory_estimate(config.model, config.train, model.count_params()).weights, bytes_held
        )


if __name__ == "__main__":
    absltest.main()
