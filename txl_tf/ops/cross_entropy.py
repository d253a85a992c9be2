"""Cross entropy, also within a cluster of the vocabulary for that cluster's targets alone."""

import functools

import tensorflow as tf

from txl_tf.ops.shapes import shape_of

_CHUNK = 256  # tokens a chunk: enough to amortise reading a table, few enough to fit in memory


def linear(hidden, table, bias):
    """Computes hidden . table^T + bias: the matmul in hidden's dtype, the rest in float32.

    Shapes: hidden [N, e], table [n, e], bias [n] -> [N, n] float32.
    """
    logits = tf.matmul(hidden, tf.cast(table, hidden.dtype), transpose_b=True)
    return tf.cast(logits, tf.float32) + tf.cast(bias, tf.float32)


def cross_entropy(logits, targets):
    """Returns the loss of each target in nats, 0 where the target is -1.

    Shapes: logits [N, n] float32, targets [N] int32 -> [N] float32.
    """
    ignored = targets == -1
    labels = tf.where(ignored, 0, targets)
    nats = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.where(ignored, 0.0, nats)


def cluster_cross_entropy(hidden, table, bias, targets, chunk=_CHUNK):
    """Computes `cross_entropy` of `linear` logits at no cost for tokens whose target is -1.

    The other tokens are processed in chunks. So shapes are static whatever the targets, no token
    is dropped, and [N, n] is never materialised. The gradient is a second such loop that recomputes
    the logits: XLA cannot differentiate a loop with a data-dependent number of steps.

    Shapes:
      hidden: [N, e] in the compute dtype.
      table: [n, e] float32, the cluster's words; its gradient is summed in float32.
      bias: [n] float32.
      targets: [N] int32, indices within the cluster, or -1.
      returns [N] float32.
    """
    chunks = Chunks(tf.stop_gradient(targets), chunk)

    @tf.custom_gradient
    def loss(hidden, table, bias):
        weights = tf.cast(table, hidden.dtype)  # once, not in every chunk

        def add_loss(rows, labels, nats):
            new = cross_entropy(linear(tf.gather(hidden, rows), weights, bias), labels)
            return (tf.tensor_scatter_nd_add(nats, rows[:, tf.newaxis], new),)

        def add_gradients(upstream, rows, labels, d_hidden, d_table, d_bias):
            sources = tf.gather(hidden, rows), weights, bias
            with tf.GradientTape() as tape:
                tape.watch(sources)
                nats = cross_entropy(linear(*sources), labels)
            d_rows, d_weights, d_b = tape.gradient(nats, sources, tf.gather(upstream, rows))
            d_hidden = tf.tensor_scatter_nd_add(d_hidden, rows[:, tf.newaxis], d_rows)
            return d_hidden, d_table + tf.cast(d_weights, table.dtype), d_bias + d_b

        def gradient(upstream):
            zeros = [tf.zeros_like(source) for source in (hidden, table, bias)]
            return chunks.fold(functools.partial(add_gradients, upstream), *zeros)

        (nats,) = chunks.fold(add_loss, tf.zeros_like(targets, tf.float32))
        return nats, gradient

    return loss(*map(tf.convert_to_tensor, (hidden, table, bias)))  # it may not capture variables


class Chunks:
    """Tokens whose target is not -1, in chunks of one size.

    Tokens are sorted with these first; the last chunk overlaps the one before it rather than run
    past the end. In chunks of 4, with . for ignored tokens and - for those done before:

        sorted tokens   a b c d e f . .        a b c d e f g
        chunk 0         a b c d                a b c d
        chunk 1                 e f . .              - e f g
    """

    def __init__(self, targets, size):
        """Shapes: targets [N] int32."""
        (tokens,) = shape_of(targets)
        scored = tf.cast(targets != -1, tf.int32)
        self.targets = targets
        self.count = tf.reduce_sum(scored)
        self.order = tf.argsort(scored, direction="DESCENDING")  # [N] token indices
        self.size = min(size, tokens) if isinstance(tokens, int) else tf.minimum(size, tokens)
        self.last_start = tokens - self.size

    def fold(self, add, *totals):
        """Returns the totals after `totals = add(rows, labels, *totals)` for every chunk.

        rows are token indices [size], labels their targets, or -1 where nothing is to be added.
        """

        def step(offset, *totals):
            start = tf.minimum(offset, self.last_start)
            rows = tf.slice(self.order, [start], [self.size])
            done = start + tf.range(self.size) < offset
            labels = tf.where(done, -1, tf.gather(self.targets, rows))
            return offset + self.size, *add(rows, labels, *totals)

        def unfinished(offset, *_):
            return offset < self.count

        # One chunk at a time: several at once would hold the logits of all of them.
        return tf.while_loop(unfinished, step, (0, *totals), parallel_iterations=1)[1:]
