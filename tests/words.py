"""Embeddings and softmaxes over their tables, of every kind, and oracles of their results."""

import numpy as np
import tensorflow as tf

import helpers
import rounding
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.adaptive_softmax import AdaptiveSoftmax

BOUNDS = ((0, 4), (4, 7), (7, 11))
CUT = dict(cutoffs=(4, 7))
OWN = dict(tie_embeddings=False, tie_projections=(False, False, False))
KINDS = dict(
    plain=dict(d_embed=8),
    plain_narrow=dict(d_embed=6),
    plain_own=dict(d_embed=6, tie_embeddings=False),
    plain_own_projection=dict(d_embed=6, tie_output_projection=False),
    one_table=dict(d_embed=8, **CUT),
    one_table_narrow=dict(d_embed=6, **CUT, tie_projections=(False, True)),
    one_table_all_tied=dict(d_embed=6, **CUT, tie_projections=(True,)),
    one_table_own=dict(d_embed=6, **CUT, **OWN),
    halves=dict(d_embed=8, **CUT, div_val=2, tie_projections=(False, True)),
    halves_own=dict(d_embed=8, **CUT, div_val=2, **OWN),
    quarters=dict(d_embed=16, **CUT, div_val=4, tie_projections=(True, False, True)),
    unprojected=dict(d_embed=8, **CUT, div_val=2, project_same_dim=False),
    unprojected_tied=dict(
        d_embed=16, **CUT, div_val=2, project_same_dim=False, tie_projections=(False, True)
    ),
)
# Tolerances of scores, nats and probabilities: sums of a projection, of logits and of softmax; and
# of gradients: the same backward, summed over 21 tokens. Weights have a deviation of 0.5.
SCORES_ATOL = rounding.tolerance(8, 16, 11, scale=0.5 * 16)
GRADIENTS_ATOL = 2 * SCORES_ATOL + rounding.tolerance(21, scale=0.5 * 16)
HIDDEN = np.random.default_rng(3).normal(size=(3, 7, 8)).astype("float32")
TARGETS = helpers.draw_ids(3, 7)
TARGETS[0, 2] = TARGETS[2, 6] = -1


class Words:
    """An embedding and a softmax over its tables, called as the model does."""

    def __init__(self, kind, dtype="float32"):
        options = dict(vocab_size=11, d_model=8, dtype=dtype) | KINDS[kind]
        ties = ("tie_embeddings", "tie_projections", "tie_output_projection")
        self.embedding = AdaptiveEmbedding(**{k: v for k, v in options.items() if k not in ties})
        self.softmax = AdaptiveSoftmax(**options)
        self.embedding.build()
        self.softmax.build()
        helpers.loud(self.embedding)
        helpers.loud(self.softmax, seed=1)

    def __call__(self, hidden, **options):
        return self.softmax(hidden, self.embedding.tables, self.embedding.projections, **options)

    @property
    def variables(self):
        weights = self.embedding.trainable_variables + self.softmax.trainable_variables
        return [weight.value for weight in weights]

    def parts(self):
        """Returns the table, the projection (or None) and the bias of each cluster."""
        softmax, embedding = self.softmax, self.embedding
        tables = embedding.tables if softmax.tie_embeddings else softmax.tables
        for i, bias in enumerate(softmax.biases):
            shared = len(tables) == 1
            start = BOUNDS[i][0] if shared else 0
            table = to_numpy(tables[0 if shared else i])[start : start + bias.shape[0]]
            tie = softmax.tie_projections[min(i, len(softmax.tie_projections) - 1)]
            tied = tie if softmax.cutoffs else softmax.tie_output_projection
            projection = (embedding.projections * 3 if shared else embedding.projections)[i]
            yield table, projection if tied else softmax.projections[i], bias


def to_numpy(weight):
    return np.array(tf.convert_to_tensor(weight), "float64")


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum())


def oracle(words, hidden):
    """Returns the scores of all words, token by token in float64."""
    softmax = words.softmax
    scores = np.zeros([*hidden.shape[:-1], 11])
    for place in np.ndindex(*hidden.shape[:-1]):
        logits = []
        for table, projection, bias in words.parts():
            h = hidden[place].astype("float64")
            h = h if projection is None else to_numpy(projection) @ h
            logits.append(table @ h + to_numpy(bias))
            if len(logits) == 1 and softmax.cutoffs:
                tails = to_numpy(softmax.cluster_weight) @ h + to_numpy(softmax.cluster_bias)
        if not softmax.cutoffs:
            scores[place] = logits[0]
            continue
        head = log_softmax(np.concatenate([logits[0], tails]))
        scores[place][:4] = head[:4]
        for i in (1, 2):
            scores[place][slice(*BOUNDS[i])] = head[4 + i - 1] + log_softmax(logits[i])
    return scores


def oracle_nats(words, hidden, targets):
    scores = oracle(words, hidden)
    nats = np.zeros(targets.shape)
    for place in np.ndindex(*targets.shape):
        if targets[place] != -1:
            nats[place] = -log_softmax(scores[place])[targets[place]]
    return nats


def naive_nats(words, hidden, targets):
    """Returns the loss computed from the scores of all words."""
    log_probs = tf.nn.log_softmax(words(hidden))
    nats = -tf.gather(log_probs, tf.maximum(targets, 0), batch_dims=2)
    return tf.where(targets == -1, 0.0, nats)


def nats_and_gradients(nats, words, hidden, targets):
    """Returns losses, and gradients of an uneven sum of them by `hidden` and every weight."""
    sources = [hidden, *words.variables]
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        found = nats(words, hidden, targets)
        total = tf.reduce_sum(found * tf.reshape(tf.cos(tf.range(21.0)), [3, 7]))
    return found, tape.gradient(total, sources, unconnected_gradients="zero")


def our_nats(words, hidden, targets):
    return words(hidden, targets=targets)
