"""Attention cores equal the recorded outputs of the variants' reference implementations.

The arrays come from where tests/golden/collect_variants.py says. References without a kernel for
distances have a bias for each pair instead; here it goes in as encodings of which each query picks
its own.
"""

import functools
import json

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import spec_layers
from txl_tf.attention import make_core
from txl_tf.configs.layer_specs import Dense, TopK
from txl_tf.configs.model import EncoderConfig, StarTransformerConfig
from txl_tf.layers.multi_head_attention import (
    Attention,
    LearnedRelativeAttention,
    RelativeAttention,
)
from txl_tf.models import block_stack
from txl_tf.models.star_transformer import StarTransformer
from txl_tf.ops import relative_position
from txl_tf.ops.attention_mask import AttentionMask
from txl_tf.ops.dropout import DropoutKey


@functools.cache
def load(case):
    """Its arrays, and its hyperparameters."""
    data = dict(np.load(helpers.GOLDEN / f"{case}.npz").items())
    return data, json.loads(str(data.pop("hparams")))


def assert_close(found, expected, *terms, scale=None):
    """Checks a result behind sums of these lengths; `scale` where `expected` may be 0."""
    scale = np.abs(expected).max() if scale is None else scale
    atol = rounding.tolerance(*terms, scale=scale)
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def size_of_gradients(data):
    """Returns the largest gradient; that of a key bias, which softmax ignores, is 0."""
    return max(np.abs(value).max() for name, value in data.items() if name.startswith("grad."))


class TopKTest(parameterized.TestCase):
    @parameterized.parameters(
        "causal", "mem_xlbias", "pad_bias", "ties", "ties_causal", "tie_example", "k_gt_keys"
    )
    def test_values_and_gradients(self, case):
        data, hparams = load(f"topk_{case}")
        core = make_core(TopK(k=int(hparams["k"])))
        inputs = [tf.constant(data[f"in.{name}"]) for name in ("q", "k", "v")]
        lengths = data["in.key_mask"].sum(axis=1, dtype="int32") if "in.key_mask" in data else None
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = tf.concat(
                [
                    core(
                        *_of_row(inputs, data.get("in.bias"), row),
                        visibility=AttentionMask(
                            remembered=tf.constant([hparams["M"]]),
                            lookahead=0 if hparams["causal"] else None,
                            lengths=None
                            if lengths is None
                            else tf.constant(lengths[row : row + 1]),
                        ),
                    )
                    for row in range(hparams["B"])
                ],
                axis=0,
            )
            loss = tf.reduce_sum(found * data.get("in.cotangent", 0.0))
        terms = 2 * inputs[0].shape[-1], 2 * inputs[1].shape[-2]
        assert_close(found, data["out.context"], *terms)
        if "in.cotangent" in data:
            scale = size_of_gradients(data)
            for name, gradient in zip("qkv", tape.gradient(loss, inputs), strict=True):
                assert_close(gradient, data[f"grad.{name}"], *terms, *terms, scale=scale)

    def test_positions_of_transformer_xl(self):
        data, hparams = load("topk_mem_xlbias")
        query = data["in.q"]
        found = make_core(TopK(k=int(hparams["k"])))(
            query + data["w.r_w_bias"][:, np.newaxis],
            query + data["w.r_r_bias"][:, np.newaxis],
            data["in.k"],
            data["in.v"],
            np.transpose(data["in.r_heads"], [1, 0, 2]),
            visibility=AttentionMask(remembered=tf.fill([hparams["B"]], hparams["M"])),
        )
        assert_close(found, data["out.context"], 2 * query.shape[-1], 2 * data["in.k"].shape[-2])


def _of_row(inputs, bias, row):
    """The first arguments of a core for one row whose scores have a bias for each pair."""
    query, keys, values = (x[row : row + 1] for x in inputs)
    if bias is None:
        return query, query, keys, values, None
    bias = bias[row if len(bias) > 1 else 0]  # [H, T, S]
    num_heads, num_queries, num_keys = bias.shape
    # Distances S - 1, ..., 1 - T; of each, what every query adds to the score at that distance.
    encodings = np.zeros([num_heads, num_keys + num_queries - 1, num_queries], np.float32)
    for i, j in np.ndindex(num_queries, num_keys):
        encodings[:, j + num_queries - 1 - i, i] = bias[:, i, j]
    if num_keys > num_queries:  # memory: no query looks ahead
        encodings = encodings[:, :num_keys]
    pick = tf.eye(num_queries, batch_shape=[1, num_heads]) * query.shape[-1] ** 0.5
    return query, pick, keys, values, tf.constant(encodings)


