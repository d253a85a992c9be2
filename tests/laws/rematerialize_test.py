"""Rematerialized layers give the same gradients as stored ones."""

import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.ops.dropout import DropoutKey


@functools.cache
def gradients(jit, rematerialize, **changes):
    """Loss and gradients of a segment with memory and dropout, and how often a layer was traced."""
    keras.utils.set_random_seed(1)  # of weights that `loud` leaves: centroids
    config = helpers.tiny_config(dropout=0.2, attention_dropout=0.2, **changes)
    model = helpers.loud(TransformerXL(config, rematerialize=rematerialize))
    ids, mems = helpers.draw_ids(2, 4), model.initial_mems(2)
    if config.mem_len:
        _, mems = model(ids, mems)
    block, calls = model.blocks[0], []
    original = block.call

    def counted(*args, **kwargs):
        calls.append(1)
        return original(*args, **kwargs)

    block.call = counted

    @tf.function(jit_compile=jit)
    def run(mems):
        key = DropoutKey(tf.constant([1, 2]), tf.range(2))
        with tf.GradientTape() as tape:
            nll, _ = model.nll(ids, ids[:, ::-1], mems, dropout_key=key, training=True)
            loss = tf.reduce_mean(nll)
            loss += tf.add_n(model.losses) if model.losses else 0.0
        found = tape.gradient(loss, model.trainable_variables)
        return [loss, *map(tf.convert_to_tensor, found), *model.cluster_sums()]

    return [value.numpy() for value in run(mems)], len(calls)


class RematerializeTest(parameterized.TestCase):
    @parameterized.product(
        jit=(False, True),
        changes=(
            {},
            dict(untie_biases=True, pre_norm=True),
            dict(position="absolute", mem_len=0),
            dict(attention=("routing(clusters=2, local_heads=1, window=3, commitment=0.1)",)),
        ),
    )
    def test_gradients_stay(self, jit, changes):
        expected, once = gradients(False, False, **changes)
        found, again = gradients(jit, True, **changes)
        self.assertGreater(again, once)
        for ours, theirs in zip(found, expected, strict=True):
            atol = rounding.of_gradients(helpers.tiny_config(), 8)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)

    def test_only_in_training(self):
        ids, counts = helpers.draw_ids(2, 4), []
        for rematerialize in (False, True):
            model = TransformerXL(helpers.tiny_config(), rematerialize=rematerialize)
            graph = tf.function(lambda model=model: model(ids)[0]).get_concrete_function().graph
            counts.append(len(graph.as_graph_def().node))
        self.assertEqual(*counts)


if __name__ == "__main__":
    absltest.main()
