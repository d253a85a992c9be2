"""Switch Transformer: mixture of feed-forward experts with top-1 routing."""

import math

import keras
import tensorflow as tf

from txl_tf.feed_forward.base import FeedForward
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of

_TILE = 128  # maximum number of tokens in a tile, which one expert processes, without capacity


@keras.saving.register_keras_serializable(package="txl_tf")
class SwitchFeedForward(FeedForward):
    """Top-1 routing over E nets (arXiv 2101.03961): y = p_e relu(x W_e) V_e, e = argmax p.

    p = softmax(x R), in float32 under any policy. In training an expert takes
    floor(g * capacity_factor / E) tokens of a group of g, at least 1, in time order; the overflow
    gets 0, so that the residual passes it unchanged. Outside of training no token is dropped, so
    that results do not depend on other rows, unless `eval_capacity_factor` is set.

    A group of rows queues time step by time step, within a step from the first row to the last: the
    result of a token depends on no later token of any row.

        group="row"    a0 a1 a2 | b0 b1 b2        group="batch"    a0 b0 a1 b1 a2 b2

    "batch" means the rows computed at once: each replica's rows, and each part of them in gradient
    accumulation, form a separate group, so results depend on how rows are split.

    Shapes: [B, T, D] -> [B, T, D], hidden width F. The caller applies dropout to the result. `real`
    [B, T] bool is the mask of real tokens, None is all: padding takes no capacity, which is still
    that of all g tokens, and is excluded from `routing`.

    Attributes:
      routing: [3] float32 of the last call: the auxiliary loss, the fraction of tokens dropped, and
        the entropy of the experts' shares in a group, divided by that of equal shares.

    Arguments: those of `FeedForward`; `dropout` counts where the spec has no `expert_dropout`, and
    `init_std` is that of the router: that of the experts is (0.1 / fan-in)^0.5.
    """

    ROUTES = True

    def __init__(self, spec, **kwargs):
        super().__init__(spec, **kwargs)
        self.routing = None

    def build(self, input_shape):
        sizes = self.spec.experts, self.d_model, self.d_inner
        self.router_kernel = self.add_weight(
            (self.d_model, self.spec.experts),
            keras.initializers.RandomNormal(stddev=self.init_std),
            name="router_kernel",
            autocast=False,
        )
        self.inner_kernel = self._kernel("inner_kernel", sizes)
        self.outer_kernel = self._kernel("outer_kernel", (sizes[0], sizes[2], sizes[1]))

    def _kernel(self, name, shape):
        deviation = (0.1 / shape[1]) ** 0.5  # the paper's, for stability
        return self.add_weight(
            shape, keras.initializers.TruncatedNormal(stddev=deviation), name=name
        )

    def call(self, x, *, dropout_key=None, real=None):
        router_input = self._grouped(self._jittered(tf.cast(x, tf.float32), dropout_key))
        tokens = self._grouped(x)  # [G, g, D]
        groups, size, _ = shape_of(tokens)
        logits = tf.matmul(tf.reshape(router_input, [-1, self.d_model]), self.router_kernel)
        logits = tf.reshape(logits, [groups, size, self.spec.experts])  # [G, g, E]
        probs = tf.nn.softmax(logits)
        expert = tf.argmax(probs, axis=-1, output_type=tf.int32)  # [G, g]
        assigned = tf.one_hot(expert, self.spec.experts)  # [G, g, E]
        real = tf.ones(shape_of(x)[:2], tf.bool) if real is None else real
        real = self._grouped(real[..., tf.newaxis])[..., 0]  # [G, g]
        spec = self.spec
        factor = spec.eval_capacity_factor if dropout_key is None else spec.capacity_factor
        if factor is None:
            output = self._run_all(tokens, assigned, expert)
            kept = tf.ones_like(expert, tf.bool)
        else:
            capacity = self._capacity(size, factor)
            position = _queue_positions(tf.where(real[..., tf.newaxis], assigned, 0.0))
            kept = (position < capacity) & real
            dispatch = {"gather": self._dispatch_gather, "einsum": self._dispatch_einsum}
            run = dispatch[self.spec.dispatch]
            output = run(tokens, expert, position, kept, capacity, dropout_key)
        # Not reduce_max, which would split the gradient between ties.
        gate = tf.reduce_sum(probs * assigned, axis=-1)  # [G, g]
        gate *= tf.cast(kept, tf.float32)
        self.routing = self._routing(logits, probs, assigned, kept, tf.cast(real, tf.float32))
        return self._ungrouped(output * tf.cast(gate, x.dtype)[..., tf.newaxis], x)

    def _grouped(self, x):
        """Returns tokens by group, in the order of their queue. [B, T, D] -> [G, g, D]."""
        if self.spec.group == "row":
            return x
        return tf.reshape(tf.transpose(x, [1, 0, 2]), [1, -1, x.shape[2]])  # time first

    def _ungrouped(self, output, x):
        """Inverse of `_grouped`, with the shape of `x`. [G, g, D] -> [B, T, D]."""
        if self.spec.group == "row":
            return output
        rows, length, width = shape_of(x)
        return tf.transpose(tf.reshape(output, [length, rows, width]), [1, 0, 2])

    def _jittered(self, x, dropout_key):
        if dropout_key is None or not self.spec.jitter:
            return x
        key = dropout_key.fold_in(self.site)  # independent of dropout at this site
        return x * (
            1.0 + self.spec.jitter * (2.0 * dropouts.uniform(shape_of(x), key, self.site) - 1.0)
        )

    def _capacity(self, size, factor):
        if isinstance(size, int):
            return min(max(math.floor(size * factor / self.spec.experts), 1), size)
        whole = tf.cast(size, tf.float32)
        capacity = tf.floor(whole * factor / self.spec.experts)
        # Clipped before the cast: casting a float beyond int32 is undefined.
        capacity = tf.cast(tf.minimum(capacity, whole), tf.int32)
        return tf.minimum(tf.maximum(capacity, 1), size)

    def run_experts(self, x, dropout_key=None):
        """Runs each expert on its own tokens. [G, E, C, D] -> the same."""
        groups, experts, capacity, width = shape_of(x)
        x = tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [experts, -1, width])  # [E, G * C, D]
        hidden = tf.nn.relu(tf.matmul(x, self.inner_kernel))
        if dropout_key is not None:
            hidden = tf.reshape(hidden, [experts, groups, capacity, self.d_inner])
            rate = self.dropout if self.spec.expert_dropout is None else self.spec.expert_dropout
            hidden = dropouts.dropout(
                tf.transpose(hidden, [1, 0, 2, 3]),  # groups first: each draws its own mask,
                rate,
                dropout_key._replace(rows=dropout_key.rows[:groups]),  # keyed by its first row
                self.site,
            )
            hidden = tf.reshape(tf.transpose(hidden, [1, 0, 2, 3]), [experts, -1, self.d_inner])
        output = tf.matmul(hidden, self.outer_kernel)
        output = tf.reshape(output, [experts, groups, capacity, width])
        return tf.transpose(output, [1, 0, 2, 3])

    def _dispatch_gather(self, tokens, expert, position, kept, capacity, dropout_key):
        groups, size, width = shape_of(tokens)
        slots = self.spec.experts * capacity
        slot = tf.where(kept, expert * capacity + position, slots)  # [G, g]; the last is overflow
        numbers = tf.broadcast_to(tf.range(1, size + 1), [groups, size])
        flat = slot + tf.range(groups)[:, tf.newaxis] * (slots + 1)
        source = tf.scatter_nd(  # token of each slot, counted from 1; 0 is empty
            tf.reshape(flat, [-1, 1]), tf.reshape(numbers, [-1]), [groups * (slots + 1)]
        )
        source = tf.reshape(source, [groups, slots + 1])[:, :slots]
        padded = tf.pad(tokens, [[0, 0], [1, 0], [0, 0]])
        inputs = tf.gather(padded, source, batch_dims=1)  # [G, E * C, D]
        outputs = self.run_experts(
            tf.reshape(inputs, [groups, self.spec.experts, capacity, width]), dropout_key
        )
        outputs = tf.pad(tf.reshape(outputs, [groups, slots, width]), [[0, 0], [0, 1], [0, 0]])
        return tf.gather(outputs, slot, batch_dims=1)

    def _dispatch_einsum(self, tokens, expert, position, kept, capacity, dropout_key):
        groups, _, width = shape_of(tokens)
        slots = self.spec.experts * capacity
        slot = tf.where(kept, expert * capacity + position, -1)
        dispatch = tf.one_hot(slot, slots, dtype=tokens.dtype)  # [G, g, E * C]; -1 is all zeros
        inputs = tf.matmul(dispatch, tokens, transpose_a=True)
        outputs = self.run_experts(
            tf.reshape(inputs, [groups, self.spec.experts, capacity, width]), dropout_key
        )
        return tf.matmul(dispatch, tf.reshape(outputs, [groups, slots, width]))

    def _run_all(self, tokens, assigned, expert):
        """Runs every token through its expert, dropping none. [G, g, D] -> the same.

        Tokens are sorted by expert and padded to whole tiles, each for one expert. So the cost is
        that of a dense net plus at most E tiles, and shapes do not depend on the routing.
        """
        groups, size, width = shape_of(tokens)
        flat = tf.reshape(tokens, [-1, width])  # [N, D]
        count = shape_of(flat)[0]
        expert = tf.reshape(expert, [-1])
        tile = self._tile(count)
        if tile == 1:  # few tokens: each gathers its expert's weights
            output = self._run_tiles(flat[:, tf.newaxis], expert)
            return tf.reshape(output, [groups, size, width])
        assigned = tf.reshape(assigned, [-1, self.spec.experts])  # [N, E]
        load = tf.cast(tf.reduce_sum(assigned, axis=0), tf.int32)  # [E]
        tiles = (load + tile - 1) // tile
        ends = tf.cumsum(tiles)  # [E], in tiles
        slot = tf.gather((ends - tiles) * tile, expert) + _queue_positions(assigned)  # [N]
        num_tiles = -(-count // tile) + self.spec.experts
        source = tf.scatter_nd(slot[:, tf.newaxis], tf.range(1, count + 1), [num_tiles * tile])
        inputs = tf.gather(tf.pad(flat, [[1, 0], [0, 0]]), source)
        tile_expert = tf.reduce_sum(
            tf.cast(tf.range(num_tiles)[:, tf.newaxis] >= ends, tf.int32), axis=1
        )  # [num_tiles]; unused tiles go to the last expert
        tile_expert = tf.minimum(tile_expert, self.spec.experts - 1)
        output = self._run_tiles(tf.reshape(inputs, [num_tiles, tile, width]), tile_expert)
        output = tf.gather(tf.reshape(output, [num_tiles * tile, width]), slot)
        return tf.reshape(output, [groups, size, width])

    def _tile(self, count):
        if not isinstance(count, int):
            return _TILE
        if count <= self.spec.experts:
            return 1
        return min(max(2 ** int(math.log2(count / self.spec.experts)), 8), _TILE)

    def _run_tiles(self, x, expert):
        """Runs each tile through one expert. [n, c, D], [n] int32 -> [n, c, D]."""
        inner = tf.gather(tf.convert_to_tensor(self.inner_kernel), expert)
        outer = tf.gather(tf.convert_to_tensor(self.outer_kernel), expert)
        return tf.matmul(tf.nn.relu(tf.matmul(x, inner)), outer)

    def _routing(self, logits, probs, assigned, kept, real):
        def mean(x):  # over the real tokens of each group, [G, g, E] -> [G, E]
            return tf.math.divide_no_nan(
                tf.reduce_sum(x * real[..., tf.newaxis], axis=1), counts[:, tf.newaxis]
            )

        def weighted_mean(x, weights):
            return tf.math.divide_no_nan(tf.reduce_sum(x * weights), tf.reduce_sum(weights))

        counts = tf.reduce_sum(real, axis=1)  # [G]
        shares = tf.stop_gradient(mean(assigned))  # f, [G, E]
        balance = self.spec.experts * weighted_mean(
            tf.reduce_sum(shares * mean(probs), axis=1), counts
        )
        z = weighted_mean(tf.square(tf.reduce_logsumexp(logits, axis=-1)), real)
        entropies = -tf.reduce_sum(tf.math.xlogy(shares, shares), axis=1)  # [G]
        entropy = weighted_mean(entropies, counts) / math.log(max(self.spec.experts, 2))
        dropped = weighted_mean(1.0 - tf.cast(kept, tf.float32), real)
        return tf.stack([self.spec.balance_loss * balance + self.spec.z_loss * z, dropped, entropy])


def _queue_positions(assigned):
    """Returns each token's position in its expert's queue. [..., N, E] -> [..., N] int32."""
    assigned = tf.cast(assigned, tf.int32)
    return tf.reduce_sum(tf.cumsum(assigned, axis=-2) * assigned, axis=-1) - 1
