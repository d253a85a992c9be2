import dataclasses
import json

from absl.testing import absltest, parameterized

import helpers
from txl_tf.config import (
    Config,
    DataConfig,
    EvalConfig,
    TrainConfig,
    TransformerXLConfig,
    override,
    override_all,
)


def whole(**changes):
    return Config(model=helpers.tiny_config(**changes))


class RulesTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(d_model=7), r"d_model must be even \(half sines, half cosines\), got 7"),
        (dict(num_layers=0), "num_layers must be at least 1, got 0"),
        (dict(mem_len=-1), "mem_len must be at least 0, got -1"),
        (dict(dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (dict(num_heads="2"), "num_heads must be a whole number, got '2'"),
        (dict(clamp_len=0), "clamp_len must be at least 1, got 0"),
        (dict(attention_span=0), "attention_span must be at least 1, got 0"),
        (dict(attention_span=2**70), f"attention_span must be at most {2**30}, got {2**70}"),
        (dict(cutoffs=(4, 12)), r"cutoffs must lie below vocab_size 11, got \(4, 12\)"),
        (dict(cutoffs=(7, 4)), r"cutoffs must rise from above 0, got \(7, 4\)"),
        (dict(cutoffs=(0, 4)), r"cutoffs must rise from above 0, got \(0, 4\)"),
        (dict(cutoffs=(4, 4)), r"cutoffs must rise from above 0, got \(4, 4\)"),
        (dict(cutoffs=[4]), r"cutoffs must be a tuple of a whole number, got \[4\]"),
        (dict(div_val=2), "div_val must be 1 without cutoffs, got 2"),
        (dict(div_val=4, cutoffs=(3, 6)), "div_val must leave the last cluster a width"),
        (
            dict(position="rotary"),
            "position must be one of xl, shaw, absolute, absolute_per_layer, got 'rotary'",
        ),
        (dict(attention=()), r"attention must not be empty, got \(\)"),
        (dict(layer_norm_epsilon=0.0), "layer_norm_epsilon must be above 0, got 0.0"),
    )
    def test_a_bad_architecture_names_field_and_value(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(**changes)

    @parameterized.parameters(
        (TrainConfig, dict(precision="half"), "precision must be one of float32, bfloat16"),
        (TrainConfig, dict(clip_norm=0.0), "clip_norm must be above 0 or none, got 0.0"),
        (TrainConfig, dict(batch_size=4, accumulate_steps=3), "batch_size must be a multiple of"),
        (TrainConfig, dict(warmup_steps=9, train_steps=9), "warmup_steps must be below train_ste"),
        (DataConfig, dict(layout="rows"), "layout must be one of contiguous, reference"),
        (EvalConfig, dict(batch_size=0), "batch_size must be at least 1, got 0"),
    )
    def test_a_bad_run_names_field_and_value(self, kind, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            kind(**changes)

    def test_layers_repeat_their_specs(self):
        config = helpers.tiny_config(num_layers=3, attention=("dense", "topk(k=1)"))
        self.assertEqual(config.layer_specs("attention"), ("dense", "topk(k=1)", "dense"))


class OverrideTest(parameterized.TestCase):
    @parameterized.parameters(
        ("model.num_layers=4", "model", "num_layers", 4),
        ("model.num_layers = 1_000", "model", "num_layers", 1000),
        ("train.learning_rate=1", "train", "learning_rate", 1.0),
        ("train.clip_norm=none", "train", "clip_norm", None),
        ("train.jit=False", "train", "jit", False),
        ("model.cutoffs=3,7", "model", "cutoffs", (3, 7)),
        ("model.cutoffs=", "model", "cutoffs", ()),
        (
            "model.attention=local(window=3, block=2),dense",
            "model",
            "attention",
            ("local(window=3, block=2)", "dense"),
        ),
        ("model.tie_projections=false,true", "model", "tie_projections", (False, True)),
    )
    def test_reads_by_the_type_of_the_field(self, assignment, section, field, expected):
        changed = override(whole(), assignment)
        self.assertEqual(getattr(getattr(changed, section), field), expected)
        undone = dataclasses.replace(
            getattr(changed, section), **{field: getattr(getattr(whole(), section), field)}
        )
        self.assertEqual(dataclasses.replace(changed, **{section: undone}), whole())

    @parameterized.parameters(
        ("model.layers=4", "unknown setting model.layers; choose from attend_to_initial_zeros"),
        ("modle.d_model=4", "unknown section 'modle'; choose from model, data, train, eval"),
        ("d_model=4", "a setting must read section.field=value, got 'd_model=4'"),
        ("model.d_model", "a setting must read section.field=value, got 'model.d_model'"),
        ("model.d_model=wide", "model.d_model must be a whole number, got 'wide'"),
        ("model.mem_len=none", "model.mem_len must be a whole number, got 'none'"),
        ("model.clamp_len=x", "model.clamp_len must be a whole number or none, got 'x'"),
        ("train.jit=maybe", "train.jit must be true or false, got 'maybe'"),
        ("train.learning_rate=fast", "train.learning_rate must be a number, got 'fast'"),
        ("model.d_model=7", "d_model must be even"),
    )
    def test_refuses_by_name(self, assignment, message):
        with self.assertRaisesRegex(ValueError, message):
            override(whole(), assignment)

    def test_settings_that_only_fit_together_are_checked_together(self):
        changed = override_all(whole(), ["model.div_val=2", "model.cutoffs=4"])
        self.assertEqual((changed.model.div_val, changed.model.cutoffs), (2, (4,)))

    def test_one_field_twice_is_refused(self):
        with self.assertRaisesRegex(ValueError, "model.d_model must be set once, got it twice"):
            override_all(whole(), ["model.d_model=8", "model.d_model=16"])


class JsonTest(parameterized.TestCase):
    def test_comes_back_equal(self):
        config = whole(cutoffs=(4, 7), clamp_len=5, attention=("dense",))
        self.assertEqual(Config.from_json(config.to_json()), config)

    @parameterized.parameters(
        ("{", "config must be JSON"),
        ("[]", r"config must be a JSON object, got \[\]"),
        ('{"modle": {}}', "config has no field 'modle'; choose from model, data, train, eval"),
        ('{"model": {"d": 1}}', "TransformerXLConfig has no field 'd'; choose from vocab_size"),
    )
    def test_refuses_by_name(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            Config.from_json(text)

    def test_missing_parts_take_defaults(self):
        text = json.dumps({"model": {"vocab_size": 11}})
        self.assertEqual(Config.from_json(text), Config(model=TransformerXLConfig(vocab_size=11)))


if __name__ == "__main__":
    absltest.main()
