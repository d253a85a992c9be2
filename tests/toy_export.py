"""A small SavedModel with the signatures and the files of an export, for tests of its users.

It is a model of bytes whose scores follow from the last MEMORY of them, so that a state that is
lost or mixed up shows. What it likes to say is full of characters of two bytes. `generate` answers
with the values that it was given.
"""

import atexit
import functools
import json
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

VOCAB_SIZE = 256
MEMORY = 5
_LEAD, _REST = 0xC3, 0xBC  # the bytes of "ü"


def _table():
    """Returns scores by the hash of the read bytes, [97, V]."""
    draw = np.random.default_rng(3)
    table = np.full([97, VOCAB_SIZE], -9.0, np.float32)
    liked = [*b"abcdefg ", _LEAD, _LEAD]
    table[:, liked] = draw.normal(size=[97, len(liked)])
    return table


class _Toy(tf.Module):
    def __init__(self, state_dtype):
        super().__init__()
        self.table = tf.Variable(_table())
        self.state_dtype = state_dtype

    def initial_state(self, batch_size):
        return self._state(tf.zeros([tf.reduce_sum(batch_size), MEMORY]), 0)

    def _state(self, history, mem_length):
        """Returns the state of a history [B, M] of ids + 1, 0 for none."""
        keys = tf.cast(history[:, None, None, :, None], self.state_dtype)  # [B, 1, 1, M, 1]
        length = tf.broadcast_to(mem_length, tf.shape(history)[:1])
        return dict(keys=keys, values=-keys, mem_length=tf.cast(length, tf.int32))

    def step(self, input_ids, lengths, keys, values, mem_length):
        input_ids, lengths = tf.cast(input_ids, tf.int32), tf.cast(lengths, tf.int32)
        same = tf.debugging.assert_equal(keys, -values, message="keys and values must be a pair")
        known = tf.debugging.assert_less(
            input_ids, VOCAB_SIZE, message=f"ids must lie in 0..{VOCAB_SIZE - 1}"
        )
        with tf.control_dependencies([same, known]):
            history = tf.cast(keys[:, 0, 0, :, 0], tf.int32)
        seen = tf.concat([history, input_ids + 1], axis=1)  # [B, M + T]
        windows = tf.signal.frame(seen[:, 1:], MEMORY, 1)  # [B, T, M]
        places = lengths[:, None] + tf.range(MEMORY)  # [B, M]
        history = tf.cast(tf.gather(seen, places, batch_dims=1), tf.float32)
        mem_length = tf.minimum(mem_length + lengths, MEMORY)
        return dict(scores=self._scores(windows)) | self._state(history, mem_length)

    def _scores(self, windows):
        weights = tf.constant([7, 11, 13, 17, 23])
        scores = tf.gather(self.table, tf.reduce_sum(windows * weights, axis=-1) % 97)
        open_character = tf.equal(windows[..., -1:], _LEAD + 1)
        return tf.where(open_character, 90.0 * tf.one_hot(_REST, VOCAB_SIZE), scores)

    def _encode(self, text):
        pieces = tf.strings.bytes_split(text)
        ids = tf.cast(tf.io.decode_raw(pieces.flat_values, tf.uint8)[:, 0], tf.int32)
        return pieces.with_flat_values(ids)

    def encode(self, text):
        ids = self._encode(text)
        return dict(ids=ids.to_tensor(), lengths=tf.cast(ids.row_lengths(), tf.int32))

    def decode(self, ids, lengths):
        bytes_of = tf.constant([bytes([i]) for i in range(VOCAB_SIZE)])
        ragged = tf.RaggedTensor.from_tensor(ids, lengths=lengths)
        text = tf.strings.reduce_join(tf.gather(bytes_of, ragged), axis=1)
        return dict(text=tf.strings.unicode_transcode(text, "UTF-8", "UTF-8"))

    def score(self, text):
        encoded = self.encode(text)
        ids, lengths = encoded["ids"], encoded["lengths"]
        state = self.initial_state(tf.ones_like(lengths))
        scores = self.step(ids, lengths, **state)["scores"][:, :-1]
        log_probs = tf.gather(tf.nn.log_softmax(scores), ids[:, 1:], batch_dims=2)
        real = tf.sequence_mask(lengths - 1, tf.shape(log_probs)[1])
        log_probs = tf.pad(tf.where(real, log_probs, 0.0), [[0, 0], [1, 0]])
        return dict(ids=ids, log_probs=log_probs[:, : tf.shape(ids)[1]], num_tokens=lengths)

    def generate(self, prompts, length, temperature, top_k, top_p, seed):
        refusal = tf.strings.join(
            ["length must be below 100, got ", tf.strings.as_string(length[0])]
        )
        checked = tf.debugging.Assert(length[0] < 100, [refusal])
        with tf.control_dependencies([checked]):
            values = [length, temperature, top_k, top_p, seed]
            arguments = [
                tf.strings.as_string(value, precision=2 if value.dtype.is_floating else -1)
                for value in values
            ]
            return dict(text=tf.strings.join([" of ", prompts, *arguments], separator="|"))


