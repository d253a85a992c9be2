"""Trains on several replicas, in a process of its own as they must exist from its start.

    python tests/replicas.py REPLICAS OUT.npz                       twenty steps, see `run`
    python tests/replicas.py REPLICAS OUT.npz AT_ONCE               the same, so many in a call
    python tests/replicas.py REPLICAS OUT.npz AT_ONCE KIND          the same, of one of `KINDS`
    python tests/replicas.py REPLICAS OUT.npz DATA_DIR MODEL_DIR STEPS     a run of `loop.train`

REPLICAS logical CPUs; with a TF_CONFIG in the environment, this worker's.
"""

import os
import sys

import keras
import numpy as np
import tensorflow as tf

ROWS, TOKENS, STEPS = 8, 4, 20
SIZES = dict(num_layers=1, mem_len=8)  # of the model


def batches():
    """Returns batches as the reader does; in every fourth, rows have a single real token."""
    from txl_tf.data.batches import Batch

    draw = np.random.default_rng(5)
    for step in range(STEPS):
        ids = draw.integers(11, size=[ROWS, TOKENS + 1]).astype("int32")
        targets = ids[:, 1:].copy()
        targets[3::4, 1:] = -1
        starts = draw.random([ROWS, TOKENS]) < 0.1
        yield Batch(ids[:, :-1], targets, starts, np.array(step == 11))


KINDS = {  # objective, and changes of the model
    "causal": ("causal", {}),
    "permutation": ("permutation", {}),
    "routing": (
        "causal",
        {"attention": ("routing(clusters=3, local_heads=1, window=4, decay=0.9)",)},
    ),
}


def run(distribution, at_once=1, kind="causal", **changes):
    """Trains on rows of 4, 4, 4 and 1 real tokens, with clipping, accumulation and dropout.

    -> loss, tokens, rate and gradient norm of each step; final weights; memory in row order.
    """
    import helpers
    from trainee import SMOOTH
    from txl_tf import model_dir
    from txl_tf.configs.run import Config, TrainConfig
    from txl_tf.training import optimizer, step

    objective, own = KINDS[kind]
    settings = dict(batch_size=ROWS, segment_len=TOKENS, train_steps=STEPS, **SMOOTH)
    settings |= dict(objective=objective, clip_norm=0.01, accumulate_steps=2, jit=False)
    tiny = {"causal": helpers.tiny_config, "permutation": helpers.tiny_xlnet}[objective]
    config = Config(model=tiny(**SIZES, **own, **changes), train=TrainConfig(**settings))
    keras.utils.set_random_seed(1)
    with distribution.strategy.scope():
        model = helpers.loud(model_dir.make_model(config))
        adam = optimizer.make_optimizer(config.train)
        adam.build(model.trainable_variables)
    train_step = step.make_train_step(model, adam, distribution, config)
    train_loop = step.make_train_loop(model, adam, distribution, config)
    first, end = distribution.rows(ROWS)
    memory, recorded_metrics = distribution.deal(model.initial_mems(end - first)), []
    mine = [
        distribution.deal(tf.nest.map_structure(lambda x: x[first:end] if x.ndim else x, batch))
        for batch in batches()
    ]
    for start in range(0, STEPS, at_once):
        several = tuple(mine[start : start + at_once])
        function, given = (train_step, several[0]) if at_once == 1 else (train_loop, several)
        metrics, memory = function(given, memory)
        recorded_metrics += np.stack([np.ravel(value) for value in metrics[:4]], axis=1).tolist()
    found = {f"weight_{i}": v.numpy() for i, v in enumerate(model.weights)}
    leaves = tf.nest.flatten(distribution.gather(memory))
    found |= {f"memory_{i}": np.array(leaf) for i, leaf in enumerate(leaves)}
    return found | {"metrics": np.array(recorded_metrics)}


def train(distribution, data_dir, model_dir, steps):
    """Starts or resumes a run; returns the loss of each step and of the last validation."""
    import helpers
    from txl_tf.configs.run import Config, EvalConfig, TrainConfig
    from txl_tf.training import loop
    from txl_tf.training import step as step_lib

    losses = []

    def make(*args):
        step = step_lib.make_train_step(*args)

        def recorded(batch, memory):
            metrics, memory = step(batch, memory)
            losses.append(float(metrics.loss))
            return metrics, memory

        return recorded

    loop.make_train_step = make
    settings = dict(batch_size=ROWS, segment_len=TOKENS, learning_rate=0.05, warmup_steps=2)
    settings |= dict(train_steps=int(steps), checkpoint_every=4, eval_every=4, jit=False)
    settings |= dict(min_lr_ratio=1.0)  # else the rate would follow from the number of steps
    config = Config(
        model=helpers.tiny_config(**SIZES, dropout=0.1),
        train=TrainConfig(**settings),
        eval=EvalConfig(batch_size=3),
    )
    keras.utils.set_random_seed(1)
    result = loop.train(config, data_dir=data_dir, model_dir=model_dir, distribution=distribution)
    return {"metrics": np.array([*losses, result.valid.nats_per_token])}


def main(replicas, path, *run_of):
    """Runs on the given number of replicas."""
    from txl_tf.training.distribution import make_distribution

    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * int(replicas)
    tf.config.set_logical_device_configuration(cpu, parts)
    several = "multi_worker" if "TF_CONFIG" in os.environ else "mirrored"
    alone = several == "mirrored" and int(replicas) == 1
    distribution = make_distribution("one_device" if alone else several)
    is_run = len(run_of) == 3
    found = (
        train(distribution, *run_of)
        if is_run
        else run(distribution, *map(int, run_of[:1]), *run_of[1:], dropout=0.1)
    )
    if distribution.is_chief:
        np.savez(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
