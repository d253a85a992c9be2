"""Model FLOPs: the arithmetic of matrix products that a token needs, however it is computed.

A multiplication and an addition are two. Letters as in the shapes everywhere; N = H K, S = M + T,
E the width of embeddings. A token costs, forward, in products of keys and values kept ("kv"):

    each layer    8 D N          queries, keys, values, output
                  4 S N          scores by content, and values weighed
                  2 R N          scores by position; R = min(S, clamp_len + 1), the distances
                                 that differ
                  4 D F          feed-forward
    once          2 E V          softmax; with cut-offs V is the head, words and clusters
                  4 D E          projections of embedding and softmax, where E is not D

S and not what is visible: dense attention forms the whole rectangle of queries and keys. Norms,
softmax's exponentials, dropout and the optimizer are not counted, nor are embeddings: they are
lookups. Projecting distances costs nothing here, as it is done once.

A training step counts each product three times, for its value and both its gradients. Besides,
each layer computes for all B T tokens together

    2 x 4 B M D N     keys and values of the memory, and the gradient of their weights: none flows
                      into the memory
    2 x 2 R D N       the projected distances, and the gradient of their weights

For "xl" positions, dense attention and the plain feed-forward net.
"""

from txl_tf.configs.model import TransformerXLConfig


def inference(config: TransformerXLConfig, segment_len: int) -> float:
    """Returns the FLOPs of a token read in a segment of this length."""
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
    """Returns the FLOPs per token of an optimizer step on B rows of this length."""
    kernel = config.d_model * config.num_heads * config.head_dim
    distances = _num_distances(config, config.mem_len + segment_len)
    memory = 2 * 4 * batch_size * config.mem_len * kernel
    shared = config.num_layers * (memory + 2 * 2 * distances * kernel)
    return 3 * inference(config, segment_len) + shared / (batch_size * segment_len)


def _num_distances(config: TransformerXLConfig, num_keys: int) -> int:
    return num_keys if config.clamp_len is None else min(num_keys, config.clamp_len + 1)