def _signatures(toy):
    def named(name, function, **dtypes):
        specs = {k: tf.TensorSpec(shape, dtype, k) for k, (shape, dtype) in dtypes.items()}
        return tf.function(function, autograph=False).get_concrete_function(**specs)

    row, rows = [None], [None, None]
    memory = ([None, 1, 1, MEMORY, 1], toy.state_dtype)
    state = dict(keys=memory, values=memory, mem_length=(row, tf.int32))
    ids = lambda dtype: dict(input_ids=(rows, dtype), lengths=(row, dtype), **state)  # noqa: E731
    floats = {name: (row, tf.float32) for name in ("temperature", "top_p")}
    ints = {name: (row, tf.int32) for name in ("length", "top_k", "seed")}
    return {
        "serving_default": named("step", toy.step, **ids(tf.int32)),
        "step": named("step", toy.step, **ids(tf.int32)),
        "step_int64": named("step_int64", toy.step, **ids(tf.int64)),
        "initial_state": named("initial", toy.initial_state, batch_size=(None, tf.int32)),
        "score": named("score", toy.score, text=(row, tf.string)),
        "generate": named("generate", toy.generate, prompts=(row, tf.string), **ints, **floats),
        "encode": named("encode", toy.encode, text=(row, tf.string)),
        "decode": named("decode", toy.decode, ids=(rows, tf.int32), lengths=(row, tf.int32)),
    }


def write(folder, version=1, state_dtype="float32"):
    """Writes FOLDER/VERSION. Returns that path."""
    return pathlib.Path(shutil.copytree(_written(state_dtype), f"{folder}/{version}"))


@functools.cache
def _written(state_dtype):
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    toy = _Toy(tf.as_dtype(state_dtype))
    return save(toy, pathlib.Path(folder) / "1", _signatures(toy))


def save(module, path, signatures):
    """Writes a SavedModel and its model.json. Returns the path."""
    tf.saved_model.save(module, str(path), signatures=signatures)
    extra = path / "assets.extra"
    extra.mkdir()
    (extra / "model.json").write_text(json.dumps(_describe(path)), "utf-8")
    return path


def _describe(path):
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    signatures = {}
    for name, signature in saved.meta_graphs[0].signature_def.items():
        if not name.startswith("__"):
            sides = dict(inputs=signature.inputs, outputs=signature.outputs)
            signatures[name] = {
                side: {key: _info(info) for key, info in infos.items()}
                for side, infos in sides.items()
            }
    return dict(format=1, vocab_size=VOCAB_SIZE, signatures=signatures)


def _info(info):
    shape = None if info.tensor_shape.unknown_rank else [d.size for d in info.tensor_shape.dim]
    return dict(tensor=info.name, dtype=tf.as_dtype(info.dtype).name, shape=shape)
