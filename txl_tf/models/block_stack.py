"""Builds and runs the block stack shared by TransformerXL and Encoder."""

import functools

import keras
import numpy as np
import tensorflow as tf

from txl_tf.configs.validation import check
from txl_tf.layers.block import SITES, Block
from txl_tf.layers.multi_head_attention import SharedBiases
from txl_tf.layers.position_kinds import POSITIONS
from txl_tf.ops import attention_mask, relative_position
from txl_tf.ops import dropout as dropouts
from txl_tf.ops import token_ids as id_checks
from txl_tf.ops.shapes import shape_of

# A model's own dropout sites; the blocks' follow from FIRST_BLOCK on.
EMBEDDING_SITE, POSITIONS_SITE, FINAL_SITE = 0, 1, 2
_FIRST_BLOCK = 8


def make_biases(config, policy):
    """Returns the `SharedBiases` of a config whose layers own none; else None."""
    if not POSITIONS[config.position].biases or config.untie_biases:
        return None
    return SharedBiases(
        config.num_heads, config.head_dim, config.init_std, dtype=policy, name="biases"
    )


def make_blocks(config, policy, block_class=Block):
    """Returns the blocks of a config, first to last."""
    blocks = [
        block_class(
            config.layer(index),
            site=_FIRST_BLOCK + SITES * index,
            dtype=policy,
            name=f"block_{index}",
        )
        for index in range(config.num_layers)
    ]
    cores = [block.attention.attend for block in blocks]
    for index, core in enumerate(cores):
        core.share_weights(cores[:index])
    return blocks


def build(layers, width):
    """Builds the layers that are neither None nor built."""
    for layer in layers:
        if layer is not None and not layer.built:
            layer.build((None, None, width))


def run(
    blocks,
    biases,
    x,
    pasts,
    encodings,
    *,
    visibility,
    dropout_key=None,
    rematerialize=False,
    position_embeddings=None,
    lengths=None,
):
    """Runs the blocks in turn.

    Blocks that route tokens set their `routing` and, in training, their `cluster_sums`, and add
    their auxiliary losses.

    Shapes:
      x: [B, T, D].
      pasts: for each layer keys and values of its memory, [B, H, M, K] each.
      encodings: for each layer [H, R, K'], or None.
      position_embeddings: for each layer [B or 1, T, D], added to its input; None is nothing.
      lengths: [B] int32, number of real tokens of each row; None is all.
      returns the residual stream, L + 1 of [B, T, D]; and for each layer keys and values of
        memory and segment, [B, H, S, K] each.

    Args:
      blocks, biases: from `make_blocks` and `make_biases`.
      x, pasts, encodings: see above.
      visibility: an `AttentionMask`.
      dropout_key: None for no dropout.
      rematerialize: whether training keeps only the input of each layer.
      position_embeddings, lengths: see above.
    """
    # As tensors: tf.recompute_grad gives no gradients to captured Keras variables.
    shared = () if biases is None else (biases.content, biases.position)
    shared = [tf.convert_to_tensor(bias) for bias in shared]
    real = attention_mask.real_tokens(lengths, shape_of(x)[1])
    states, joined = [x], []
    added = [None] * len(blocks) if position_embeddings is None else position_embeddings
    for block, past, layer_encodings, embeddings in zip(
        blocks, pasts, encodings, added, strict=True
    ):
        if embeddings is not None:
            x += embeddings
        run_block = functools.partial(
            block, visibility=visibility, dropout_key=dropout_key, real=real
        )
        if rematerialize and dropout_key is not None:
            run_block = tf.recompute_grad(run_block)
        # No None among the arguments: tf.recompute_grad takes only tensors.
        position_args = () if layer_encodings is None else (layer_encodings, *shared)
        x, keys, values, routing, clusters = run_block(x, *past, *position_args)
        states.append(x)
        joined.append((keys, values))
        block.routing = routing[0] if routing else None
        block.cluster_sums = clusters[1] if clusters else None
        if dropout_key is not None:  # here, as recomputation must not add losses again
            for loss in (*(x[0] for x in routing), *clusters[:1]):
                block.add_loss(loss)
    return states, joined


def sinusoid_encodings(config, blocks, num_keys, num_later, dtype, dropout_key=None):
    """Returns each block's encodings of the distances S - 1, ..., -num_later.

    Shapes: returns L of [H, R, K].

    Args:
      config: the `StackConfig`.
      blocks: with positions of sinusoids.
      num_keys: S.
      num_later: number of negative distances.
      dtype: of the encodings.
      dropout_key: None for no dropout.
    """
    distances = tf.cast(tf.range(num_keys - 1, -num_later - 1, -1), tf.float32)
    distances = relative_position.clamped(distances, config.clamp_len)
    encodings = relative_position.sinusoids(distances, config.d_model)  # [R, D]
    encodings = dropouts.dropout(  # once for all layers and rows
        tf.cast(encodings, dtype), config.dropout, dropout_key, POSITIONS_SITE, by_row=False
    )
    return [block.encodings(encodings, num_later=num_later) for block in blocks]


def dropout_key(given, generator, batch):
    """Returns the key of a call in training: `given`, or a new one from Keras' seed generator."""
    if given is not None:
        return given
    seed = tf.bitcast(tf.cast(generator.next(), tf.uint32), tf.int32)
    return dropouts.DropoutKey(seed, tf.range(batch))


def check_inputs(vocab_size, token_ids, lengths=None, **token_inputs):
    """Raises if shapes of the inputs disagree, or, when eager, if an id is out of range.

    Args:
      vocab_size: of the model.
      token_ids: [B, T].
      lengths: [B] or None.
      **token_inputs: [B, T] or None each.
    """
    shape = static_shape(token_ids)
    is_dense = not isinstance(token_ids, tf.RaggedTensor)
    fits = is_dense and shape.rank == 2 and shape[1] != 0
    rule = "be dense and of shape [B, T], T at least 1"
    check(fits, "token_ids", rule, _axes(shape) if is_dense else type(token_ids).__name__)
    for name, value in {"lengths": lengths, **token_inputs}.items():
        if value is not None:
            expected, actual = shape[:1] if name == "lengths" else shape, static_shape(value)
            fits = actual.is_compatible_with(expected)
            check(fits, name, f"be of shape {_axes(expected)}", _axes(actual))
    check_ids("token_ids", token_ids, vocab_size)


def static_shape(x):
    """Returns the tf.TensorShape of a tensor, an array or nested lists."""
    return tf.TensorShape(x.shape if hasattr(x, "shape") else np.shape(x))


def _axes(shape):
    return None if shape.rank is None else list(shape)


def check_ids(name, ids, vocab_size, ignored=None):
    """Raises if an id is outside the vocabulary; does nothing inside a graph."""
    if tf.executing_eagerly() and not isinstance(ids, keras.KerasTensor):
        id_checks.check_ids(name, ids, vocab_size, ignored=ignored)
