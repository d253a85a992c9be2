import dataclasses
import json
import math
import typing

from absl.testing import absltest, parameterized

import helpers
from txl_tf.classification.config import TextConfig
from txl_tf.configs import layer_specs, presets, validation
from txl_tf.configs.model import EncoderConfig, StarTransformerConfig, TransformerXLConfig
from txl_tf.configs.run import Config, DataConfig, EvalConfig, TrainConfig, override, override_all

WHOLE = (
    (TransformerXLConfig, dict(vocab_size=11)),
    (EncoderConfig, dict(vocab_size=11)),
    (StarTransformerConfig, dict(vocab_size=11)),
    (TrainConfig, {}),
    (EvalConfig, {}),
    (TextConfig, dict(tokenizer="char")),
    (layer_specs.TopK, dict(k=1)),
    (layer_specs.Local, dict(window=2)),
    (layer_specs.Longformer, dict(window=2)),
    (layer_specs.BigBird, {}),
    (layer_specs.Linformer, dict(max_tokens=512)),
    (layer_specs.Switch, dict(experts=2)),
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
        (dict(layer_norm_epsilon=0.0), "layer_norm_epsilon must be at least 1e-30, got 0.0"),
        (dict(layer_norm_epsilon=2.0), "layer_norm_epsilon must be at most 1, got 2.0"),
        (dict(dropout=1 - 2**-26), "dropout must be at least 0 and below 1, got 0.99999998"),
        (dict(dropout=math.nan), "dropout must be at least 0 and below 1, got nan"),
        (dict(attention_dropout=-0.1), "attention_dropout must be at least 0 and below 1, got -0"),
        (dict(init_std=1e4), "init_std must be at most 1000.0, got 10000.0"),
        (dict(proj_init_std=1e4), "proj_init_std must be at most 1000.0, got 10000.0"),
        (
            dict(clamp_len=10**400),
            "clamp_len must be at most 1073741824, got 1000000000.*401 chara",
        ),
    )
    def test_a_bad_architecture_names_field_and_value(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(**changes)

    @parameterized.parameters(
        (TrainConfig, dict(precision="half"), "precision must be one of float32, bfloat16"),
        (TrainConfig, dict(clip_norm=0.0), "clip_norm must be none, or between 1e-30 and 1e.30, g"),
        (TrainConfig, dict(clip_norm=3e38), "clip_norm must be none, or between .*, got 3e.38"),
        (TrainConfig, dict(clip_norm=1e39), "clip_norm must be none, or between .*, got 1e.39"),
        (TrainConfig, dict(clip_norm=-math.inf), "clip_norm must be none, or between .*, got -inf"),
        (TrainConfig, dict(clip_norm=math.nan), "clip_norm must be none, or between .*, got nan"),
        (
            TrainConfig,
            dict(learning_rate=math.inf),
            "learning_rate must be at most 1000.0, got inf",
        ),
        (TrainConfig, dict(learning_rate=1001), "learning_rate must be at most 1000.0, got 1001.0"),
        (TrainConfig, dict(learning_rate=-1e-9), "learning_rate must be at least 0, got -1e-09"),
        (TrainConfig, dict(min_lr_ratio=1.5), "min_lr_ratio must be at most 1, got 1.5"),
        (TrainConfig, dict(adam_beta1=1.0), "adam_beta1 must be at least 0 and below 1, got 1.0"),
        (TrainConfig, dict(adam_beta1=1 - 2**-25), "adam_beta1 must be .* below 1, got 0.9999999"),
        (TrainConfig, dict(adam_beta2=1), "adam_beta2 must be at least 0 and below 1, got 1.0"),
        (TrainConfig, dict(adam_epsilon=0.0), "adam_epsilon must be at least 1e-30, got 0.0"),
        (TrainConfig, dict(adam_epsilon=1e-45), "adam_epsilon must be at least 1e-30, got 1e-45"),
        (TrainConfig, dict(adam_epsilon=1e4), "adam_epsilon must be at most 1000.0, got 10000.0"),
        (TrainConfig, dict(seed=2**31), "seed must be at most 2147483647, got 2147483648"),
        (TrainConfig, dict(max_skipped_steps=-1), "max_skipped_steps must be at least 0, got -1"),
        (EvalConfig, dict(mem_len=2**31), "mem_len must be at most 1073741824, got 2147483648"),
        (TrainConfig, dict(batch_size=4, accumulate_steps=3), "batch_size must be a multiple of"),
        (TrainConfig, dict(warmup_steps=9, train_steps=9), "warmup_steps must be below train_ste"),
        (DataConfig, dict(layout="rows"), "layout must be one of contiguous, reference"),
        (EvalConfig, dict(batch_size=0), "batch_size must be at least 1, got 0"),
    )
    def test_a_bad_run_names_field_and_value(self, kind, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            kind(**changes)

    @parameterized.parameters(
        dict(adam_beta1=0.0, adam_beta2=0.0),
        dict(adam_beta1=1 - 2**-24, adam_epsilon=1e-30, learning_rate=1e3),
        dict(clip_norm=1e9, seed=2**31 - 1),
    )
    def test_the_ends_of_what_is_sensible_are_taken(self, **changes):
        self.assertEqual(vars(TrainConfig(**changes)) | changes, vars(TrainConfig(**changes)))

    def test_an_infinite_clip_is_none(self):
        self.assertIsNone(TrainConfig(clip_norm=math.inf).clip_norm)
        self.assertIsNone(override(whole(), "train.clip_norm=inf").train.clip_norm)
        written = whole().to_json().replace('"clip_norm": 0.25', '"clip_norm": Infinity')
        self.assertIsNone(Config.from_json(written).train.clip_norm)

    @parameterized.parameters(*(kind for kind, *_ in WHOLE))
    def test_every_number_has_two_ends(self, kind):
        base = next(values for each, values in WHOLE if each is kind)
        numbers = {int: (10**400, -(10**400)), float: (math.inf, -math.inf, math.nan, 10**400)}
        for name, declared in validation.types_of(kind).items():
            for each in {declared, *typing.get_args(declared)} & numbers.keys():
                for value in numbers[each]:
                    if (name, value) != ("clip_norm", math.inf):
                        with self.assertRaisesRegex(ValueError, f"^{name} must ", msg=name):
                            kind(**base | {name: value})

    @parameterized.parameters(
        (dict(), 64, 2048),  # of the default d_model, 512
        (dict(d_model=64), 8, 256),
        (dict(d_model=64, num_heads=4), 16, 256),
        (dict(d_model=64, head_dim=5, d_inner=7), 5, 7),
        (dict(d_model=100), 12, 400),
        (dict(d_model=4), 1, 16),
    )
    def test_widths_follow_d_model_where_they_are_not_given(self, given, head_dim, d_inner):
        for kind in (TransformerXLConfig, EncoderConfig):
            config = kind(vocab_size=11, **given)
            self.assertEqual((config.head_dim, config.d_inner), (head_dim, d_inner))

    def test_widths_are_written_as_numbers_and_read_as_either(self):
        config = Config(model=TransformerXLConfig(vocab_size=11, d_model=64))
        tree = json.loads(config.to_json())
        self.assertEqual((tree["model"]["head_dim"], tree["model"]["d_inner"]), (8, 256))
        self.assertEqual(Config.from_json(json.dumps(tree)), config)
        tree["model"]["head_dim"] = None
        self.assertEqual(Config.from_json(json.dumps(tree)), config)
        wider = override_all(config, ["model.d_model=128", "model.head_dim=none"])
        self.assertEqual((wider.model.head_dim, wider.model.d_inner), (16, 256))

    def test_layers_repeat_their_specs(self):
        config = helpers.tiny_config(num_layers=3, attention=("dense", "topk(k=1)"))
        layers = [str(config.layer(index).attention) for index in range(3)]
        self.assertEqual(layers, ["dense", "topk(k=1)", "dense"])


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

    @parameterized.parameters(
        (("train.train_steps=100",), 10),
        (("train.train_steps=101",), 100),
        (("train.train_steps=2000",), 100),
        (("train.train_steps=1",), 0),
        (("train.train_steps=100", "train.warmup_steps=7"), 7),
    )
    def test_a_warmup_gives_way_where_the_steps_alone_are_given(self, assignments, expected):
        changed = override_all(presets.preset("tiny"), list(assignments))  # 100 of 950 steps
        self.assertEqual(changed.train.warmup_steps, expected)

    @parameterized.parameters(
        ("train.train_steps=100", "train.warmup_steps=100"), ("train.warmup_steps=950",)
    )
    def test_a_warmup_that_is_given_stays(self, *assignments):
        with self.assertRaisesRegex(ValueError, "warmup_steps must be below train_steps"):
            override_all(presets.preset("tiny"), list(assignments))

    def test_one_field_twice_is_refused(self):
        with self.assertRaisesRegex(
            ValueError, "settings must be distinct, got model.d_model twice"
        ):
            override_all(whole(), ["model.d_model=8", "model.d_model=16"])


class JsonTest(parameterized.TestCase):
    def test_comes_back_equal(self):
        config = whole(cutoffs=(4, 7), clamp_len=5, attention=("dense",))
        self.assertEqual(Config.from_json(config.to_json()), config)

    @parameterized.parameters(
        ("{", "config must be JSON"),
        ("[]", r"config must be a JSON object, got \[\]"),
        ('{"modle": {}}', "config has no field 'modle'; choose from model, data, train, eval"),
        ('{"model": {"d": 1}}', "model has no field 'd'; choose from vocab_size"),
        ('{"model": {}}', "model must have vocab_size, got none"),
        ('{"model": {"vocab_size": "11"}}', "model.vocab_size must be a whole number, got '11'"),
        (
            '{"model": {"vocab_size": 11, "cutoffs": [4, [7]]}}',
            r"model.cutoffs\[1\] must be a whole number, got \[7\]",
        ),
        ('{"model": {"vocab_size": 11}, "eval": {"mem_len": -1}}', "eval: mem_len must be at leas"),
    )
    def test_refuses_by_name(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            Config.from_json(text)

    def test_missing_parts_take_defaults(self):
        text = json.dumps({"model": {"vocab_size": 11}})
        self.assertEqual(Config.from_json(text), Config(model=TransformerXLConfig(vocab_size=11)))


if __name__ == "__main__":
    absltest.main()
