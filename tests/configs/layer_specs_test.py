"""Tests of layer specs: options match the layers, and invalid combinations are rejected."""

import dataclasses

from absl.testing import absltest, parameterized

import helpers
from txl_tf.attention import ATTENTION, make_core
from txl_tf.configs import layer_specs
from txl_tf.feed_forward import FEED_FORWARD, make_feed_forward

# Of each kind, every option with a value that is not its default.
SETTINGS = {
    layer_specs.Dense: {},
    layer_specs.TopK: dict(k=3),
    layer_specs.Local: dict(window=3, dilations=(1, 2), block=4, k=5),
    layer_specs.Longformer: dict(window=3, dilations=(1, 2), block=4, max_global_tokens=5),
    layer_specs.BigBird: dict(block=4, random=1, seed=2, table=(((1,), (2,)),)),
    layer_specs.Linformer: dict(max_tokens=64, k=8, sharing="layerwise"),
    layer_specs.Routing: dict(
        clusters=3, local_heads=1, window=5, local_window=6, decay=0.9, commitment=0.01
    ),
    layer_specs.DenseNet: dict(activation="gelu"),
    layer_specs.Switch: dict(
        experts=3,
        capacity_factor=1.5,
        eval_capacity_factor=2.5,
        group="batch",
        jitter=0.02,
        balance_loss=0.03,
        z_loss=0.04,
        expert_dropout=0.05,
        dispatch="einsum",
    ),
}


class TablesTest(parameterized.TestCase):
    @parameterized.parameters(
        (layer_specs.ATTENTION, ATTENTION), (layer_specs.FEED_FORWARD, FEED_FORWARD)
    )
    def test_each_kind_has_a_layer(self, specs, layers):
        self.assertEqual(specs.keys(), layers.keys())

    def test_every_kind_is_covered(self):
        kinds = [*layer_specs.ATTENTION.values(), *layer_specs.FEED_FORWARD.values()]
        self.assertCountEqual(SETTINGS, kinds)

    @parameterized.parameters(*SETTINGS.items())
    def test_the_text_of_a_spec_says_all(self, kind, settings):
        spec = kind(**settings)
        for field in dataclasses.fields(kind):
            self.assertNotEqual(getattr(spec, field.name), field.default, field.name)
        table = (
            layer_specs.ATTENTION
            if layer_specs.ATTENTION.get(kind.name) is kind
            else layer_specs.FEED_FORWARD
        )
        self.assertEqual(layer_specs.parse(table, str(spec)), spec)

    @parameterized.parameters(*SETTINGS.items())
    def test_a_layer_has_the_spec_that_it_is_made_from(self, kind, settings):
        spec = kind(**settings)
        if layer_specs.ATTENTION.get(kind.name) is kind:
            layer = make_core(spec)
        else:
            layer = make_feed_forward(spec, d_model=8, d_inner=16)
        self.assertIs(layer.spec, spec)
        again = type(layer).from_config(layer.get_config())
        self.assertEqual(again.spec, spec)


class RulesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("topk", r"attention 'topk': k must be given in 'topk', as in topk\(k=...\)"),
        ("topk(k=0)", r"attention 'topk\(k=0\)': k must be at least 1, got 0"),
        ("topk(k=1.5)", "k must be a whole number, got 1.5"),
        ("local", "window must be given"),
        ("local(window=0)", "window must be at least 1, got 0"),
        ("local(window=2, block=0)", "block must be at least 1, got 0"),
        ("local(window=2, k=0)", "k must be at least 1, got 0"),
        ("local(window=2, dilations=())", r"dilations must be at least 1 each, got \(\)"),
        ("local(window=2, dilations=(1, 0))", r"dilations must be at least 1 each, got \(1, 0\)"),
        (
            "local(window=2, dilations=(1, 2, 3))",
            r"num_heads must be a multiple of the 3 dilations \(1, 2, 3\), .* got 2",
        ),
        ("local(width=2)", r"unknown option 'width' .* choose from window, dilations, block, k"),
        ("sparse", "unknown kind 'sparse' in 'sparse'; choose from dense, topk, local, longformer"),
        ("longformer(window=2, max_global_tokens=-1)", "max_global_tokens must be at least 0"),
        (
            "longformer(window=2, max_global_tokens=1)",
            "max_global_tokens must be 0 in a causal model, .* got 1; an Encoder supports",
        ),
        ("longformer(window=2, dilations=(1, 1, 2))", "num_heads must be a multiple of the 3"),
        ("bigbird", "'bigbird': bigbird is not causal: .* choose local or longformer"),
        ("bigbird(block=0)", "block must be at least 1, got 0"),
        ("bigbird(random=-1)", "random must be at least 0, got -1"),
        ("linformer", "max_tokens must be given in 'linformer'"),
        ("linformer(max_tokens=512)", "linformer is not causal: .* choose local, or an Encoder"),
        ("linformer(max_tokens=0)", "max_tokens must be at least 1, got 0"),
        ("linformer(max_tokens=100)", "k must be at most 100, got 128"),
        ("linformer(max_tokens=8, k=2, sharing='all')", "sharing must be one of none, headwise, "),
        ("routing(clusters=2)", "local_heads must be given"),
        ("routing(clusters=0, local_heads=1)", "clusters must be at least 1, got 0"),
        ("routing(clusters=2, local_heads=0)", "local_heads must be at least 1, got 0"),
        ("routing(clusters=2, local_heads=2)", "local_heads must be below num_heads 2, .* got 2"),
        ("routing(clusters=2, local_heads=1, window=0)", "window must be at least 1, got 0"),
        ("routing(clusters=2, local_heads=1, decay=2.0)", "decay must be at most 1, got 2.0"),
        ("routing(clusters=2, local_heads=1, commitment=-1.0)", "commitment must be at least 0"),
        ("topk(k=2000000000)", "k must be at most 1073741824, got 2000000000"),
        ("local(window=1073741825)", "window must be at most 1073741824, got 1073741825"),
        (
            "local(window=1073741824, dilations=(1, 2))",
            r"window must reach at most 1073741824 tokens back with dilations \(1, 2\)",
        ),
        ("longformer(window=2, max_global_tokens=1e9)", "be a whole number, got 1000000000.0"),
        ("longformer(window=2, max_global_tokens=2000000000)", "max_global_tokens must be at most"),
        ("bigbird(random=1000000, block=2000)", "block must be at most 1073 with random 1000000"),
        ("bigbird(seed=2147483648)", "seed must be at most 2147483647, got 2147483648"),
        ("bigbird(random=1, table=((2,), (3,)))", "table must be a tuple of|table must have"),
        ("bigbird(random=1, table=())", "table must have, .* 1 numbers below n, got"),
        ("bigbird(random=1, table=(((3,),),))", "table must have, .* 1 numbers below n, got"),
    )
    def test_attention_that_is_refused(self, spec, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(attention=("dense", spec))

    @parameterized.parameters(
        ("dense(activation='tanh')", "activation must be one of relu, gelu, gelu_tanh, got 'tanh'"),
        ("switch", "experts must be given"),
        ("switch(experts=0)", "experts must be at least 1, got 0"),
        ("switch(experts=2, capacity_factor=0)", "capacity_factor must be above 0, got 0.0"),
        ("switch(experts=2, capacity_factor=-1.0)", "capacity_factor must be above 0, got -1.0"),
        ("switch(experts=2, eval_capacity_factor=0.0)", "eval_capacity_factor must be above 0"),
        ("switch(experts=2, capacity_factor=1e999)", "capacity_factor must be at most .*, got inf"),
        ("switch(experts=2, eval_capacity_factor=2e6)", "must be at most 1000000.0, got 2000000.0"),
        (
            "switch(experts=2, balance_loss=1e999)",
            "balance_loss must be at most 1000000.0, got inf",
        ),
        ("switch(experts=2, z_loss=1" + "0" * 400 + ")", "z_loss must be finite, got 1000"),
        ("switch(experts=9999999999)", "experts must be at most 1073741824, got 9999999999"),
        ("switch(experts=2, jitter=1.0)", "jitter must be at least 0 and below 1, got 1.0"),
        ("switch(experts=2, group='all')", "group must be one of row, batch, got 'all'"),
        ("switch(experts=2, expert_dropout=1.0)", "expert_dropout must be at least 0 and below 1"),
    )
    def test_feed_forward_that_is_refused(self, spec, message):
        with self.assertRaisesRegex(ValueError, message):
            helpers.tiny_config(feed_forward=(spec,))

    @parameterized.parameters(
        "local(window=2, dilations=(1, 2), block=4, k=2)",
        "topk(k=3)",
        "local(window=900)",
        "longformer(window=3, dilations=(1, 2))",
    )
    def test_attention_that_is_taken(self, spec):
        self.assertEqual(helpers.tiny_config(attention=(spec,)).attention, (spec,))


class NotesTest(parameterized.TestCase):
    @parameterized.parameters(
        (("local(window=4)", "dense"), []),
        (("local(window=5)", "local(window=5)"), [r"local\(window=5\): .* 5 tokens .* of 4,"]),
        (("local(window=2, dilations=(1, 3))",), ["window of 6 tokens is longer"]),
        (("routing(clusters=2, local_heads=1)", "dense"), ["read together, later ones included"]),
    )
    def test_windows_beyond_the_memory_are_logged(self, attention, expected):
        found = helpers.tiny_config(attention=attention).warnings()  # mem_len 4
        self.assertLen(found, len(expected))
        for note, pattern in zip(found, expected, strict=True):
            self.assertRegex(note, pattern)


if __name__ == "__main__":
    absltest.main()