class ShawTest(parameterized.TestCase):
    @parameterized.parameters("bidirectional", "pad", "causal_mem_clip")
    def test_values(self, case):
        """BERT's "relative_key": s = (q . k + q . a[i - j]) / sqrt(D), one table for all heads."""
        data, hparams = load(f"shaw_{case}")
        num_heads, num_queries, num_keys = hparams["H"], hparams["T"], hparams["S"]
        query, keys, values = (self.heads(data, name) for name in ("query", "key", "value"))
        farthest = num_keys - 1
        distances = np.arange(farthest, -1 if hparams["causal"] else -num_keys, -1)
        encodings = np.tile(self.rows(data, hparams, distances), [num_heads, 1, 1])
        lengths = data["in.key_mask"].sum(axis=1, dtype="int32") if "in.key_mask" in data else None
        found = make_core(Dense())(
            *2 * [query[:, :, -num_queries:]],
            keys,
            values,
            tf.constant(encodings),
            visibility=AttentionMask(
                remembered=tf.fill([hparams["B"]], hparams["M"]),
                lookahead=0 if hparams["causal"] else None,
                lengths=lengths,
            ),
        )
        found = np.transpose(found, [0, 2, 1, 3]).reshape(data["out.context"].shape)
        expected = data["out.context"]
        if lengths is not None:  # of padding the reference gives what it attends to
            real = np.arange(num_queries) < lengths[:, np.newaxis]
            found, expected = found[real], expected[real]
        assert_close(found, expected, data["in.x"].shape[-1], 2 * hparams["D"], 2 * num_keys)

    def test_distances_beyond_the_table_have_its_first_row(self):
        data, hparams = load("shaw_causal_mem_clip")
        clip, distances = hparams["clip"], np.arange(hparams["S"] - 1, -1, -1)
        layer = LearnedRelativeAttention(
            helpers.tiny_config(
                d_model=hparams["d"],
                num_heads=hparams["H"],
                head_dim=hparams["D"],
                position="shaw",
                num_positions=clip + 1,
            ).layer(0)
        )
        layer.build(None)
        causal = data["w.a_k"][: clip - 1 : -1]  # distances c, ..., 0
        layer.distance_table.assign(np.tile(causal[:, np.newaxis], [1, hparams["H"], 1]))
        found = layer.encodings(tf.constant(distances, tf.float32))[..., :-1]
        expected = np.tile(self.rows(data, hparams, distances), [hparams["H"], 1, 1])
        np.testing.assert_array_equal(found, expected)

    def heads(self, data, name):
        """Returns a projection of the input, [B, H, S, D]."""
        projected = data["in.x"] @ data[f"w.{name}.kernel"] + data[f"w.{name}.bias"]
        num_heads = load("shaw_pad")[1]["H"]
        split = projected.reshape([*projected.shape[:2], num_heads, -1])
        return tf.constant(np.transpose(split, [0, 2, 1, 3]))

    def rows(self, data, hparams, distances):
        """Returns the reference's row of each distance, [R, D]."""
        if hparams["clip"] is None:
            return data["w.distance_embedding"][distances + hparams["max_position_embeddings"] - 1]
        clip = hparams["clip"]
        return data["w.a_k"][np.clip(distances, -clip, clip) + clip]


class LocalTest(parameterized.TestCase):
    @parameterized.parameters(
        "t16_m8_w4_b4",
        "t13_m6_w5_b4",
        "t10_m0_w3_b4",
        "t9_m20_w12_b8",
        "t12_m12_w11_b4",
        "t8_m8_w6_b4_clamp_memvalid",
    )
    def test_values(self, case):
        data, hparams = load(f"localxl_{case}")
        for block in (*hparams["blocks_to_try"], None):
            config = helpers.tiny_config(
                d_model=hparams["d"],
                num_heads=hparams["H"],
                head_dim=hparams["D"],
                untie_biases=True,
                attention=(f"local(window={hparams['w']}, block={block})",),
            )
            layer = RelativeAttention(config.layer(0))
            layer.build(None)
            heads = [hparams["d"], hparams["H"], hparams["D"]]
            for name, weight in (
                ("q.kernel", layer.query_kernel),
                ("k.kernel", layer.key_kernel),
                ("v.kernel", layer.value_kernel),
                ("r.kernel", layer.position_kernel),
            ):
                weight.assign(data[f"w.{name}"].reshape(heads))
            layer.output_kernel.assign(data["w.o.kernel"].reshape([*heads[1:], heads[0]]))
            layer.content_bias.assign(data["w.r_w_bias"])
            layer.position_bias.assign(data["w.r_r_bias"])
            distances = relative_position.distances(hparams["S"])
            if hparams["clamp_len"] > 0:
                distances = tf.minimum(distances, float(hparams["clamp_len"]))
            found = layer(
                data["in.h"],
                *layer.keys_values(tf.concat([data["in.mem"], data["in.h"]], axis=1)),
                layer.encodings(relative_position.sinusoids(distances, hparams["d"])),
                visibility=AttentionMask(
                    remembered=tf.constant(hparams["mem_valid"] or [hparams["M"]] * hparams["B"])
                ),
            )
            terms = 3 * hparams["d"], 2 * hparams["D"], 2 * hparams["S"]
            assert_close(found, data["out.attn_out"], *terms)


