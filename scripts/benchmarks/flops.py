"""Model FLOPs: the matrix products that a token requires, independent of the implementation.

A multiply-add counts as two. Letters as in shapes; N = H K, S = M + T, E is the width of
embeddings. The forward pass with a key-value cache costs, per token:

    each layer    8 D N          queries, keys, values, output
                  4 S N          content scores, weighted sum of values
                  2 R N          position scores; R = min(S, clamp_len + 1) distinct distances
                  4 D F          feed-forward
    once          2 E V          softmax; with cut-offs V is the size of the head
                  4 D E          projections of embedding and softmax, if E is not D

All S keys count, as dense attention computes the masked scores too. Norms, exponentials, dropout,
the optimizer and embedding lookups are not counted. Projecting the distances is free here: it is
done once.

A training step counts each product three times: the value and both gradients. In addition, each
layer computes for all B T tokens together

    2 x 4 B M D N     keys and values of the memory, and the gradient of their weights; no gradient
                      flows into the memory
    2 x 2 R D N       projected distances, and the gradient of their weights

Covers "xl" positions, dense attention and dense feed-forward nets.
"""

from txl_tf.configs.model import TransformerXLConfig


def inference(config: TransformerXLConfig, segment_len: int) -> float:
    """Returns the FLOPs per token of the forward pass of a segment."""
    inner = config.num_heads * config.head_dim
    num_keys = config.mem_len + segment_len
    layer = (
        8 * config.d_model * inner
        + 4 * num_keys * inner
        + 2 * _num_distances(config, num_keys) * inner
        + 4 * config.d_model * config.d_inner
    )
    words = config.cutoffs[0] + len(config.cutoffs) if config.cutoffs else config.vocab_size
    ends = 2 * config.embed_dim * words
    if config.embed_dim != config.d_model:
        ends += 4 * config.d_model * config.embed_dim
    return config.num_layers * layer + ends


def training(config: TransformerXLConfig, batch_size: int, segment_len: int) -> float:
    """Returns the FLOPs per token of an optimizer step."""
    kernel = config.d_model * config.num_heads * config.head_dim
    distances = _num_distances(config, config.mem_len + segment_len)
    memory = 2 * 4 * batch_size * config.mem_len * kernel
    shared = config.num_layers * (memory + 2 * 2 * distances * kernel)
    return 3 * inference(config, segment_len) + shared / (batch_size * segment_len)


def _num_distances(config: TransformerXLConfig, num_keys: int) -> int:
    return num_keys if config.clamp_len is None else min(num_keys, config.clamp_len + 1)
