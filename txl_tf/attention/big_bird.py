"""Big Bird: block-sparse attention with window, global and random blocks."""

import keras
import tensorflow as tf

from txl_tf.attention.base import scaled, zero_padding
from txl_tf.attention.dense import DenseAttention
from txl_tf.ops import block_layout, relative_position, stateless_random
from txl_tf.ops.shapes import larger, shape_of


@keras.saving.register_keras_serializable(package="txl_tf")
class BigBirdAttention(DenseAttention):
    """Big Bird's block-sparse attention (arXiv 2007.14062, "ITC"), at a cost linear in length.

    Tokens are split into n blocks of b; the last may be short. A token sees its own block and its
    two neighbours, the first and the last block, and r random blocks, drawn for each block and
    head; tokens of the first and the last block see all. Only scores of the window use distances.
    A text of fewer than r + 5 blocks, too few to draw from, is attended to densely.

    The random blocks are a function of `seed`, the layer and n. The reference draws with NumPy, so
    a model imported from it brings its `table`. A block named twice, or visible anyway, is counted
    each time.

    For bidirectional models without memory; see `configs.layer_specs.BigBird`. Outputs of padding
    are 0.

    Options: those of `configs.layer_specs.BigBird`.
    """

    def random_blocks(self, num_heads, num_blocks):
        """Returns the indices of the random blocks, [H, n - 2, r] int32; deterministic."""
        if self.spec.table is not None:
            return tf.constant(self.spec.table, tf.int32)
        draw = stateless_random.bits(
            [self.spec.seed, self.site], num_heads * (num_blocks - 2) * num_blocks
        )
        draw = tf.reshape(draw, [num_heads, num_blocks - 2, num_blocks])
        draw = tf.cast(tf.bitwise.right_shift(draw, tf.constant(1, tf.uint32)), tf.int32)
        row = tf.range(1, num_blocks - 1)[:, tf.newaxis]
        column = tf.range(num_blocks)
        visible = (tf.abs(row - column) <= 1) | (column == 0) | (column == num_blocks - 1)
        return tf.math.top_k(tf.where(visible, -1, draw), self.spec.random).indices

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
        options = dict(visibility=visibility, dropout_key=dropout_key)
        num_tokens = shape_of(keys)[2]
        num_blocks = -(-num_tokens // self.spec.block)
        if self.spec.table is not None and isinstance(num_blocks, int):
            self._check_table(num_blocks, num_tokens)

        def dense():
            return self._dense(*arrays, num_tokens=num_tokens, **options)

        def sparse():
            return self._sparse(*arrays, num_blocks=num_blocks, **options)

        is_short = self.spec.table is None and num_blocks < self.spec.random + 5
        if tf.is_tensor(is_short):
            attended = tf.cond(is_short, dense, sparse)
        else:
            attended = dense() if is_short else sparse()
        return zero_padding(attended, visibility)

    def _check_table(self, num_blocks, num_tokens):
        expected = len(self.spec.table[0]) + 2
        if num_blocks != expected:
            raise ValueError(
                f"text must fill the {expected} blocks of {self.spec.block} tokens of bigbird's "
                f"table, got {num_tokens} tokens"
            )

    def _dense(self, *arrays, num_tokens, **options):
        *by_head, encodings = arrays
        if encodings is not None:  # all distances, also if T is dynamic
            later = relative_position.num_negative_distances(encodings)
            encodings = relative_position.resized(encodings, later, num_tokens, num_tokens - 1)
        return super().call(*by_head, encodings, **options)

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
        end = (num_blocks - 1) * block  # start of the last block
        padding = [0, end + block - num_tokens]
        real = visibility.real_tokens(num_tokens)
        real = tf.ones_like(keys[:, 0, :, 0], tf.bool) if real is None else real
        real = tf.pad(real, [[0, 0], padding])  # [B, n * b]
        content_query, position_query, keys, values = (
            tf.pad(x, [[0, 0], [0, 0], padding, [0, 0]])  # [B, H, n * b, K]
            for x in (scaled(content_query, scale), scaled(position_query, scale), keys, values)
        )
        ends = [_ends(x, end, block) for x in (content_query, keys, values, real)]
        outer_key = None if dropout_key is None else dropout_key.fold_in(0)
        outer = self._outer(ends[0], keys, values, real, outer_key)
        queries = (x[:, :, block:end] for x in (content_query, position_query))
        inner = self._inner(*queries, keys, values, encodings, real, ends[1:], dropout_key)
        attended = [outer[:, :, :block], inner, outer[:, :, block:]]
        return tf.concat(attended, axis=2)[:, :, :num_tokens]

    def _outer(self, query, keys, values, real, dropout_key):
        """Computes the outputs of the first and last block, which see all. [B, H, 2 * b, K]."""
        scores = tf.cast(tf.matmul(query, keys, transpose_b=True), tf.float32)
        weights = self.softmax(scores, real[:, tf.newaxis, tf.newaxis])  # [B, H, 2 * b, n * b]
        weights = tf.cast(self.drop(weights, dropout_key), values.dtype)
        return tf.matmul(weights, values)

    def _inner(
        self, content_query, position_query, keys, values, encodings, real, ends, dropout_key
    ):
        """Computes the outputs of the inner blocks. [B, H, (n - 2) * b, K] -> the same."""
        rows, num_heads, num_queries, _ = shape_of(content_query)
        block = self.spec.block
        inside, near, local = num_queries // block, 3 * block, (3 + self.spec.random) * block
        end_keys, end_values, end_real = ends
        table = self.random_blocks(num_heads, inside + 2)

        def by_block(x):  # [B, H, (n - 2) * b, c] -> [B * H, n - 2, b, c], for matmuls
            return tf.reshape(x, [rows * num_heads, inside, block, shape_of(x)[-1]])

        def by_head(x):  # any of these -> [B, H, n - 2, b, c]
            return tf.reshape(x, [rows, num_heads, inside, block, shape_of(x)[-1]])

        gathered = _gather_blocks(keys, table, block)
        content = tf.matmul(by_block(content_query), gathered, transpose_b=True)
        content = tf.cast(by_head(content), tf.float32)  # [B, H, n - 2, b, (3 + r) * b]
        window = content[..., :near]
        if encodings is not None:
            later, earlier = 2 * block - 1, 2 * block
            num_later = relative_position.num_negative_distances(encodings)
            encodings = relative_position.resized(encodings, num_later, earlier, later)
            position = relative_position.scores_in_blocks(position_query, encodings, block, near)
            window += by_head(position)
        end_scores = by_head(tf.matmul(content_query, end_keys, transpose_b=True))
        end_scores = tf.cast(end_scores, tf.float32)  # [B, H, n - 2, b, 2 * b]
        scores = tf.concat([window, content[..., near:], end_scores], axis=-1)

        weights = self.softmax(scores, self._visible(real, end_real, table))
        weights = tf.cast(self.drop(weights, dropout_key), values.dtype)
        gathered = _gather_blocks(values, table, block)
        attended = tf.matmul(by_block(weights[..., :local]), gathered)
        attended = tf.reshape(attended, shape_of(content_query))
        end_weights = tf.reshape(weights[..., local:], [rows, num_heads, num_queries, 2 * block])
        return attended + tf.matmul(end_weights, end_values)

    def _visible(self, real, end_real, table):
        """Returns the mask of `_inner`'s scores, [B, H, n - 2, 1, (5 + r) * b] bool."""
        num_heads, inside, _ = shape_of(table)
        row = tf.range(1, inside + 1)[:, tf.newaxis]
        index = row + tf.range(-1, 2)  # of the window's blocks, [n - 2, 3]
        is_end = (index == 0) | (index == inside + 1)  # visible with the ends, not twice
        block = self.spec.block
        near = tf.repeat(~is_end, block, axis=1)
        near = tf.pad(near, [[0, 0], [0, self.spec.random * block]], constant_values=True)
        by_head = tf.repeat(real[:, tf.newaxis, :, tf.newaxis], num_heads, axis=1)
        local = _gather_blocks(tf.cast(by_head, tf.float32), table, block) > 0
        local = tf.reshape(local, [-1, num_heads, inside, 1, shape_of(near)[1]])
        ends = end_real[:, tf.newaxis, tf.newaxis, tf.newaxis]
        shape = [*shape_of(local)[:4], 2 * block]
        return tf.concat([local & near[:, tf.newaxis], tf.broadcast_to(ends, shape)], axis=-1)


def _ends(x, end, block):
    """Returns the first block and the last, from `end` on. [..., n * b, c] -> [..., 2 * b, c]."""
    axis = min(len(x.shape) - 1, 2)
    before = (slice(None),) * axis
    return tf.concat([x[(*before, slice(block))], x[(*before, slice(end, None))]], axis)


def _gather_blocks(x, table, block):
    """Returns, for each inner block, its window of three blocks and its random blocks.

    Shapes: x [B, H, n * b, K], table [H, n - 2, r] -> [B * H, n - 2, (3 + r) * b, K].
    """
    rows, num_heads, _, width = shape_of(x)
    _, inside, random = shape_of(table)
    x = tf.reshape(x, [rows * num_heads, (inside + 2) * block, width])
    window = block_layout.windows(x, block, 3)
    blocks = tf.reshape(x, [rows * num_heads, inside + 2, block * width])
    indices = tf.tile(tf.reshape(table, [num_heads, inside * random]), [rows, 1])
    chosen = tf.gather(blocks, indices, batch_dims=1)  # [B * H, (n - 2) * r, b * K]
    chosen = tf.reshape(chosen, [rows * num_heads, inside, random * block, width])
    return tf.concat([window, chosen], axis=2)