class TwoSided(parameterized.TestCase):
    """Cores behind projections with biases, which the project has none of."""

    def check(self, data, hparams, spec, visibility, of_core=()):
        """Values and gradients. `of_core`: projections by weights that the core has of its own."""
        rows, num_tokens, width = data["in.x"].shape
        num_heads, head_dim = hparams["H"], hparams["D"]
        x = tf.constant(data["in.x"])
        weights = {
            name: tf.constant(data[f"w.{name}"])
            for name in (f"{p}.{w}" for p in ("query", "key", "value") for w in ("kernel", "bias"))
        }
        core = spec_layers.core(spec)
        core.build_weights(width + 1, num_heads, head_dim, 0.02)
        core.built = True
        for name in of_core:  # a bias is the row of a kernel that meets ones
            kernel = np.concatenate([data[f"w.{name}.kernel"], data[f"w.{name}.bias"][np.newaxis]])
            own_kernel(core, name).assign(kernel.reshape([width + 1, num_heads, head_dim]))
        own = {name: own_kernel(core, name).value for name in of_core}
        with tf.GradientTape() as tape:
            tape.watch([x, weights, own])
            projected = []
            for name in ("query", "key", "value"):
                flat = x @ weights[f"{name}.kernel"] + weights[f"{name}.bias"]
                flat = tf.reshape(flat, [rows, num_tokens, num_heads, head_dim])
                projected.append(tf.transpose(flat, [0, 2, 1, 3]))
            query, key, value = projected
            seen = {"x": tf.concat([x, tf.ones_like(x[..., :1])], -1)} if core.TAKES_INPUT else {}
            found = core(query, query, key, value, None, visibility=visibility, **seen)
            found = tf.reshape(tf.transpose(found, [0, 2, 1, 3]), [rows, num_tokens, -1])
            loss = tf.reduce_sum(found * data.get("in.cotangent", 0.0))
        terms = 2 * width, 2 * head_dim, 2 * num_tokens
        assert_close(found, data["out.context"], *terms)
        scale = size_of_gradients(data) if "in.cotangent" in data else 0.0
        watched = {"x": x} | weights | {f"{name}.kernel": own[name] for name in of_core}
        gradients = tape.gradient(loss, watched)
        for name in (key.removeprefix("grad.") for key in data if key.startswith("grad.")):
            expected = data[f"grad.{name}"]
            gradient = tf.reshape(gradients[name], [-1, *expected.shape[1:]])[: len(expected)]
            lengths = *terms, *terms, rows * num_tokens
            assert_close(gradient, expected, *lengths, scale=scale)


def own_kernel(core, name):
    """The weight of a core that the reference calls query_global, key_global or value_global."""
    return getattr(core, f"global_{name.removesuffix('_global')}_kernel")


class LongformerTest(TwoSided):
    @parameterized.product(
        case=("window", "window_pad", "global", "one_chunk", "dilated", "dilated_causal"),
        block=(None, 2),
    )
    def test_values_and_gradients(self, case, block):
        data, hparams = load(f"longformer_{case}")
        mask = data["in.attention_mask"]
        is_causal = hparams["causal"]
        dilations = hparams["dilation"]
        dilations = (dilations,) if isinstance(dilations, int) else tuple(dilations)
        most = 0 if len(dilations) > 1 else 3
        spec = (
            f"longformer(window={hparams['w_one_sided']}, dilations={dilations}, block={block}, "
            f"max_global_tokens={most})"
        )
        visibility = AttentionMask(
            remembered=tf.zeros([len(mask)], tf.int32),
            lookahead=0 if is_causal else None,
            lengths=tf.constant((mask > 0).sum(axis=1), tf.int32),
            global_tokens=tf.constant(mask == 2),
        )
        of_core = ("query_global", "key_global", "value_global") if most else ()
        self.check(data, hparams, spec, visibility, of_core)


