"""Routing attention: within clusters of similar tokens, beside heads with a sliding window."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.attention.base import AttentionCore, scaled
from txl_tf.attention.local import LocalAttention
from txl_tf.configs import layer_specs
from txl_tf.ops import attention_mask
from txl_tf.ops.shapes import shape_of, smaller

_OWN_SCORE = -5e4  # of a token with itself: counts only where it sees no other
_COUNT_EPSILON = 1e-5  # in the mean over a token's clusters, as in the reference
_LEVELS = 2.0**12  # of similarity, from 0 to 1, that selection tells apart


@keras.saving.register_keras_serializable(package="txl_tf")
class RoutingAttention(AttentionCore):
    """Routing Transformer (arXiv 2003.05997): online k-means clusters, at a cost of about n^1.5.

    The first heads are local, a `LocalAttention`. In the others a token's key is its query as well:
    x, of direction x / |x|. Each of C clusters takes the w tokens of memory and segment whose
    directions are nearest to its centroid, in order of position, and attends among them, causally:
    softmax of x_i . x_j / |x_j| / sqrt(K). A token sees itself only where it sees no other. Its
    output is the mean over the clusters that took it, and 0 if none did. Positions play no part.

    All tokens of a call compete for the clusters, so later tokens, other documents of a row and the
    length of a segment affect which keys a token sees, though never the keys' contents. Padding and
    empty memory slots do not compete.

    The centroids, random directions at first, are weights without gradient. In training a call
    sets `commitment` and `cluster_sums`, from the tokens of the segment, each counted for the
    nearest centroid; `move_centroids`, called once for each optimizer step, updates the moving
    average.

    Options: those of `configs.layer_specs.Routing`.

    Attributes:
      centroids: [H, C, K] float32, H routed heads.
      commitment: the auxiliary loss of the last call in training.
      cluster_sums: [H, C, K + 1] float32 of the same call, the sum of the directions of each
        cluster's tokens, and their number.
    """

    ROUTES = True

    def __init__(self, spec, **kwargs):
        super().__init__(spec, **kwargs)
        self.commitment = self.cluster_sums = None
        self.local = LocalAttention(
            layer_specs.Local(window=spec.local_window),
            dropout=self.dropout,
            site=self.site,
            dtype=self.dtype_policy,
            name="local",
        )

    def build_weights(self, d_model, num_heads, head_dim, init_std):
        self.local.built = True
        self.centroids = self.add_weight(
            (num_heads - self.spec.local_heads, self.spec.clusters, head_dim),
            _random_directions,
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",  # all replicas assign the same value
            name="centroids",
        )

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
        real=None,
    ):
        local = self.spec.local_heads
        seen = self.local(
            content_query,
            position_query,
            keys[:, :local],
            values[:, :local],
            encodings,
            visibility=visibility,
            dropout_key=dropout_key,
        )
        num_queries = shape_of(content_query)[2]
        routed = self._route(
            keys[:, local:], values[:, local:], num_queries, visibility, dropout_key, real
        )
        return tf.concat([seen, routed], axis=1)

    def _route(self, shared, values, num_queries, visibility, dropout_key, real):
        """Attends with the routed heads. Shared and values [B, H, S, K] -> [B, H, T, K]."""
        num_keys = shape_of(shared)[2]
        slots = num_keys - num_queries  # M
        directions = tf.math.l2_normalize(tf.cast(shared, tf.float32), axis=-1)
        similarity = tf.matmul(self.centroids, directions, transpose_b=True)  # [B, H, C, S]
        similarity = visibility.from_ring_order(similarity)
        if dropout_key is not None:
            self._count(directions[:, :, slots:], similarity[..., slots:], real)
            dropout_key = dropout_key.fold_in(1)  # independent of the local heads
        mask = dataclasses.replace(visibility, ring_index=None)
        documents = mask.key_documents(num_queries, num_keys)  # [B, S], -1 at empty slots
        if real is not None:
            competes = tf.pad(real, [[0, 0], [slots, 0]], constant_values=True)
            documents = tf.where(competes, documents, -1)
        members = _members(similarity, documents >= 0, self.spec.window)  # [B, G, w]
        size = shape_of(members)[2]
        first = size - smaller(size, num_queries)  # of a cluster's tokens only the last are new
        queries = members[..., first:]  # [B, G, q]
        indices = visibility.to_ring_indices(members, num_keys)
        scores = tf.matmul(
            scaled(_gather(shared, indices[..., first:]), shared.shape[-1] ** -0.5),
            tf.cast(_gather(directions, indices), shared.dtype),
            transpose_b=True,
        )  # [B, G, q, w]
        scores = tf.cast(scores, tf.float32)
        distance = queries[..., tf.newaxis] - members[..., tf.newaxis, :]
        document = tf.gather(documents, members, batch_dims=1)  # [B, G, w]
        key_document = document[..., tf.newaxis, :]
        visible = mask.in_reach(distance) & (key_document >= 0)
        visible &= document[..., first:, tf.newaxis] == key_document
        scores = tf.where(visible, scores, attention_mask.HIDDEN)
        scores = tf.where(distance == 0, _OWN_SCORE, scores)
        weights = tf.cast(self.drop(tf.nn.softmax(scores), dropout_key), values.dtype)
        attended = tf.matmul(weights, _gather(values, indices))  # [B, G, q, K]
        shape = [*shape_of(values)[:2], num_queries]
        return tf.cast(_mean_by_token(attended, queries - slots, shape), values.dtype)

    def _count(self, directions, similarity, real):
        """Sets the loss and the sums. Directions [B, H, T, K], similarity [B, H, C, T]."""
        _, heads, _, width = shape_of(directions)
        nearest = tf.argmax(similarity, axis=2, output_type=tf.int32)  # [B, H, T]
        assigned = tf.one_hot(nearest, self.spec.clusters)  # [B, H, T, C]
        if real is not None:
            assigned *= tf.cast(real, tf.float32)[:, tf.newaxis, :, tf.newaxis]
        ones = tf.ones_like(directions[..., :1])
        counted = tf.stop_gradient(tf.concat([directions, ones], axis=-1))  # [B, H, T, K + 1]
        self.cluster_sums = tf.einsum("bhtc,bhtk->hck", assigned, counted)
        own = tf.matmul(assigned, tf.convert_to_tensor(self.centroids))  # [B, H, T, K]
        is_counted = tf.reduce_sum(assigned, axis=-1, keepdims=True)
        squares = tf.reduce_sum(tf.square(directions - own) * is_counted)
        total = tf.reduce_sum(is_counted) * width
        self.commitment = self.spec.commitment * tf.math.divide_no_nan(squares, total)

    @property
    def sums_shape(self):
        """Shape of `cluster_sums`."""
        *axes, width = self.centroids.shape
        return (*axes, width + 1)

    def move_centroids(self, cluster_sums, good):
        """Updates the centroids from the sums over all replicas, if `good`, a boolean scalar.

        A centroid moves by 1 - decay towards the direction of its cluster's sum; without tokens it
        stays.
        """
        sums, counts = cluster_sums[..., :-1], cluster_sums[..., -1:]
        old = tf.convert_to_tensor(self.centroids)
        decay = self.spec.decay
        new = decay * old + (1.0 - decay) * tf.math.l2_normalize(sums, axis=-1)
        self.centroids.assign(tf.where(good & (counts > 0), new, old))


def _random_directions(shape, dtype):
    normal = keras.initializers.RandomNormal(stddev=1.0)
    return tf.math.l2_normalize(normal(shape, dtype), axis=-1)


def _members(similarity, competes, window):
    """Returns the positions of each cluster's nearest tokens, ascending.

    Of equally near tokens the newest are taken. In the lowest layer equal words are equally near:
    similarity is rounded, so that it is not rounding errors that choose among them.

    Shapes: similarity [B, H, C, S] float32, competes [B, S] bool -> [B, G, w] int32 for the
    G = H C clusters of all heads; where fewer than w compete, others fill it.
    """
    rows, heads, clusters, num_keys = shape_of(similarity)
    similarity = tf.reshape(tf.stop_gradient(similarity), [rows, heads * clusters, num_keys])
    similarity = tf.where(
        competes[:, tf.newaxis], tf.round(_LEVELS * similarity), attention_mask.HIDDEN
    )
    newest_first = tf.reverse(similarity, [2])  # of ties, top_k takes the first
    _, ages = tf.math.top_k(newest_first, smaller(num_keys, window))
    return num_keys - 1 - tf.reverse(tf.sort(ages, axis=-1), [2])


def _gather(x, indices):
    """Gathers the tokens of clusters. [B, H, S, K], [B, G, w] -> [B, G, w, K]."""
    rows, heads, _, width = shape_of(x)
    _, clusters, size = shape_of(indices)
    gathered = tf.gather(x, tf.reshape(indices, [rows, heads, -1]), batch_dims=2)
    return tf.reshape(gathered, [rows, clusters, size, width])


def _mean_by_token(x, token, shape):
    """Returns the mean over a token's clusters, about 0 where it has none.

    Shapes: x [B, G, q, K], token [B, G, q] int32, negative where it is none of the T; shape
    (B, H, T) -> [B, H, T, K] float32.
    """
    rows, heads, num_tokens = shape
    total, width = rows * heads * num_tokens, x.shape[-1]
    start = tf.reshape(tf.range(rows * heads) * num_tokens, [rows * heads, 1])
    token = tf.reshape(token, [rows * heads, -1])
    target = tf.where(token >= 0, start + token, total)  # the last slot is overflow
    target = tf.reshape(target, [-1, 1])
    flat = tf.reshape(tf.cast(x, tf.float32), [-1, width])
    sums = tf.scatter_nd(target, flat, [total + 1, width])[:-1]
    counts = tf.scatter_nd(target, tf.ones_like(flat[:, :1]), [total + 1, 1])[:-1]
    return tf.reshape(sums / (counts + _COUNT_EPSILON), [*shape, width])
