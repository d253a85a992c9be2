"""TFLite signatures of static shapes: one batch size, one segment length."""

import types
from typing import Any

import tensorflow as tf

from txl_tf import model_dir as model_dirs
from txl_tf.export import state_tensors
from txl_tf.inference import decode_state as states
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.models.transformer_xl import TransformerXL


class EdgeGraph(tf.Module):
    """The signatures of a .tflite file.

        step   input_ids, lengths, STATE -> scores [B, T, V], STATE
        score  input_ids, lengths, targets, STATE -> log_probs [B, T], STATE

    A module, so that the weights are saved with it. STATE is the tensors of
    `state_tensors.KeyValueWire`. Position encodings are projected here, once.

    Args, attributes:
      model: a TransformerXL that computes in float32.
      batch_size: B.
      segment_len: T.
    """

    def __init__(self, model, *, batch_size: int, segment_len: int):
        super().__init__(name="txl_tf")
        self.batch_size = batch_size
        self.segment_len = segment_len
        self._log_probs = model.config.cutoffs  # with cut-offs scores are log-probabilities
        layers = types.SimpleNamespace(
            embedding=_RowLookup.sharing(model.embedding),
            blocks=model.blocks,
            position_tables=model.position_tables,
            biases=model.biases,
            softmax=model.softmax,
            dtype_policy=model.dtype_policy,
        )
        edge_model = TransformerXL(model.config, weights_of=layers)
        self._carried = states.KeyValueState(edge_model, segment_len)
        self.weights = model_dirs.weights_of(model)
        self.encodings = self._carried.encodings
        self.wire = state_tensors.KeyValueWire(model, batch_size=batch_size)

    def concrete(self) -> dict[str, Any]:
        """Returns the function of each signature, by name."""
        ids = tf.TensorSpec([self.batch_size, self.segment_len], tf.int32)
        lengths = tf.TensorSpec([self.batch_size], tf.int32)
        inputs = dict(input_ids=ids, lengths=lengths, **self.wire.specs)
        return {
            "step": state_tensors.function(self._step, **inputs),
            "score": state_tensors.function(self._score, targets=ids, **inputs),
        }

    def initial(self) -> dict[str, Any]:
        """Returns the state of rows without history."""
        return self.wire.pack(self._carried.initial(self.batch_size))

    def _step(self, input_ids, lengths, **tensors):
        scores, state = self._carried.scores(input_ids, self.wire.unpack(tensors), lengths)
        return {"scores": scores, **self.wire.pack(state)}

    def _score(self, targets, **inputs):
        """Not by the model's loss: its loops and scatters are not TFLite builtins."""
        results = self._step(**inputs)
        scores = results.pop("scores")
        log_probs = scores if self._log_probs else tf.nn.log_softmax(scores)
        return {"log_probs": tf.gather(log_probs, targets, batch_dims=2), **results}


class _RowLookup(AdaptiveEmbedding):
    """Embedding by TFLite's EMBEDDING_LOOKUP, which reads int8 tables directly.

    A GATHER would dequantise a whole table to float32, and need a second table for a softmax that
    shares it.
    """

    @classmethod
    def sharing(cls, layer: AdaptiveEmbedding) -> "_RowLookup":
        """Returns an embedding that shares the weights of `layer`."""
        new = cls.from_config(layer.get_config())
        new.tables, new.projections = layer.tables, layer.projections
        new.built = True
        return new

    def _embed(self, places, cluster, mine=None):
        table = tf.convert_to_tensor(self.tables[cluster])
        shape = [*places.shape, table.shape[1]]
        rows = tf.reshape(_lookup(table, tf.reshape(places, [-1])), shape)  # [B, T, e_i]
        if mine is not None:
            rows = tf.where(mine[..., tf.newaxis], rows, 0.0)
        projection = self.projections[cluster]
        return rows if projection is None else tf.einsum("bte,ed->btd", rows, projection)


@tf.function(experimental_implements="embedding_matmul", autograph=False)
def _lookup(table, ids):
    """Marked for the converter, which replaces it by EMBEDDING_LOOKUP. [n, e], [N] -> [N, e]."""
    return tf.gather(table, ids)
