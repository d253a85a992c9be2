"""Serving signatures: functions of flat named tensors over a model and its tokenizer."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from txl_tf import model_dir as model_dirs
from txl_tf.data import tokenizers
from txl_tf.export import state_tensors, text_graph
from txl_tf.export.serving import checks
from txl_tf.export.serving.segments import Segments
from txl_tf.inference import decode_state as states
from txl_tf.inference import sampling as samplings
from txl_tf.inference.decoding import CHUNK
from txl_tf.inference.generation import start_id
from txl_tf.ops.shapes import shape_of

MOST_LENGTH = 2**20  # maximum tokens of a request: hours, but bounded memory


class Signatures(tf.Module):
    """The functions of an export; a module, so that weights and tables are saved with it.

    Batch is the first axis of every tensor, and rows are independent: a server may batch the rows
    of many requests. Nothing is kept between calls. STATE is the tensors of `state_tensors`: keys
    and values, or mems, and mem_length.

        step           input_ids [B, T], lengths [B], STATE -> scores [B, T, V], STATE
        step_int64     the same with ids and lengths in int64
        initial_state  batch_size (a number, or ones whose sum counts) -> STATE
        score          text [B] -> ids [B, N], log_probs [B, N], num_tokens [B]
        generate       prompts, length, temperature, top_k, top_p, seed, all [B] -> text [B]
        encode         text [B] -> ids [B, N], lengths [B]
        decode         ids [B, N], lengths [B] -> text [B]

    score treats a text as a whole file, like the program; generate and encode leave its last line
    open. log_probs is 0 for the first token, which has no context, and after the end. Invalid input
    is INVALID_ARGUMENT with a message.

    Args:
      model: a TransformerXL; generate needs `mem_len` above 0.
      tokenizer: of the model.
      state: kind of state tensors, "kv" or "hidden".
      state_dtype: float32 or float16, of the float state tensors.
      segment_len: tokens per segment inside score and generate.
    """

    def __init__(
        self,
        model,
        tokenizer: tokenizers.Tokenizer,
        *,
        state: str = "kv",
        state_dtype: str = "float32",
        segment_len: int = 128,
    ):
        super().__init__(name="txl_tf")
        if segment_len < 1:
            raise ValueError(f"segment_len must be at least 1, got {segment_len}")
        self.weights = model_dirs.weights_of(model)
        self._segment_len = segment_len
        carried = self._carried = states.make(state, model, segment_len)
        self.wire = state_tensors.WIRES[state](model, state_dtype)
        if not isinstance(carried, states.KeyValueState):
            carried = states.KeyValueState(model, segment_len)
        self._inside = carried
        self.encodings = carried.encodings
        self.text = text_graph.from_tokenizer(tokenizer)
        self._start_id = start_id(tokenizer)
        self._unknown_id = tokenizer.unknown_id

    def concrete(self) -> dict[str, Any]:
        """Returns the function of each signature, by name."""
        state = self.wire.specs
        some, ids = _spec([None]), _spec([None, None])
        text = _spec([None], tf.string)
        floats = _spec([None], tf.float32)
        # Also an attribute: Keras calls a layer's endpoint by position, signatures by name.
        # Concrete, as saving would retrace any other function.
        traced = tf.function(self._step, autograph=False)
        step = self.step = traced.get_concrete_function(ids, some, **state)
        wide = dict(input_ids=_spec([None, None], tf.int64), lengths=_spec([None], tf.int64))
        functions = {
            "serving_default": step,
            "step": step,
            "step_int64": state_tensors.function(self._step_int64, **wide, **state),
            "initial_state": state_tensors.function(self._initial_state, batch_size=_spec(None)),
            "score": state_tensors.function(self._score, text=text),
            "encode": state_tensors.function(self._encode, text=text),
            "decode": state_tensors.function(self._decode, ids=ids, lengths=some),
        }
        if self.wire.mem_len:
            functions["generate"] = state_tensors.function(
                self._generate,
                prompts=text,
                length=some,
                temperature=floats,
                top_k=some,
                top_p=floats,
                seed=some,
            )
        return functions

    def _step(self, input_ids, lengths, **tensors):
        input_ids, lengths = self._checked(input_ids, lengths)
        state = self.wire.unpack(self._checked_state(tensors, shape_of(input_ids)[0]))
        scores, state = self._carried.scores(input_ids, state, lengths)
        return {"scores": scores, **self.wire.pack(state)}

    def _step_int64(self, input_ids, lengths, **tensors):
        return self.step(*self._checked(input_ids, lengths), **tensors)

    def _initial_state(self, batch_size):
        rows = tf.reduce_sum(batch_size)
        rows = checks.at_least(rows, 0, "batch_size")
        return self.wire.pack(self._carried.initial(rows))

    def _encode(self, text):
        ids, lengths = self.text.encode(text, complete=False)
        return {"ids": ids, "lengths": lengths}

    def _decode(self, ids, lengths):
        lengths = checks.within(lengths, shape_of(ids)[1], "lengths")
        return {"text": self.text.decode(ids, lengths)}

    def _score(self, text):
        ids, lengths = self.text.encode(text, complete=True)
        rows, size = shape_of(ids)
        scored = tf.maximum(lengths - 1, 0)  # [B]
        segments = Segments(ids[:, :-1], scored, self._segment_len, min_count=1)
        targets = Segments(ids[:, 1:], scored, self._segment_len, min_count=1)
        nats = tf.TensorArray(tf.float32, segments.count, element_shape=[None, None])

        def read_one(i, state, nats):
            part, real = segments.part(i)
            nll, state = self._inside.nll(part, targets.part(i)[0], state, real)
            return i + 1, state, nats.write(i, nll)

        _, _, nats = tf.while_loop(
            lambda i, *_: i < segments.count, read_one, (0, self._inside.initial(rows), nats)
        )
        joined = tf.reshape(tf.transpose(nats.stack(), [1, 0, 2]), [rows, segments.padded])
        log_probs = tf.pad(0.0 - joined, [[0, 0], [1, 0]])[:, :size]  # [B, N]
        return {"ids": ids, "log_probs": log_probs, "num_tokens": lengths}

    def _generate(self, prompts, length, temperature, top_k, top_p, seed):
        length = checks.at_most(checks.at_least(length, 0, "length"), MOST_LENGTH, "length")
        top_k, seed = checks.at_least(top_k, 0, "top_k"), checks.at_least(seed, 0, "seed")
        invalid = ~((temperature >= 0) & (temperature < float("inf")))  # NaN too
        temperature = checks.no_row(
            invalid, temperature, "temperature must be at least 0 and finite"
        )
        top_p = checks.no_row(
            ~((top_p > 0) & (top_p <= 1)), top_p, "top_p must be above 0 and at most 1"
        )
        prompt_ids, lengths = self.text.encode(prompts, complete=False)
        rows = shape_of(prompt_ids)[0]
        last, state = self._read_prompts(prompt_ids, lengths)
        seeds = tf.stack([seed, tf.zeros_like(seed)], axis=1)  # [B, 2]: sample 0 of each row
        steps = tf.reduce_max(tf.concat([length, [1]], axis=0))  # an empty TensorArray has no shape
        written = tf.TensorArray(tf.int32, steps, element_shape=[None])

        def write_one(step, last, state, uniforms, written):
            real = tf.cast(step < length, tf.int32)
            scores, state = self._inside.next_scores(last, state, real)  # [B, V]
            uniforms = tf.cond(
                step % CHUNK == 0,
                lambda: samplings.uniforms(seeds, step // CHUNK, CHUNK),
                lambda: uniforms,
            )  # [B, CHUNK]
            chosen = samplings.choose_by_row(
                samplings.ban(scores, self._banned()),
                uniforms[:, step % CHUNK],
                temperature,
                top_k,
                top_p,
            )
            return step + 1, chosen, state, uniforms, written.write(step, chosen)

        *_, written = tf.while_loop(
            lambda step, *_: step < steps,
            write_one,
            (0, last, self._inside.to_ring_buffer(state), tf.zeros([rows, CHUNK]), written),
        )
        ids = tf.transpose(tf.reshape(written.stack(), [steps, rows]))  # [B, steps]
        return {"text": self.text.decode_after(prompt_ids, lengths, ids, length)}

    def _read_prompts(self, ids, lengths):
        """Returns each prompt's last id and the state before it; empty ones get the start id."""
        rows = shape_of(ids)[0]
        empty = lengths == 0
        ids = tf.pad(ids, [[0, 0], [0, 1]])  # N may be 0
        first = tf.where(empty, self._start_id, ids[:, 0])
        ids = tf.concat([first[:, tf.newaxis], ids[:, 1:]], axis=1)
        before = tf.maximum(lengths, 1) - 1  # [B]
        segments = Segments(ids, before, self._segment_len)

        def read_one(i, state):
            part, real = segments.part(i)
            return i + 1, self._inside.advance(part, state, real)

        _, state = tf.while_loop(
            lambda i, _: i < segments.count, read_one, (0, self._inside.initial(rows))
        )
        return tf.gather(ids, before, batch_dims=1), state

    def _banned(self) -> tuple[int, ...]:
        return () if self._unknown_id is None else (self._unknown_id,)

    def _checked(self, ids, lengths):
        """Returns int32 ids and lengths; ids past a row's length become 0 unchecked."""
        lengths = checks.within(lengths, tf.shape(ids, lengths.dtype)[1], "lengths")
        lengths = checks.same_rows(lengths, shape_of(ids)[0], "lengths")
        real = tf.sequence_mask(lengths, shape_of(ids)[1])
        ids = tf.where(real, ids, tf.zeros([], ids.dtype))
        size = self.text.vocab_size
        rule = f"input_ids must lie in 0..{size - 1} (vocabulary of {size})"
        ids = checks.no_row((ids < 0) | (ids >= size), ids, rule)
        return tf.cast(ids, tf.int32), tf.cast(lengths, tf.int32)

    def _checked_state(self, tensors: Mapping[str, Any], rows) -> dict[str, Any]:
        checked = {name: checks.same_rows(x, rows, name) for name, x in tensors.items()}
        for name, spec in self.wire.specs.items():
            checked[name] = checks.shaped(checked[name], spec, name)
        length = checked[state_tensors.LENGTH]
        return checked | {
            state_tensors.LENGTH: checks.within(length, self.wire.mem_len, state_tensors.LENGTH)
        }


def _spec(shape, dtype=tf.int32):
    return tf.TensorSpec(shape, dtype)
