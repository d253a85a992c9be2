"""SavedModels of tiny models, each alone in a folder, and calls of their signatures."""

import atexit
import functools
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow as tf

import helpers
import prepared
from txl_tf.configs.run import Config
from txl_tf.data import text as texts
from txl_tf.data import tokenizers
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.export.serving.saved_model import export_saved_model
from txl_tf.models.transformer_xl import TransformerXL

TEXT = prepared.text(300)
OPTIONS = dict(state="kv", state_dtype="float32", segment_len=8)  # of exports here
SIGNATURES = ["decode", "encode", "generate", "initial_state", "score", "serving_default", "step"]
SIGNATURES += ["step_int64"]


@functools.cache
def make_tokenizer(kind):
    if kind == "byte":
        return tokenizers.ByteTokenizer()
    if kind == "letters":  # eleven ids
        return tokenizers.CharTokenizer(
            vocabulary=Vocabulary([*"abcdefghij", "<unk>"]), end_of_line="none"
        )
    size = 300 if kind == "sentencepiece" else None
    if kind == "numbers":  # without the letter a, and whatever else is refused
        return tokenizers.CharTokenizer(
            vocabulary=Vocabulary(["\n", *"0123456789"]), end_of_line="none", unknown="error"
        )
    learner = tokenizers.kind(kind).start(vocab_size=size, min_count=0)
    learner.add(learner.observe(texts.Piece(TEXT.encode())))
    return learner.finish()


def make_model(kind="letters", **changes):
    """Returns a model of two layers for characters, to show their order, or else of one."""
    return _make_model(kind, **changes)


@functools.cache  # which takes f() and f("letters") for two calls: so this is given all
def _make_model(kind, **changes):
    sizes = dict(vocab_size=make_tokenizer(kind).vocab_size, mem_len=4)
    sizes["num_layers"] = 2 if kind == "letters" else 1
    config = helpers.tiny_config(**sizes | changes)
    return helpers.loud(TransformerXL(config), deviation=0.4)


def folder_of(kind="letters", changes=(), **options):
    """Returns the folder of an export that contains nothing else."""
    return _folder_of(kind, changes, **OPTIONS | options)


@functools.cache
def _folder_of(kind, changes, **options):
    place = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, place)
    write(place / "first" / "toy", kind, dict(changes), **options)
    return pathlib.Path(shutil.move(place / "first" / "toy" / "1", place / "moved"))


def write(place, kind="letters", changes=None, **options):
    model = make_model(kind, **(changes or {}))
    tokenizer = make_tokenizer(kind)
    return export_saved_model(
        model, tokenizer, Config(model=model.config), str(place), **OPTIONS | options
    )


def signatures(*args, **options):
    return _loaded(folder_of(*args, **options))


@functools.cache
def _loaded(folder):
    return tf.saved_model.load(str(folder)).signatures


def call(signature, **inputs):
    return {
        k: v.numpy() for k, v in signature(**{k: tf.constant(v) for k, v in inputs.items()}).items()
    }


def initial(found, rows):
    return call(found["initial_state"], batch_size=rows)


def step(found, ids, state, lengths=None, name="step"):
    """Returns the scores of ids [B, T] and the state after them."""
    dtype = np.int64 if name == "step_int64" else np.int32
    lengths = np.full(len(ids), ids.shape[1]) if lengths is None else np.array(lengths)
    outputs = call(found[name], input_ids=ids.astype(dtype), lengths=lengths.astype(dtype), **state)
    return outputs.pop("scores"), outputs


def chain(found, segments, **options):
    state, scores = initial(found, len(segments[0])), []
    for ids in segments:
        new, state = step(found, ids, state, **options)
        scores.append(new)
    return scores


def model_chain(model, segments):
    mems, scores = None, []
    for ids in segments:
        new, mems = model(ids, mems)
        scores.append(np.asarray(new))
    return scores


def segments_of(rows, *sizes):
    return [helpers.draw_ids(rows, size, seed=i) for i, size in enumerate(sizes)]
