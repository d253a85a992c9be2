"""How inference runs a model piece by piece: what it has read is a state that goes in and out."""

from txl_tf.models import memory


class HiddenState:
    """Runs a model on the memory that it was trained with: the hidden states of its layers.

    The other modules here know a state by these methods alone, and what passes between them they
    only hand on. Nothing is compiled or checked in here; the callers do both.

    Shapes:
      ids, targets: [B, T] int32; a target of -1 is not scored.
      lengths: [B] int32, how many of the T are real (the first ones, perhaps none); None is all.
      document_start: [B, T] bool, where a document begins that sees nothing before it.

    Args:
      model: a TransformerXL.
    """

    def __init__(self, model):
        self.model = model
        self.vocab_size = model.config.vocab_size

    def initial(self, batch_size):
        """The state of rows that have read nothing."""
        return self.model.initial_mems(batch_size)

    def advance(self, ids, state, lengths=None):
        """The state after reading `ids`; no scores are computed."""
        _, state = self.model.hidden_states(ids, state, lengths=lengths)
        return state

    def scores(self, ids, state, lengths=None):
        """Scores of what follows each id, [B, T, V]: their softmax is the distribution."""
        return self.model(ids, state, lengths=lengths)

    def nll(self, ids, targets, state, lengths=None, document_start=None):
        """Nats of each target, [B, T] float32, and the state after the ids."""
        return self.model.nll(ids, targets, state, lengths=lengths, document_start=document_start)

    def reorder(self, state, rows):
        """The state whose row i is row rows[i] of `state`; rows may repeat."""
        return memory.reorder(state, rows)
