"""Tests of the Switch net: golden values, a loop over tokens, and its use in models."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import draw_laws
import helpers
import model_laws
import rounding
from txl_tf.configs.layer_specs import Switch
from txl_tf.feed_forward import make_feed_forward
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.dropout import DropoutKey

GOLDEN = ("cf100", "cf125", "cf200", "token_group", "one_expert")
KEY = DropoutKey(tf.constant([3, 4]), tf.range(8))


def make(width, inner, dropout=0.0, site=0, **options):
    spec = Switch(**dict(jitter=0.0, balance_loss=1.0) | options)
    net = make_feed_forward(spec, d_model=width, d_inner=inner, dropout=dropout, site=site)
    net.build((None, None, width))
    return net


def by_hand(x, router, inner, outer, capacity):
    """A loop over tokens in float64. x [G, g, D] -> y, share dropped, f [G, E], P [G, E]."""
    x, router, inner, outer = (np.asarray(a, np.float64) for a in (x, router, inner, outer))
    experts, y, dropped = router.shape[1], np.zeros(x.shape), 0
    shares, means = np.zeros([len(x), experts]), np.zeros([len(x), experts])
    for g, row in enumerate(x):
        taken = np.zeros(experts, int)
        for i, token in enumerate(row):
            chances = np.exp(token @ router - (token @ router).max())
            chances /= chances.sum()
            expert = int(chances.argmax())
            shares[g, expert] += 1 / len(row)
            means[g] += chances / len(row)
            taken[expert] += 1
            if taken[expert] <= capacity:
                y[g, i] = chances[expert] * np.maximum(token @ inner[expert], 0) @ outer[expert]
            else:
                dropped += 1
    return y, dropped / x[..., 0].size, shares, means


class GoldenTest(parameterized.TestCase):
    @parameterized.product(case=GOLDEN, dispatch=("gather", "einsum"))
    def test_values_and_gradients(self, case, dispatch):
        data = dict(np.load(helpers.GOLDEN / f"switch_{case}.npz"))
        group = "batch" if case == "token_group" else "row"
        if group == "batch":  # the file's tokens queue row by row, ours time step by time step
            for name in ("in.x", "out.y"):
                rows, length, width = data[name].shape
                queue = data[name].reshape([length, rows, width])
                data[name] = queue.transpose([1, 0, 2])
        x, experts = tf.constant(data["in.x"]), len(data["w.wi"])
        size = x.shape[0] * x.shape[1] if group == "batch" else x.shape[1]
        factors = dict(cf100=1.0, cf125=1.25, token_group=1.0)
        factor = factors.get(case, 2.0)
        net = make(
            *data["w.wi"].shape[1:],
            experts=experts,
            capacity_factor=factor,
            dispatch=dispatch,
            group=group,
        )
        names = ("w.router.kernel", "w.wi", "w.wo")
        for weight, name in zip(net.trainable_variables, names, strict=True):
            weight.assign(data[name])
        weights = [weight.value for weight in net.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = net(x, dropout_key=KEY)
            loss = tf.reduce_sum(y * data["in.cotangent"]) if "in.cotangent" in data else 0.0
            balance, dropped = net.routing[0], net.routing[1]
        # The router, softmax, and two products; a mean over tokens in the losses.
        terms = (*data["w.wi"].shape[1:], 2 * experts, x.shape[-1])
        tokens = x.shape[0] * x.shape[1]
        self.close(y, data["out.y"], *terms)
        self.close(balance, data["out.aux_loss_paper"], *terms, tokens)
        kept = data["aux.kept"].mean()
        self.assertAlmostEqual(float(dropped), 1 - kept, delta=rounding.tolerance(tokens))
        z = make(*data["w.wi"].shape[1:], experts=experts, balance_loss=0.0, z_loss=1.0)
        for weight, name in zip(z.trainable_variables, names, strict=True):
            weight.assign(data[name])
        z(x, dropout_key=KEY)
        self.close(z.routing[0], data["out.z_loss"], *terms, tokens)
        self.assertEqual(size * factor / experts, int(size * factor / experts))
        if "in.cotangent" not in data:
            return
        found = tape.gradient(loss, [x, *weights])
        both = *terms, *terms, tokens
        scale = max(np.abs(data[f"grad.{name}"]).max() for name in ("x", "wi", "wo"))
        for gradient, name in zip(found, ("x", "router.kernel", "wi", "wo"), strict=True):
            expected = data[f"grad.{name}"]
            self.close(tf.convert_to_tensor(gradient), expected, *both, scale=scale)
        found = tape.gradient(balance, [x, weights[0]])
        scale = experts * np.abs(data["w.router.kernel"]).max()  # of f . P, by the router's weights
        self.close(found[0], data["grad.aux_paper.x"], *both, scale=scale)
        self.close(found[1], data["grad.aux_paper.router.kernel"], *both, scale=scale)

    def close(self, found, expected, *terms, scale=None):
        scale = np.abs(expected).max() if scale is None else scale
        atol = rounding.tolerance(*terms, scale=scale)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


class SwitchTest(parameterized.TestCase):
    @parameterized.product(
        shape=((2, 7), (1, 1), (3, 2), (1, 40), (2, 150)),
        experts=(1, 3, 4),
        factor=(None, 0.1, 1.0, 1.7),
        dispatch=("gather", "einsum"),
    )
    def test_equals_a_loop_over_tokens(self, **options):
        self.check_loop(lambda net: net, **options)

    @parameterized.product(
        shape=((2, 7), (2, 150)), factor=(None, 1.0), dispatch=("gather", "einsum")
    )
    def test_by_xla_equals_a_loop_over_tokens(self, **options):
        compiled = functools.partial(tf.function, jit_compile=True)
        self.check_loop(compiled, experts=4, **options)

    def check_loop(self, compiled, shape, experts, factor, dispatch):
        draw = np.random.default_rng(sum(shape) + experts).normal
        x = draw(size=[*shape, 6]).astype("float32")
        net = make(6, 10, experts=experts, eval_capacity_factor=factor, dispatch=dispatch)
        for weight in net.trainable_variables:
            weight.assign(draw(size=weight.shape))
        capacity = shape[1] if factor is None else max(int(shape[1] * factor / experts), 1)
        expected, dropped, shares, means = by_hand(x, *net.trainable_variables, capacity)
        found = compiled(net)(x)
        np.testing.assert_allclose(found, expected, rtol=0, atol=self.atol(net, x))
        net(x)
        balance = experts * (shares * means).sum(1).mean()
        atol = rounding.tolerance(6, 2 * experts, shape[0] * shape[1], scale=experts)
        np.testing.assert_allclose(net.routing[:2], [balance, dropped], rtol=0, atol=atol)

    def atol(self, net, x):
        """Returns the tolerance of outputs: sums over D, experts, D and F."""
        width, inner = net.inner_kernel.shape[1:]
        scale = np.abs(x).max() * np.abs(net.inner_kernel).max() * np.abs(net.outer_kernel).max()
        return rounding.tolerance(width, net.router_kernel.shape[1], width, inner, scale=scale)

    @parameterized.parameters((0.5, 1), (1.0, 2), (1e6, 6))
    def test_a_capacity_is_at_most_all_tokens(self, factor, expected):
        """Also where their number is known when it runs, and the product beyond int32."""
        net = make(6, 10, experts=3)
        self.assertEqual(net._capacity(6, factor), expected)
        self.assertEqual(int(net._capacity(tf.constant(6), factor)), expected)
        self.assertEqual(int(net._capacity(tf.constant(2**20), 1e6)), 2**20)

    def test_experts_may_lie_on_several_devices(self):
        """As docs/variants.md says: the slots of an expert travel to its device, and back."""
        devices, sizes = 2, (3, 6, 4, 5)  # G, E, C, D
        net = make(5, 7, experts=6)
        draw = np.random.default_rng(0).normal
        for weight in net.trainable_variables:
            weight.assign(draw(size=weight.shape))
        own = [make(5, 7, experts=3) for _ in range(devices)]
        for i, part in enumerate(own):
            part.inner_kernel.assign(net.inner_kernel[3 * i : 3 * i + 3])
            part.outer_kernel.assign(net.outer_kernel[3 * i : 3 * i + 3])

        def exchange(of_device, split, concat):
            parts = [tf.split(x, devices, axis=split) for x in of_device]
            return [tf.concat(received, axis=concat) for received in zip(*parts, strict=True)]

        taken = [tf.constant(draw(size=sizes), tf.float32) for _ in range(devices)]
        there = exchange(taken, split=1, concat=0)  # [R * G, E / R, C, D] each
        back = exchange(
            [n.run_experts(x) for n, x in zip(own, there, strict=True)], split=0, concat=1
        )
        for found, x in zip(back, taken, strict=True):
            np.testing.assert_allclose(found, net.run_experts(x), rtol=0, atol=self.atol(net, x))

    def test_entropy_measures_even_use(self):
        net = make(4, 6, experts=4)
        net.router_kernel.assign(np.eye(4))
        net(tf.constant(np.eye(4)[np.newaxis] * 5.0, tf.float32))
        atol = rounding.tolerance(4, 4, 4)
        self.assertAlmostEqual(float(net.routing[2]), 1.0, delta=atol)
        net(tf.constant(np.eye(4)[np.newaxis, [2, 2, 2, 2]] * 5.0, tf.float32))
        self.assertAlmostEqual(float(net.routing[2]), 0.0, delta=atol)

    def test_jitter_moves_the_router_alone_and_each_row_on_its_own(self):
        key = DropoutKey(tf.constant([3, 4]), tf.range(3))
        x = np.random.default_rng(0).normal(size=[3, 9, 6]).astype("float32")
        net = make(6, 10, experts=1, jitter=0.3, capacity_factor=1.0)
        calm = make(6, 10, experts=1, capacity_factor=1.0)
        calm.set_weights(net.get_weights())
        np.testing.assert_array_equal(net(x, dropout_key=key), calm(x, dropout_key=key))
        jittered = net._jittered(tf.constant(x), key)
        ratio = jittered.numpy() / x
        self.assertBetween(ratio.min(), 0.7, 0.75)
        self.assertBetween(ratio.max(), 1.25, 1.3)
        self.assertGreater(np.abs(ratio[0] - ratio[1]).max(), 0.1)
        rows = key._replace(rows=tf.constant([2]))
        alone = net._jittered(tf.constant(x[2:]), rows)
        np.testing.assert_array_equal(alone[0], jittered[2])

    def test_jitter_is_the_same_under_xla(self):
        """A factor that loses no bit: others XLA rounds once, not in product and sum."""
        net, x = make(6, 10, experts=1, jitter=0.25, site=3), tf.ones([3, 2, 6])
        draw_laws.check_compiled(lambda seed: net._jittered(x, DropoutKey(seed, tf.range(3))))

    def test_of_equals_the_first_is_chosen_and_alone_moves(self):
        net = make(6, 10, experts=3)
        net.router_kernel.assign(tf.zeros([6, 3]))  # every chance is 1 / 3
        x = np.random.default_rng(0).normal(size=[1, 4, 6]).astype("float32")
        with tf.GradientTape(persistent=True) as tape:
            total = tf.reduce_sum(net(x))
        inner, outer = (np.array(kernel[0]) for kernel in (net.inner_kernel, net.outer_kernel))
        made = (np.maximum(x[0] @ inner, 0) @ outer).sum(-1)  # [T]
        atol = rounding.tolerance(6, 10, 4, 6, scale=np.abs(x).max() * np.abs(made).max())
        self.assertAlmostEqual(float(total), made.sum() / 3, delta=atol)
        # Of p_0 by the logits: p_0 (1 - p_0), -p_0 p_1 and -p_0 p_2.
        expected = (x[0].T @ made)[:, np.newaxis] * np.array([2.0, -1.0, -1.0]) / 9
        found = tape.gradient(total, net.router_kernel)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        for kernel in (net.inner_kernel, net.outer_kernel):
            gradient = np.array(tf.convert_to_tensor(tape.gradient(total, kernel)))
            np.testing.assert_array_equal(gradient.any(axis=(1, 2)), [True, False, False])


@functools.cache
def make_crowded(**options):
    """With room for half of the tokens, if they spread evenly over the experts."""
    net = make(6, 10, experts=3, capacity_factor=0.5, group="batch", **options)
    for index, weight in enumerate(net.trainable_variables):
        weight.assign(np.random.default_rng(index).normal(size=weight.shape))
    return net


X = np.random.default_rng(7).normal(size=[3, 8, 6]).astype("float32")


class PaddingTest(parameterized.TestCase):
    KEY = DropoutKey(tf.constant([3, 4]), tf.range(3))

    @parameterized.product(group=("row", "batch"), dispatch=("gather", "einsum"))
    def test_padding_takes_no_capacity_and_does_not_count(self, group, dispatch):
        options = dict(experts=3, group=group, dispatch=dispatch, z_loss=0.5)
        lengths, padded = (8, 3, 5), np.concatenate([X, X[:, ::-1]], axis=1)  # T 8, and 16
        narrow, wide = (make(6, 10, capacity_factor=f, **options) for f in (0.5, 0.25))  # as much
        for net in (narrow, wide):
            for index, weight in enumerate(net.trainable_variables):
                weight.assign(np.random.default_rng(index).normal(size=weight.shape))

        def run(net, x):
            real = np.arange(x.shape[1]) < np.array(lengths)[:, np.newaxis]
            found = np.array(net(x, dropout_key=self.KEY, real=tf.constant(real)))
            return found[real], np.array(net.routing)

        (found, routing), (expected, alone) = run(wide, padded), run(narrow, X)
        terms = 6 + 3 + 6 + 10  # router, softmax, and two products
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=rounding.tolerance(terms, scale=scale)
        )
        np.testing.assert_allclose(routing, alone, rtol=rounding.tolerance(terms, 24))
        self.assertGreater(routing[1], 0.05)  # some are dropped

    def test_a_group_of_pads_alone_is_none(self):
        net = make(6, 10, experts=3, balance_loss=1.0, z_loss=0.5)
        real = tf.constant([[True] * 8, [False] * 8, [False] * 8])
        net(X, dropout_key=self.KEY, real=real)
        found = np.array(net.routing)
        net(X[:1], dropout_key=self.KEY)
        np.testing.assert_allclose(found, net.routing, rtol=rounding.tolerance(6 + 3 + 6 + 10, 24))

    def test_a_model_hands_its_lengths_on(self):
        specs_of = dict(feed_forward=("switch(experts=3, jitter=0.0)",))
        model = helpers.loud(TransformerXL(helpers.tiny_config(**specs_of)))
        ids, found = helpers.draw_ids(2, 8), []
        for tail in (0, 5):
            changed = np.concatenate([ids[:, :4], (ids[:, 4:] + tail) % 11], axis=1)
            model(changed, lengths=np.array([4, 4], "int32"), training=True)
            found.append(model.routing())
        np.testing.assert_array_equal(*found)


class BatchGroupTest(parameterized.TestCase):
    KEY = DropoutKey(tf.constant([3, 4]), tf.range(3))

    @parameterized.parameters("gather", "einsum")
    def test_equals_a_loop_over_time_and_rows(self, dispatch):
        net = make_crowded(dispatch=dispatch)
        queue = X.transpose([1, 0, 2]).reshape([1, 24, 6])
        expected, dropped, *_ = by_hand(queue, *net.trainable_variables, capacity=4)
        expected = expected.reshape([8, 3, 6]).transpose([1, 0, 2])
        found = net(X, dropout_key=self.KEY)
        atol = rounding.tolerance(6, 3, 6, 10, scale=np.abs(expected).max())
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        self.assertAlmostEqual(float(net.routing[1]), dropped, delta=rounding.tolerance(24))
        self.assertGreater(dropped, 0.2)

    @parameterized.product(row=(0, 1, 2), time=(2, 5), dispatch=("gather", "einsum"))
    def test_no_token_depends_on_a_later_one_of_any_row(self, row, time, dispatch):
        net = make_crowded(dispatch=dispatch)
        changed = X.copy()
        changed[row, time:] *= -1.0
        changed[row + 1 :, time] *= -1.0
        before, after = (np.array(net(x, dropout_key=self.KEY)) for x in (X, changed))
        np.testing.assert_array_equal(after[:, :time], before[:, :time])
        np.testing.assert_array_equal(after[:row, time], before[:row, time])

    def test_but_on_earlier_ones_of_other_rows(self):
        net, changed = make_crowded(), X.copy()
        changed[0] = X[1]  # more of the same: row 1 finds its experts full
        before, after = (np.array(net(x, dropout_key=self.KEY)) for x in (X, changed))
        self.assertGreater(np.abs(after[1:] - before[1:]).max(), 0.1)

    @parameterized.parameters("gather", "einsum")
    def test_each_replica_drops_on_its_own(self, dispatch):
        net = make_crowded(dispatch=dispatch, expert_dropout=0.5)
        rows = ((0, 1, 2), (0, 7, 8), (3, 4, 5))
        found = [net(X, dropout_key=self.KEY._replace(rows=tf.constant(r))) for r in rows]
        np.testing.assert_array_equal(found[0], found[1])  # a group is called by its first row
        self.assertGreater(np.abs(found[0] - found[2]).max(), 0.1)


@functools.cache
def make_model(kind, **changes):
    sizes = dict(mem_len=12, feed_forward=("dense", f"switch(experts=4, {kind})"))
    return helpers.loud(TransformerXL(helpers.tiny_config(**sizes | changes)))


class ModelTest(model_laws.Laws, parameterized.TestCase):
    KINDS = REMEMBERING = ("dispatch='gather'", "dispatch='einsum', group='batch'")

    def make_model(self, kind, **changes):
        return make_model(kind, **changes)

    def test_auxiliary_losses_count_only_in_training(self):
        model = make_model("balance_loss=0.5")
        ids = helpers.draw_ids(2, 8)
        model.nll(ids, ids)
        self.assertEmpty(model.losses)
        for _ in range(2):  # a call forgets those of the last
            model.nll(ids, ids, training=True)
            self.assertLen(model.losses, 1)
        self.assertGreater(float(model.losses[0]), 0.4)
        self.assertEqual(model.routing().shape, [2])

    def test_a_model_without_experts_has_no_routing(self):
        model = TransformerXL(helpers.tiny_config())
        model.nll(helpers.draw_ids(2, 4), helpers.draw_ids(2, 4), training=True)
        self.assertIsNone(model.routing())
        self.assertEmpty(model.losses)


if __name__ == "__main__":
    absltest.main()
