"""The layer that makes scores of labels."""

import keras


def label_layer(config, num_labels):
    """An affine map to the scores of labels, in float32 under any policy. [..., D] -> [..., N]."""
    return keras.layers.Dense(
        num_labels,
        kernel_initializer=keras.initializers.RandomNormal(stddev=config.init_std),
        dtype="float32",
        name="label_scores",
    )
