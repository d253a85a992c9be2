"""Bidirectional cores: laws, and dense attention in float64 with a weight for each pair.

Every core gives softmax(score + ln m), m how often a key counts: once by its place, where the score
has its distance in it, and as often as it is seen from anywhere, where it has not.
"""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import rounding
import spec_layers
from txl_tf.attention import ATTENTION
from txl_tf.ops.attention_mask import AttentionMask
from txl_tf.ops.dropout import DropoutKey
from txl_tf.ops.shapes import larger, shape_of

SPECS = {
    "dense": "dense",
    "topk": "topk(k=2)",
    "local": "local(window=2, block=2)",
    "longformer": "longformer(window=2, block=2, max_global_tokens=2)",
    "bigbird": "bigbird(block=2, random=1)",
    "linformer": "linformer(max_tokens=31, k=3)",
}
HEADS, WIDTH, D_MODEL = 4, 6, 10

CAUSAL_ALONE = {"routing"}  # attention_contract_test.py has it


def draw(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def make(spec, **common):
    core = spec_layers.core(spec, **common)
    core.build_weights(D_MODEL, HEADS, WIDTH, 0.5)
    core.built = True
    return core


def inputs(num_tokens, rows=3):
    """content_query, position_query, keys, values, encodings and x."""
    size = [rows, HEADS, num_tokens, WIDTH]
    arrays = [draw(*size, seed=seed) for seed in range(1, 5)]
    return [
        *arrays,
        draw(HEADS, 2 * num_tokens - 1, WIDTH, seed=5),
        draw(rows, num_tokens, D_MODEL, seed=6),
    ]


def rules(num_tokens, rows=3):
    """Rows of several lengths, of which the first is whole; the third has one global token."""
    lengths = [num_tokens, max(num_tokens - 3, 1), max(num_tokens // 2, 1)]
    marked = np.zeros([rows, num_tokens], bool)
    marked[0, [0, num_tokens // 2, num_tokens - 1]] = True  # one more than count
    marked[1, -1] = True  # a pad is not global
    marked[2, 0] = True
    return AttentionMask(
        remembered=tf.zeros([rows], tf.int32),
        lookahead=None,
        lengths=tf.constant(lengths[:rows]),
        global_tokens=tf.constant(marked),
    )


def run(core, arrays, visibility, **kwargs):
    """Calls a core as a block does: with encodings of what its kind may see by place."""
    *arrays, x = arrays
    reach = core.spec.reach
    if arrays[4] is not None and reach is not None:
        rows = shape_of(arrays[4])[1]
        beyond = larger((rows - 1) // 2 - reach, 0)
        arrays[4] = arrays[4][:, beyond : rows - beyond]
    seen = {"x": x} if core.TAKES_INPUT else {}
    return core(*arrays, visibility=visibility, **seen, **kwargs)


def real_pairs(visibility, num_tokens):
    real = np.arange(num_tokens) < np.array(visibility.lengths)[:, np.newaxis]
    return real, np.broadcast_to(
        real[:, np.newaxis, np.newaxis], [len(real), HEADS, num_tokens, num_tokens]
    )


def of_longformer(core, visibility, num_tokens):
    """How often pairs count by place, and from anywhere. Twice [B, H, T, T]."""
    real, near = real_pairs(visibility, num_tokens)
    near, anywhere = near.astype(float), np.zeros(near.shape)
    if isinstance(core, ATTENTION["local"]):
        distance = np.subtract.outer(np.arange(num_tokens), np.arange(num_tokens))
        for head, dilation in enumerate(
            np.repeat(core.spec.dilations, HEADS // len(core.spec.dilations))
        ):
            window = (abs(distance) <= core.spec.window * dilation) & (distance % dilation == 0)
            near[:, head] *= window
    for row, place in global_places(core, visibility, real):
        near[row, :, :, place] = 0
        anywhere[row, :, :, place] = 1
    return near, anywhere


def global_places(core, visibility, real):
    most = getattr(core.spec, "max_global_tokens", 0)
    marked = np.array(visibility.global_tokens) & real
    return [(b, place) for b, row in enumerate(marked) for place in np.flatnonzero(row)[:most]]


def of_bigbird(core, visibility, num_tokens):
    _, near = real_pairs(visibility, num_tokens)
    near, anywhere = near.astype(float), np.zeros(near.shape)
    num_blocks = -(-num_tokens // core.spec.block)
    if core.spec.table is None and num_blocks < core.spec.random + 5:
        return near, anywhere
    block = np.arange(num_tokens) // core.spec.block
    ends = (block == 0) | (block == num_blocks - 1)
    window = (abs(np.subtract.outer(block, block)) <= 1) & ~ends & ~ends[:, np.newaxis]
    count = np.zeros([HEADS, num_tokens, num_tokens])
    count += ends | ends[:, np.newaxis]
    table = np.array(core.random_blocks(HEADS, num_blocks))
    for head, i in np.ndindex(HEADS, num_tokens):
        if not ends[i]:
            for number in table[head, block[i] - 1]:
                count[head, i, block == number] += 1
    return near * window, near * count


def by_hand(core, arrays, visibility):
    """In float64; differentiable."""
    if isinstance(core, ATTENTION["linformer"]):
        return of_mixtures(core, arrays, visibility)
    content, position, keys, values, encodings, x = (
        None if a is None else tf.cast(a, tf.float64) for a in arrays
    )
    num_tokens = content.shape[2]
    is_bigbird = isinstance(core, ATTENTION["bigbird"])
    near, anywhere = (of_bigbird if is_bigbird else of_longformer)(core, visibility, num_tokens)
    scores = tf.matmul(content, keys, transpose_b=True) / WIDTH**0.5
    placed = scores
    if encodings is not None:
        row = num_tokens - 1 - np.subtract.outer(np.arange(num_tokens), np.arange(num_tokens))
        of_pair = tf.gather(encodings, row, axis=1)  # [H, T, T, K]
        placed += tf.einsum("bhtk,htsk->bhts", position, of_pair) / WIDTH**0.5
    with np.errstate(divide="ignore"):
        counts = np.maximum(np.log(np.concatenate([near, anywhere], axis=-1)), -1e9)
    both = tf.concat([placed, scores], axis=-1) + counts
    if isinstance(core, ATTENTION["topk"]):
        least = tf.sort(both, direction="DESCENDING")[..., core.spec.k - 1 : core.spec.k]
        both = tf.where(both >= least, both, -1e9)
    attended = tf.matmul(tf.nn.softmax(both), tf.concat([values, values], axis=2))
    real, _ = real_pairs(visibility, num_tokens)
    if getattr(core.spec, "max_global_tokens", 0):
        kernels = core.global_query_kernel, core.global_key_kernel, core.global_value_kernel
        q, k, v = (
            tf.einsum("btd,dhk->bhtk", x, tf.cast(tf.convert_to_tensor(w), tf.float64))
            for w in kernels
        )
        scores = tf.matmul(q, k, transpose_b=True) / WIDTH**0.5
        scores += np.where(real, 0, -1e9)[:, np.newaxis, np.newaxis]
        of_all = tf.matmul(tf.nn.softmax(scores), v)
        is_global = np.zeros(real.shape, bool)
        for row, place in global_places(core, visibility, real):
            is_global[row, place] = True
        attended = tf.where(is_global[:, np.newaxis, :, np.newaxis], of_all, attended)
    return tf.where(real[:, np.newaxis, :, np.newaxis], attended, 0.0)


def mixtures_of_heads(core, num_tokens):
    """E and F of Linformer, [H, k, T] float64 each."""
    shape = [HEADS, core.spec.k, num_tokens]
    return [
        tf.broadcast_to(tf.cast(mixture, tf.float64)[..., :num_tokens], shape)
        for mixture in core.mixtures()
    ]


def of_mixtures(core, arrays, visibility):
    """Linformer in float64; differentiable."""
    content, _, keys, values, _, _ = (None if a is None else tf.cast(a, tf.float64) for a in arrays)
    num_tokens = content.shape[2]
    real, _ = real_pairs(visibility, num_tokens)
    mixed_keys, mixed_values = (
        tf.einsum("hmt,bt,bhtk->bhmk", mixture, real.astype(float), x)
        for mixture, x in zip(mixtures_of_heads(core, num_tokens), (keys, values), strict=True)
    )
    scores = tf.einsum("bhtk,bhmk->bhtm", content, mixed_keys) / WIDTH**0.5
    return tf.einsum("bhtm,bhmk->bhtk", tf.nn.softmax(scores), mixed_values)


def tolerance(core, arrays):
    """Tolerance of contexts; the values of Linformer are themselves sums over the tokens."""
    values = arrays[3]
    num_keys = values.shape[2]
    if isinstance(core, ATTENTION["linformer"]):
        _, mixture = mixtures_of_heads(core, num_keys)
        values = tf.einsum("hmt,bhtk->bhmk", tf.abs(mixture), tf.cast(tf.abs(values), tf.float64))
        num_keys += core.spec.k
    return rounding.of_attention(WIDTH, num_keys, values)


ORACLE = (
    "dense",
    "topk(k=2)",
    "local(window=3)",
    "local(window=2, block=2, dilations=(1, 3))",
    "longformer(window=3, max_global_tokens=1)",
    "longformer(window=2, block=2, dilations=(1, 2), max_global_tokens=2)",
    "longformer(window=1, block=4, dilations=(2,), max_global_tokens=9)",
    "bigbird(block=2, random=1)",
    "bigbird(block=3, random=2)",
    "bigbird(block=1, random=0)",
    "bigbird(block=4, random=2, seed=3)",
    "linformer(max_tokens=40, k=5, sharing='none')",
    "linformer(max_tokens=31, k=3)",
    "linformer(max_tokens=31, k=1, sharing='key_value')",
    "linformer(max_tokens=33, k=2, sharing='layerwise')",
)


class OracleTest(parameterized.TestCase):
    @parameterized.product(
        spec=ORACLE, case=((1, True), (5, True), (12, False), (13, True), (31, True))
    )
    def test_values_and_gradients(self, spec, case):
        num_tokens, placed = case
        core, arrays, visibility = make(spec), inputs(num_tokens), rules(num_tokens)
        if not placed:
            arrays[4] = None
        watched = [a for a in arrays if a is not None]
        upstream = draw(3, HEADS, num_tokens, WIDTH, seed=9)
        upstream *= tf.cast(visibility.real_tokens(num_tokens), tf.float32)[:, None, :, None]
        results = []
        for attend in (run, by_hand):
            with tf.GradientTape() as tape:
                tape.watch(watched)
                found = attend(core, arrays, visibility)
                loss = tf.reduce_sum(found * tf.cast(upstream, found.dtype))
            zero = tf.UnconnectedGradients.ZERO
            results.append([found, *tape.gradient(loss, watched, unconnected_gradients=zero)])
        real = np.array(visibility.real_tokens(num_tokens))[:, np.newaxis, :, np.newaxis]
        atol = tolerance(core, arrays)
        np.testing.assert_allclose(results[0][0] * real, results[1][0] * real, rtol=0, atol=atol)
        gradients = [found[1:] for found in results]
        # That of keys is 0 where there is one; all are of the size of the largest, never 0.
        scale = max(np.abs(expected).max() for expected in gradients[1])
        atol = rounding.tolerance(2 * 2 * (WIDTH + num_tokens), num_tokens, scale=scale)
        for found, expected in zip(*gradients, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


class LawsTest(parameterized.TestCase):
    def test_every_core_is_covered(self):
        self.assertEqual(SPECS.keys() | CAUSAL_ALONE, ATTENTION.keys())

    @parameterized.product(spec=tuple(SPECS.values()), num_tokens=(5, 17))
    def test_pads_are_not_seen(self, spec, num_tokens):
        core, arrays, visibility = make(spec), inputs(num_tokens), rules(num_tokens)
        before = np.array(run(core, arrays, visibility))
        pads = ~np.array(visibility.real_tokens(num_tokens))
        for place in (2, 3, 5):
            pad = pads[..., np.newaxis] if place == 5 else pads[:, np.newaxis, :, np.newaxis]
            arrays[place] = tf.where(pad, 9.0, arrays[place])
        after = np.array(run(core, arrays, visibility))
        real = np.broadcast_to(~pads[:, np.newaxis, :, np.newaxis], before.shape)
        np.testing.assert_array_equal(after[real], before[real])

    @parameterized.parameters("longformer", "bigbird")
    def test_contexts_of_pads_are_zero(self, kind):
        found = run(make(SPECS[kind]), inputs(17), rules(17))
        pads = ~np.array(rules(17).real_tokens(17))
        np.testing.assert_array_equal(np.moveaxis(np.array(found), 1, 2)[pads], 0.0)

    @parameterized.product(spec=tuple(SPECS.values()), num_tokens=(3, 16, 31))
    def test_compiled_equals_eager(self, spec, num_tokens):
        core, visibility = make(spec), rules(num_tokens)
        compiled = tf.function(lambda *arrays: run(core, arrays, visibility), jit_compile=True)
        arrays = inputs(num_tokens)
        expected = run(core, arrays, visibility)
        atol = tolerance(core, arrays)
        np.testing.assert_allclose(compiled(*arrays), expected, rtol=0, atol=atol)

    @parameterized.product(spec=tuple(SPECS.values()), jit=(False, True))
    def test_sizes_that_no_trace_knows(self, spec, jit):
        core = make(spec)

        def attend(*arrays):
            *arrays, lengths, marked = arrays
            found = AttentionMask(
                remembered=tf.zeros_like(lengths),
                lookahead=None,
                lengths=lengths,
                global_tokens=marked,
            )
            return run(core, arrays, found)

        blank = [tf.TensorSpec([None, HEADS, None, WIDTH])] * 4
        blank += [tf.TensorSpec([HEADS, None, WIDTH]), tf.TensorSpec([None, None, D_MODEL])]
        blank += [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.bool)]
        compiled = tf.function(attend, input_signature=blank, jit_compile=jit)
        for num_tokens in (1, 3, 12, 31):
            arrays, visibility = inputs(num_tokens), rules(num_tokens)
            found = compiled(*arrays, visibility.lengths, visibility.global_tokens)
            expected = run(core, arrays, visibility)
            real = visibility.real_tokens(num_tokens)[:, tf.newaxis, :, tf.newaxis]
            real = tf.cast(real, tf.float32)
            atol = tolerance(core, arrays)
            np.testing.assert_allclose(found * real, expected * real, rtol=0, atol=atol)

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_comes_back_from_its_config(self, spec):
        core = make(spec, dropout=0.25, site=9)
        again = type(core).from_config(core.get_config())
        self.assertEqual(again.get_config(), core.get_config())

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_bfloat16_scores_in_float32(self, spec):
        arrays, visibility = inputs(17), rules(17)
        core = make(spec, dtype="mixed_bfloat16")
        exact = make(spec)
        for weight, value in zip(core.weights, exact.weights, strict=True):
            weight.assign(value)
        rough = run(core, [tf.cast(a, tf.bfloat16) for a in arrays], visibility)
        self.assertEqual(rough.dtype, tf.bfloat16)
        compiled = tf.function(lambda *arrays: run(core, arrays, visibility))
        self.assertEqual(compiled(*[tf.cast(a, tf.bfloat16) for a in arrays]).dtype, tf.bfloat16)
        expected = run(exact, arrays, visibility)
        if spec != SPECS["topk"]:  # there a tie in bfloat16 is another choice
            error = np.abs(tf.cast(rough, tf.float32) - expected).mean()
            self.assertLess(error, rounding.typical(2 * WIDTH))

    @parameterized.product(spec=tuple(SPECS.values()))
    def test_dropout_is_by_row(self, spec):
        core, arrays, visibility = make(spec, dropout=0.5), inputs(17), rules(17)
        seed = tf.constant([3, 4])
        both = run(core, arrays, visibility, dropout_key=DropoutKey(seed, tf.constant([5, 6, 7])))
        alone = run(
            core,
            [a if a.shape[0] == HEADS else a[1:2] for a in arrays],
            visibility.for_rows(slice(1, 2)),
            dropout_key=DropoutKey(seed, tf.constant([6])),
        )
        atol = 2 * tolerance(core, arrays)  # what stays counts double
        np.testing.assert_allclose(both[1:2], alone, rtol=0, atol=atol)
        self.assertGreater(np.abs(both - run(core, arrays, visibility)).max(), 0.1)


class BigBirdTest(parameterized.TestCase):
    def test_a_block_chooses_others_than_it_sees_anyway(self):
        for num_blocks in (8, 9, 40):
            core = make("bigbird(block=2, random=3)", site=7)
            table = np.array(core.random_blocks(HEADS, num_blocks))
            self.assertEqual(table.shape, (HEADS, num_blocks - 2, 3))
            for head, row in np.ndindex(*table.shape[:2]):
                chosen = set(table[head, row])
                self.assertLen(chosen, 3)
                seen = {0, row, row + 1, row + 2, num_blocks - 1}
                self.assertEmpty(chosen & seen)
                self.assertBetween(max(chosen), 1, num_blocks - 2)

    def test_the_choice_follows_from_seed_and_layer(self):
        def table(spec="bigbird", site=0):
            return np.array(make(spec, site=site).random_blocks(HEADS, 40))

        np.testing.assert_array_equal(table(), table("bigbird(seed=0)"))
        self.assertGreater((table() != table("bigbird(seed=1)")).mean(), 0.5)
        self.assertGreater((table() != table(site=4)).mean(), 0.5)
        self.assertGreater((table()[0] != table()[1]).mean(), 0.5)
        compiled = tf.function(lambda: make("bigbird").random_blocks(HEADS, 40), jit_compile=True)
        np.testing.assert_array_equal(compiled(), table())

    def test_a_table_is_of_one_length(self):
        core = make("bigbird(block=2, random=1, table=(((1,),),((1,),),((1,),),((1,),)))")
        arrays = inputs(5)
        run(core, arrays, rules(5))
        with self.assertRaisesRegex(ValueError, "fill the 3 blocks of 2 tokens .*, got 17 tokens"):
            run(core, inputs(17), rules(17))


class LinformerTest(parameterized.TestCase):
    def test_a_longer_text_is_refused(self):
        core = make("linformer(max_tokens=8, k=2)")
        run(core, inputs(8), rules(8))
        message = "text must have at most the 8 tokens of linformer's max_tokens, got 9"
        with self.assertRaisesRegex(ValueError, message):
            run(core, inputs(9), rules(9))

    @parameterized.parameters(
        ("none", [(HEADS, 2, 8)] * 2),
        ("headwise", [(1, 2, 8)] * 2),
        ("key_value", [(1, 2, 8)]),
        ("layerwise", [(1, 2, 8)]),
    )
    def test_what_is_shared(self, sharing, shapes):
        core = make(f"linformer(max_tokens=8, k=2, sharing={sharing!r})")
        self.assertEqual([tuple(weight.shape) for weight in core.weights], shapes)
        self.assertEqual(core.count_params(), core.spec.num_own_parameters(1, HEADS))


class LongformerTest(parameterized.TestCase):
    def test_without_global_tokens_it_is_local(self):
        arrays, visibility = inputs(17), rules(17)
        found = run(
            make("longformer(window=2, max_global_tokens=2)"),
            arrays,
            dataclasses.replace(visibility, global_tokens=None),
        )
        expected = run(make("local(window=2)"), arrays, visibility)
        real = tf.cast(visibility.real_tokens(17), tf.float32)[:, tf.newaxis, :, tf.newaxis]
        np.testing.assert_array_equal(found, expected * real)


if __name__ == "__main__":
    absltest.main()