class BigBirdTest(TwoSided):
    @parameterized.parameters("n12", "n16", "n14_pad", "n6_r1", "n21_r8", "dup_table", "t1024")
    def test_values_and_gradients(self, case):
        if case == "t1024":
            path = helpers.shared("golden/variants/bigbird_t1024_oldplan.npz")
            data, hparams = dict(np.load(path).items()), dict(block_size=64, num_random_blocks=3)
            hparams |= dict(H=2, D=4)
        else:
            data, hparams = load(f"bigbird_{case}")
        table = tuple(tuple(map(tuple, head)) for head in data["in.random_table"].tolist())
        spec = (
            f"bigbird(block={hparams['block_size']}, random={hparams['num_random_blocks']}, "
            f"table={table})"
        )
        visibility = AttentionMask(
            remembered=tf.zeros([len(data["in.mask"])], tf.int32),
            lookahead=None,
            lengths=tf.constant(data["in.mask"].sum(axis=1), tf.int32),
        )
        self.check(data, hparams, spec, visibility)


class LinformerTest(parameterized.TestCase):
    """Projections have no biases but the output's. Where the reference shares a head of keys and
    values among all, or keys with values, equal kernels give the same."""

    @parameterized.parameters("headwise", "headwise_short", "key_value", "share_kv", "one_kv_head")
    def test_values(self, case):
        data, hparams = load(f"linformer_{case}")
        sharing = "headwise" if "w.proj_v" in data else "key_value"
        layer = Attention(_linformer_config(hparams, sharing).layer(0))
        layer.build(None)
        _assign_heads(layer, hparams, lambda name: data.get(f"w.{name}", data["w.to_k.kernel"]))
        layer.attend.key_mixture.assign(data["w.proj_k"].T[np.newaxis])
        if sharing == "headwise":
            layer.attend.value_mixture.assign(data["w.proj_v"].T[np.newaxis])
        x = tf.constant(data["in.x"])
        found = layer(x, *layer.keys_values(x), visibility=_two_sided(x))
        terms = 3 * hparams["d"], 2 * hparams["D"], 2 * hparams["T"], 2 * hparams["k"]
        assert_close(found + data["w.to_out.bias"], data["out.y"], *terms)

    def test_one_matrix_of_all_layers(self):
        data, hparams = load("linformer_layerwise_net")
        config = _linformer_config(hparams, "layerwise")
        blocks = block_stack.make_blocks(config, "float32")
        block_stack.build(blocks, config.d_model)
        blocks[0].attention.attend.key_mixture.assign(data["w.proj"].T[np.newaxis])
        x = tf.constant(data["in.x"])
        for index, block in enumerate(blocks):
            weights = {name.removeprefix(f"w.{index}."): value for name, value in data.items()}
            _assign_heads(block.attention, hparams, weights.get)
            for norm, name in (
                (block.attention_norm, "norm_attn"),
                (block.feed_forward_norm, "norm_ff"),
            ):
                norm.gamma.assign(weights[f"{name}.gamma"])
                norm.beta.assign(weights[f"{name}.beta"])
            net = block.feed_forward
            net.inner_kernel.assign(weights["w1.kernel"])
            net.inner_bias.assign(weights["w1.bias"])
            net.outer_kernel.assign(weights["w2.kernel"])
            net.outer_bias.assign(weights["w2.bias"])
            # As the block does, but with the reference's bias after the heads.
            normed = block.attention_norm(x)
            attended = block.attention(
                normed, *block.attention.keys_values(normed), visibility=_two_sided(x)
            )
            x += attended + weights["to_out.bias"]
            x += block.feed_forward(block.feed_forward_norm(x))
        terms = (
            *(5 * hparams["d"], 2 * hparams["D"], 2 * hparams["T"], 2 * hparams["k"]),
            *(hparams["d"], hparams["F"]),
        )
        assert_close(x, data["out.y"], *(hparams["depth"] * sum(terms),))


def _linformer_config(hparams, sharing):
    return EncoderConfig(
        vocab_size=2,
        num_layers=hparams.get("depth", 1),
        d_model=hparams["d"],
        num_heads=hparams["H"],
        head_dim=hparams["D"],
        d_inner=hparams.get("F"),
        pre_norm=True,
        position="absolute",
        attention=(
            f"linformer(max_tokens={hparams['n_max']}, k={hparams['k']}, sharing={sharing!r})",
        ),
        feed_forward=("dense(activation='gelu')",),
    )


