"""A window of blocks, blocks that all see, and a few blocks at random."""

import keras
import tensorflow as tf

from txl_tf.attention.base import scaled, without_pads
from txl_tf.attention.dense import DenseAttention
from txl_tf.ops import block_layout, relative_position, stateless_random
from txl_tf.ops.shapes import larger, shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class BigBirdAttention(DenseAttention):
    """Big Bird's block-sparse attention (arXiv 2007.14062, "ITC"), at a cost linear in length.

    Tokens go in n blocks of b; the last may be short. A token sees its own block and the two beside
    it, the first and the last block, and r more, drawn for each block and head; tokens of the first
    and the last block see all. Distances have a part in scores of the window alone: what is seen
    from anywhere has none. A text of fewer than r + 5 blocks, which leave none to draw from, is
    attended to densely.

    Which blocks are drawn follows from `seed`, the layer and n alone. The reference's generators
    are others, and NumPy's: a model that comes from there brings its `table`. What a table names
    twice, or names though it is seen anyway, counts as often.

    For models that look ahead and have no memory: `configs.layer_specs.BigBird` says why. Contexts
    of pads are 0.

    Options: those of `configs.layer_specs.BigBird`.
    """

    def random_blocks(self, num_heads, num_blocks):
        """Numbers of the chosen blocks, [H, n - 2, r] int32; equal for equal arguments."""
        if self.spec.table is not None:
            return tf.constant(self.spec.table, tf.int32)
        draw = stateless_random.bits(
            [self.spec.seed, self.site], num_heads * (num_blocks - 2) * num_blocks
        )
        draw = tf.reshape(draw, [num_heads, num_blocks - 2, num_blocks])
        draw = tf.cast(tf.bitwise.right_shift(draw, tf.constant(1, tf.uint32)), tf.int32)
        row = tf.range(1, num_blocks - 1)[:, tf.newaxis]
        column = tf.range(num_blocks)
        seen = (tf.abs(row - column) <= 1) | (column == 0) | (column == num_blocks - 1)
        return tf.math.top_k(tf.where(seen, -1, draw), self.spec.random).indices

    def call(
        self,
        content_query,
        position_query,
        keys,
        values,
        encodings,
        *,
        visibility,
        dropout_key=None,
    ):
        arrays = content_query, position_query, keys, values, encodings
        rules = dict(visibility=visibility, dropout_key=dropout_key)
        num_tokens = shape_of(keys)[2]
        num_blocks = -(-num_tokens // self.spec.block)
        if self.spec.table is not None and isinstance(num_blocks, int):
            self._check_table(num_blocks, num_tokens)

        def short():
            return self._dense(*arrays, num_tokens=num_tokens, **rules)

        def long():
            return self._sparse(*arrays, num_blocks=num_blocks, **rules)

        is_short = self.spec.table is None and num_blocks < self.spec.random + 5
        if tf.is_tensor(is_short):
            attended = tf.cond(is_short, short, long)
        else:
            attended = short() if is_short else long()
        return without_pads(attended, visibility)

    def _check_table(self, num_blocks, num_tokens):
        wanted = len(self.spec.table[0]) + 2
        if num_blocks != wanted:
            raise ValueError(
                f"bigbird's table is of {wanted} blocks of {self.spec.block} tokens, "
                f"got {num_tokens} tokens"
            )

    def _dense(self, *arrays, num_tokens, **rules):
        *by_head, encodings = arrays
        if encodings is not None:  # as many as there are, also where nobody knows how many
            later = relative_position.num_negative_distances(encodings)
            encodings = relative_position.resized(encodings, later, num_tokens, num_tokens - 1)
        return super().call(*by_head, encodings, **rules)

    def _sparse(
        self,
        content_query,
        position_query,
        keys,
        values,
        encodings,
        *,
        visibility,
        dropout_key,
        num_blocks,
    ):
        block, num_tokens = self.spec.block, shape_of(keys)[2]
        scale = content_query.shape[-1] ** -0.5
        if self.spec.table is None:
            num_blocks = larger(num_blocks, self.spec.random + 5)
        end = (num_blocks - 1) * block  # where the last block begins
        behind = [0, end + block - num_tokens]
        real = visibility.real_tokens(num_tokens)
        real = tf.ones_like(keys[:, 0, :, 0], tf.bool) if real is None else real
        real = tf.pad(real, [[0, 0], behind])  # [B, n * b]
        content_query, position_query, keys, values = (
            tf.pad(x, [[0, 0], [0, 0], behind, [0, 0]])  # [B, H, n * b, K]
            for x in (scaled(content_query, scale), scaled(position_query, scale), keys, values)
        )
        at_ends = [_ends(x, end, block) for x in (content_query, keys, values, real)]
        part = None if dropout_key is None else dropout_key.fold_in(0)
        outer = self._outer(at_ends[0], keys, values, real, part)
        queries = (x[:, :, block:end] for x in (content_query, position_query))
        inner = self._inner(*queries, keys, values, encodings, real, at_ends[1:], dropout_key)
        attended = [outer[:, :, :block], inner, outer[:, :, block:]]
        return tf.concat(attended, axis=2)[:, :, :num_tokens]

    def _outer(self, query, keys, values, real, dropout_key):
        """Contexts of the first and the last block, which see all. [B, H, 2 * b, K] -> the same."""
        scores = tf.cast(tf.matmul(query, keys, transpose_b=True), tf.float32)
        weights = self.softmax(scores, real[:, tf.newaxis, tf.newaxis])  # [B, H, 2 * b, n * b]
        weights = tf.cast(self.drop(weights, dropout_key), values.dtype)
        return tf.matmul(weights, values)

    def _inner(
        self, content_query, position_query, keys, values, encodings, real, at_ends, dropout_key
    ):
        """Contexts of the blocks between them. [B, H, (n - 2) * b, K] -> the same."""
        rows, num_heads, num_queries, _ = shape_of(content_query)
        block = self.spec.block
        inside, near, met = num_queries // block, 3 * block, (3 + self.spec.random) * block
        end_keys, end_values, end_real = at_ends
        table = self.random_blocks(num_heads, inside + 2)

        def by_block(x):  # [B, H, (n - 2) * b, c] -> [B * H, n - 2, b, c], for products
            return tf.reshape(x, [rows * num_heads, inside, block, shape_of(x)[-1]])

        def by_head(x):  # any of these -> [B, H, n - 2, b, c]
            return tf.reshape(x, [rows, num_heads, inside, block, shape_of(x)[-1]])

        found = tf.matmul(by_block(content_query), _met(keys, table, block), transpose_b=True)
        found = tf.cast(by_head(found), tf.float32)  # [B, H, n - 2, b, (3 + r) * b]
        of_window = found[..., :near]
        if encodings is not None:
            later, earlier = 2 * block - 1, 2 * block
            beyond = relative_position.num_negative_distances(encodings)
            encodings = relative_position.resized(encodings, beyond, earlier, later)
            placed = relative_position.scores_in_blocks(position_query, encodings, block, near)
            of_window += by_head(placed)
        of_ends = by_head(tf.matmul(content_query, end_keys, transpose_b=True))
        of_ends = tf.cast(of_ends, tf.float32)  # [B, H, n - 2, b, 2 * b]
        scores = tf.concat([of_window, found[..., near:], of_ends], axis=-1)

        weights = self.softmax(scores, self._visible(real, end_real, table))
        weights = tf.cast(self.drop(weights, dropout_key), values.dtype)
        attended = tf.matmul(by_block(weights[..., :met]), _met(values, table, block))
        attended = tf.reshape(attended, shape_of(content_query))
        of_ends = tf.reshape(weights[..., met:], [rows, num_heads, num_queries, 2 * block])
        return attended + tf.matmul(of_ends, end_values)

    def _visible(self, real, end_real, table):
        """Which keys of `_inner`'s scores there are. -> [B, H, n - 2, 1, (5 + r) * b] bool"""
        num_heads, inside, _ = shape_of(table)
        row = tf.range(1, inside + 1)[:, tf.newaxis]
        number = row + tf.range(-1, 2)  # of the window's blocks, [n - 2, 3]
        is_end = (number == 0) | (number == inside + 1)  # seen with the ends, not once more
        block = self.spec.block
        near = tf.repeat(~is_end, block, axis=1)
        near = tf.pad(near, [[0, 0], [0, self.spec.random * block]], constant_values=True)
        by_head = tf.repeat(real[:, tf.newaxis, :, tf.newaxis], num_heads, axis=1)
        met = _met(tf.cast(by_head, tf.float32), table, block) > 0
        met = tf.reshape(met, [-1, num_heads, inside, 1, shape_of(near)[1]])
        ends = end_real[:, tf.newaxis, tf.newaxis, tf.newaxis]
        shape = [*shape_of(met)[:4], 2 * block]
        return tf.concat([met & near[:, tf.newaxis], tf.broadcast_to(ends, shape)], axis=-1)


def _ends(x, end, block):
    """The first and the last block, which begins at `end`. [..., n * b, c] -> [..., 2 * b, c]"""
    axis = min(len(x.shape) - 1, 2)
    before = (slice(None),) * axis
    return tf.concat([x[(*before, slice(block))], x[(*before, slice(end, None))]], axis)


def _met(x, table, block):
    """Of each block but the first and the last, the three around it and the chosen ones.

    Shapes: x [B, H, n * b, K], table [H, n - 2, r] -> [B * H, n - 2, (3 + r) * b, K].
    """
    rows, num_heads, _, width = shape_of(x)
    _, inside, random = shape_of(table)
    x = tf.reshape(x, [rows * num_heads, (inside + 2) * block, width])
    window = block_layout.windows(x, block, 3)
    whole = tf.reshape(x, [rows * num_heads, inside + 2, block * width])
    places = tf.tile(tf.reshape(table, [num_heads, inside * random]), [rows, 1])
    chosen = tf.gather(whole, places, batch_dims=1)  # [B * H, (n - 2) * r, b * K]
    chosen = tf.reshape(chosen, [rows * num_heads, inside, random * block, width])
    return tf.concat([window, chosen], axis=2)
