"""Trains a model on a stream of ids in seconds, for tests that need a trained one."""

import keras
import numpy as np
import tensorflow as tf


def train(model, ids, *, steps, batch_size=16, segment_len=64, learning_rate=2e-3):
    """Trains on rows that continue from step to step and restart at the end; returns the loss."""
    size = (len(ids) - 1) // batch_size
    rows = np.stack([ids[b * size : (b + 1) * size + 1] for b in range(batch_size)])
    warm_up = steps // 4
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps - warm_up, alpha=0.02, warmup_target=learning_rate, warmup_steps=warm_up
    )
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=0.25)
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True)
    def step(inputs, targets, mems):
        with tf.GradientTape() as tape:
            nll, mems = model.nll(inputs, targets, mems, training=True)
            loss = tf.reduce_mean(nll)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss, mems

    places = range(0, size - segment_len + 1, segment_len)
    for number in range(steps):
        start = places[number % len(places)]
        if start == 0:
            mems = model.initial_mems(batch_size)
        piece = tf.constant(rows[:, start : start + segment_len + 1])
        loss, mems = step(piece[:, :-1], piece[:, 1:], mems)
    return float(loss)