def _assign_heads(layer, hparams, kernel):
    """Assigns the reference's kernels by name; one of a single head is that of every head."""
    heads = hparams["H"], hparams["D"]
    for name, weight in (
        ("to_q.kernel", layer.query_kernel),
        ("to_k.kernel", layer.key_kernel),
        ("to_v.kernel", layer.value_kernel),
    ):
        value = kernel(name).reshape([hparams["d"], -1, hparams["D"]])
        weight.assign(np.broadcast_to(value, weight.shape))
    layer.output_kernel.assign(kernel("to_out.kernel").reshape([*heads, hparams["d"]]))


def _two_sided(x):
    return AttentionMask(remembered=tf.zeros([x.shape[0]], tf.int32), lookahead=None)


class StarTest(parameterized.TestCase):
    @parameterized.parameters("pos_pad", "nopos_ragged", "full")
    def test_values(self, case):
        data, hparams = load(f"star_{case}")
        rows, num_tokens, width = data["in.x"].shape
        config = StarTransformerConfig(
            vocab_size=rows * num_tokens,
            num_layers=hparams["num_layers"],
            d_model=width,
            num_heads=hparams["H"],
            head_dim=hparams["D"],
            num_positions=hparams["max_len"],
            cyclic=False,
            layer_norm_epsilon=hparams["layer_norm_eps"],
        )
        model = StarTransformer(config)
        model.embedding.tables[0].assign(data["in.x"].reshape([-1, width]) / width**0.5)
        if config.num_positions is not None:
            model.positions.assign(data["w.pos_emb"])
        for index, layer in enumerate(model.star_layers):
            layer.norm.gamma.assign(data[f"w.norm.{index}.gamma"])
            layer.norm.beta.assign(data[f"w.norm.{index}.beta"])
            for projections, attention in ((layer.ring, "ring_att"), (layer.star, "star_att")):
                for dense, name in (
                    (projections.query, "WQ"),
                    (projections.key, "WK"),
                    (projections.value, "WV"),
                    (projections.output_projection, "WO"),
                ):
                    dense.kernel.assign(data[f"w.{attention}.{index}.{name}.kernel"])
                    dense.bias.assign(data[f"w.{attention}.{index}.{name}.bias"])
        ids = tf.reshape(tf.range(rows * num_tokens), [rows, num_tokens])
        lengths = tf.constant(hparams["lengths"])
        terms = hparams["num_layers"] * (4 * width + 3 * hparams["D"] * hparams["H"] + num_tokens)
        expected = data["out.nodes"], data["out.relay"]
        for found, value in zip(model(ids, lengths=lengths), expected, strict=True):
            assert_close(found, value, terms)


class RoutingTest(parameterized.TestCase):
    """The reference has routed heads alone; here they follow a local one, of zeros."""

    @parameterized.parameters("eval", "eval_overlap", "eval_short", "eval_pad", "ema", "ema_empty")
    def test_values(self, case):
        data, hparams = load(f"routing_{case}")
        rows, heads, num_tokens, width = data["in.qk"].shape
        core = spec_layers.core(
            f"routing(clusters={hparams['C']}, local_heads=1, window={hparams['window_size']}, "
            f"decay={hparams['ema_decay']}, commitment={hparams['commitment']})"
        )
        core.build_weights(None, heads + 1, width, 0.02)
        core.centroids.assign(data["w.means"])
        keys, values = (
            np.pad(data[f"in.{name}"], [[0, 0], [1, 0], [0, 0], [0, 0]]) for name in ("qk", "v")
        )
        found = core(
            keys[:, :1],
            keys[:, :1],
            keys,
            values,
            None,
            visibility=AttentionMask(remembered=tf.zeros([rows], tf.int32)),
            dropout_key=DropoutKey(tf.constant([0, 0]), tf.range(rows)),
        )[:, 1:]
        expected = data["out.out"]
        if "in.mask" in data:  # outputs of padding, which the reference routes as well, differ
            real = data["in.mask"][:, np.newaxis, :, np.newaxis]
            found, expected = np.where(real, found, 0.0), np.where(real, expected, 0.0)
        assert_close(found, expected, 2 * width, 2 * num_tokens, hparams["C"])
        loss = data["out.aux_loss"]
        assert_close(core.commitment, loss, width, rows * heads * num_tokens * width)
        if "out.means_after" in data:
            core.move_centroids(core.cluster_sums, tf.constant(True))
            assert_close(core.centroids, data["out.means_after"], rows * num_tokens, width)


if __name__ == "__main__":
    absltest.main()
