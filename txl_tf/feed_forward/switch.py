"""The Switch Transformer's feed-forward: one of several nets for each token."""

import math

import keras
import tensorflow as tf

from txl_tf.configs import layer_specs
from txl_tf.ops import dropout as dropouts
from txl_tf.ops.shapes import shape_of

_TILE = 128  # tokens, at most, that meet one expert at once where none is dropped


@keras.saving.register_keras_serializable(package="txl_tf")
class SwitchFeedForward(keras.layers.Layer):
    """Top-1 routing over E nets (arXiv 2101.03961): y = p_e relu(x W_e) V_e, e = argmax p.

    p = softmax(x R), in float32 whatever is computed in. In training an expert takes
    floor(g * capacity_factor / E) tokens of a group of g, at least 1, in time order; those after it
    get 0, so that the residual passes them unchanged. Outside of training nothing is dropped, so
    that results depend on no neighbour, unless `eval_capacity_factor` says so.

    A group of rows queues time step by time step, within one from the first row to the last: what
    becomes of a token depends on no later one, of whatever row.

        group="row"    a0 a1 a2 | b0 b1 b2        group="batch"    a0 b0 a1 b1 a2 b2

    The batch is what is computed at once: each replica's rows, and each part of them that gradients
    are accumulated over, are a group of their own, and so results depend on how rows are cut.

    Shapes: [B, T, D] -> [B, T, D], hidden width F. The caller drops the result. `real` [B, T] bool
    says which tokens are no pads, None that all are: pads take no place where there is a capacity,
    which yet is that of all g, and have no part in `routing`.

    Attributes:
      routing: of the last call, [3] float32: the auxiliary loss, the share of tokens dropped, and
        how evenly a group uses the experts: the entropy of their shares over that of equal ones.

    Args:
      spec: a `configs.layer_specs.Switch`.
      d_model: D.
      d_inner: F.
      dropout: rate after the activation, where the spec has no other.
      site: its dropout site; see `ops.dropout`.
      init_std: standard deviation of the router's initializer; the experts' is
        (0.1 / fan-in)^0.5.
    """

    ROUTES = True

    def __init__(self, spec, *, d_model, d_inner, dropout=0.0, site=0, init_std=0.02, **kwargs):
        super().__init__(**kwargs)
        self.spec = spec
        self.d_model = d_model
        self.d_inner = d_inner
        self.dropout = dropout
        self.site = site
        self.init_std = init_std
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
        deviation = (0.1 / shape[1]) ** 0.5  # the paper's: a small start is a stable one
        return self.add_weight(
            shape, keras.initializers.TruncatedNormal(stddev=deviation), name=name
        )

    def call(self, x, *, dropout_key=None, real=None):
        seen = self._grouped(self._jittered(tf.cast(x, tf.float32), dropout_key))
        tokens = self._grouped(x)  # [G, g, D]
        groups, size, _ = shape_of(tokens)
        logits = tf.matmul(tf.reshape(seen, [-1, self.d_model]), self.router_kernel)
        logits = tf.reshape(logits, [groups, size, self.spec.experts])  # [G, g, E]
        chances = tf.nn.softmax(logits)
        expert = tf.argmax(chances, axis=-1, output_type=tf.int32)  # [G, g]
        wanted = tf.one_hot(expert, self.spec.experts)  # [G, g, E]
        real = tf.ones(shape_of(x)[:2], tf.bool) if real is None else real
        real = self._grouped(real[..., tf.newaxis])[..., 0]  # [G, g]
        spec = self.spec
        factor = spec.eval_capacity_factor if dropout_key is None else spec.capacity_factor
        if factor is None:
            found, kept = self._all(tokens, wanted, expert), tf.ones_like(expert, tf.bool)
        else:
            capacity = self._capacity(size, factor)
            place = _places(tf.where(real[..., tf.newaxis], wanted, 0.0))
            kept = (place < capacity) & real
            ways = {"gather": self._gathered, "einsum": self._multiplied}
            found = ways[self.spec.dispatch](tokens, expert, place, kept, capacity, dropout_key)
        gate = tf.reduce_sum(chances * wanted, axis=-1)  # [G, g]; not the maximum, which is of ties
        gate *= tf.cast(kept, tf.float32)
        self.routing = self._routing(logits, chances, wanted, kept, tf.cast(real, tf.float32))
        return self._ungrouped(found * tf.cast(gate, x.dtype)[..., tf.newaxis], x)

    def _grouped(self, x):
        """Tokens as their groups queue. [B, T, D] -> [G, g, D]."""
        if self.spec.group == "row":
            return x
        return tf.reshape(tf.transpose(x, [1, 0, 2]), [1, -1, x.shape[2]])  # time first

    def _ungrouped(self, found, x):
        """The inverse: in the order of `x`. [G, g, D] -> [B, T, D]."""
        if self.spec.group == "row":
            return found
        rows, length, width = shape_of(x)
        return tf.transpose(tf.reshape(found, [length, rows, width]), [1, 0, 2])

    def _jittered(self, x, dropout_key):
        if dropout_key is None or not self.spec.jitter:
            return x
        key = dropout_key.fold_in(self.site)  # not that of dropout here
        return x * (
            1.0 + self.spec.jitter * (2.0 * dropouts.uniform(shape_of(x), key, self.site) - 1.0)
        )

    def _capacity(self, size, factor):
        if isinstance(size, int):
            return min(max(math.floor(size * factor / self.spec.experts), 1), size)
        whole = tf.cast(size, tf.float32)
        found = tf.floor(whole * factor / self.spec.experts)
        # At most all before the cast: a float beyond int32 would become anything.
        found = tf.cast(tf.minimum(found, whole), tf.int32)
        return tf.minimum(tf.maximum(found, 1), size)

    def run_experts(self, x, dropout_key=None):
        """Each expert's net on its own tokens. [G, E, C, D] -> the same."""
        groups, experts, capacity, width = shape_of(x)
        x = tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [experts, -1, width])  # [E, G * C, D]
        hidden = tf.nn.relu(tf.matmul(x, self.inner_kernel))
        if dropout_key is not None:
            hidden = tf.reshape(hidden, [experts, groups, capacity, self.d_inner])
            rate = self.dropout if self.spec.expert_dropout is None else self.spec.expert_dropout
            hidden = dropouts.dropout(
                tf.transpose(hidden, [1, 0, 2, 3]),  # groups first: each draws its own,
                rate,
                dropout_key._replace(rows=dropout_key.rows[:groups]),  # by its first row
                self.site,
            )
            hidden = tf.reshape(tf.transpose(hidden, [1, 0, 2, 3]), [experts, -1, self.d_inner])
        found = tf.reshape(tf.matmul(hidden, self.outer_kernel), [experts, groups, capacity, width])
        return tf.transpose(found, [1, 0, 2, 3])

    def _gathered(self, tokens, expert, place, kept, capacity, dropout_key):
        groups, size, width = shape_of(tokens)
        slots = self.spec.experts * capacity
        slot = tf.where(kept, expert * capacity + place, slots)  # [G, g]; the last holds the others
        numbers = tf.broadcast_to(tf.range(1, size + 1), [groups, size])
        flat = slot + tf.range(groups)[:, tf.newaxis] * (slots + 1)
        source = tf.scatter_nd(  # of each slot, the token from 1 on; 0 where it is empty
            tf.reshape(flat, [-1, 1]), tf.reshape(numbers, [-1]), [groups * (slots + 1)]
        )
        source = tf.reshape(source, [groups, slots + 1])[:, :slots]
        padded = tf.pad(tokens, [[0, 0], [1, 0], [0, 0]])
        taken = tf.gather(padded, source, batch_dims=1)  # [G, E * C, D]
        found = self.run_experts(
            tf.reshape(taken, [groups, self.spec.experts, capacity, width]), dropout_key
        )
        found = tf.pad(tf.reshape(found, [groups, slots, width]), [[0, 0], [0, 1], [0, 0]])
        return tf.gather(found, slot, batch_dims=1)

    def _multiplied(self, tokens, expert, place, kept, capacity, dropout_key):
        groups, _, width = shape_of(tokens)
        slots = self.spec.experts * capacity
        slot = tf.where(kept, expert * capacity + place, -1)
        dispatch = tf.one_hot(slot, slots, dtype=tokens.dtype)  # [G, g, E * C]; -1 is all zeros
        taken = tf.matmul(dispatch, tokens, transpose_a=True)
        found = self.run_experts(
            tf.reshape(taken, [groups, self.spec.experts, capacity, width]), dropout_key
        )
        return tf.matmul(dispatch, tf.reshape(found, [groups, slots, width]))

    def _all(self, tokens, wanted, expert):
        """What every token's expert makes of it: none is dropped. [G, g, D] -> the same.

        Tokens are sorted by expert, each expert's filled up to whole tiles; a tile meets one
        expert's weights. So all costs what a plain net does, and at most E tiles more, and shapes
        do not depend on the choices.
        """
        groups, size, width = shape_of(tokens)
        flat = tf.reshape(tokens, [-1, width])  # [N, D]
        count = shape_of(flat)[0]
        expert = tf.reshape(expert, [-1])
        tile = self._tile(count)
        if tile == 1:  # few tokens: each fetches its expert
            found = self._tiles(flat[:, tf.newaxis], expert)
            return tf.reshape(found, [groups, size, width])
        wanted = tf.reshape(wanted, [-1, self.spec.experts])  # [N, E]
        load = tf.cast(tf.reduce_sum(wanted, axis=0), tf.int32)  # [E]
        tiles = (load + tile - 1) // tile
        ends = tf.cumsum(tiles)  # [E], in tiles
        slot = tf.gather((ends - tiles) * tile, expert) + _places(wanted)  # [N]
        number = -(-count // tile) + self.spec.experts
        source = tf.scatter_nd(slot[:, tf.newaxis], tf.range(1, count + 1), [number * tile])
        taken = tf.gather(tf.pad(flat, [[1, 0], [0, 0]]), source)
        of_tile = tf.reduce_sum(
            tf.cast(tf.range(number)[:, tf.newaxis] >= ends, tf.int32), axis=1
        )  # [tiles]; those that are left over go to the last
        of_tile = tf.minimum(of_tile, self.spec.experts - 1)
        found = self._tiles(tf.reshape(taken, [number, tile, width]), of_tile)
        found = tf.gather(tf.reshape(found, [number * tile, width]), slot)
        return tf.reshape(found, [groups, size, width])

    def _tile(self, count):
        if not isinstance(count, int):
            return _TILE
        if count <= self.spec.experts:
            return 1
        return min(max(2 ** int(math.log2(count / self.spec.experts)), 8), _TILE)

    def _tiles(self, x, expert):
        """Tiles, each by one expert. [n, c, D], [n] int32 -> [n, c, D]."""
        inner = tf.gather(tf.convert_to_tensor(self.inner_kernel), expert)
        outer = tf.gather(tf.convert_to_tensor(self.outer_kernel), expert)
        return tf.matmul(tf.nn.relu(tf.matmul(x, inner)), outer)

    def _routing(self, logits, chances, wanted, kept, real):
        def mean(x):  # over the real tokens of each group, [G, g, E] -> [G, E]
            return tf.math.divide_no_nan(
                tf.reduce_sum(x * real[..., tf.newaxis], axis=1), counts[:, tf.newaxis]
            )

        def total(x, weights):  # over all, by weight
            return tf.math.divide_no_nan(tf.reduce_sum(x * weights), tf.reduce_sum(weights))

        counts = tf.reduce_sum(real, axis=1)  # [G]
        shares = tf.stop_gradient(mean(wanted))  # f, [G, E]
        balance = self.spec.experts * total(tf.reduce_sum(shares * mean(chances), axis=1), counts)
        z = total(tf.square(tf.reduce_logsumexp(logits, axis=-1)), real)
        entropies = -tf.reduce_sum(tf.math.xlogy(shares, shares), axis=1)  # [G]
        entropy = total(entropies, counts) / math.log(max(self.spec.experts, 2))
        dropped = total(1.0 - tf.cast(kept, tf.float32), real)
        return tf.stack([self.spec.balance_loss * balance + self.spec.z_loss * z, dropped, entropy])

    def get_config(self):
        own = ("d_model", "d_inner", "dropout", "site", "init_std")
        fields = {name: getattr(self, name) for name in own}
        return super().get_config() | fields | {"spec": str(self.spec)}

    @classmethod
    def from_config(cls, config):
        spec = layer_specs.parse(layer_specs.FEED_FORWARD, config["spec"])
        return cls(**{**config, "spec": spec})


def _places(wanted):
    """How many tokens before it want the same expert as a token. [..., N, E] -> [..., N] int32."""
    wanted = tf.cast(wanted, tf.int32)
    return tf.reduce_sum(tf.cumsum(wanted, axis=-2) * wanted, axis=-1) - 1
