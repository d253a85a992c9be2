"""Shared helpers: a tiny configuration, large weights, golden data, workers."""

import contextlib
import pathlib
import signal
import socket
import tempfile
import unittest

import numpy as np

from txl_tf.configs.model import TransformerXLConfig, XLNetConfig
from txl_tf.data import metadata, shards, tokenizers, vocabulary

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"  # small arrays, in every clone


def shared(path):
    """Returns a file or folder beside the project; skips the test if it is absent."""
    found = ROOT.parent / "shared" / path
    if not found.exists():
        raise unittest.SkipTest(f"needs ../shared/{path}, which is not here")
    return found


def program_names():
    """Returns the names of the modules of txl_tf.cli that are programs."""
    modules = sorted((ROOT / "txl_tf" / "cli").glob("*.py"))
    return [path.stem for path in modules if "\ndef run() -> NoReturn:" in path.read_text()]


def tiny_config(**changes):
    """Returns a config of V 11, L 2, D 8, H 2, K 4, F 16, no dropout, with `changes`."""
    sizes = dict(vocab_size=11, num_layers=2, d_model=8, num_heads=2, head_dim=4, d_inner=16)
    return TransformerXLConfig(**(sizes | dict(mem_len=4, dropout=0.0) | changes))


def tiny_xlnet(**changes):
    """An XLNet of the same sizes."""
    sizes = dict(vocab_size=11, num_layers=2, d_model=8, num_heads=2, head_dim=4, d_inner=16)
    return XLNetConfig(**(sizes | dict(mem_len=4, dropout=0.0) | changes))


def loud(model, seed=0, deviation=0.5):
    """Redraws all weights large enough to make errors visible; norms stay near 1. Returns model."""
    draw = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        centre = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(centre + draw.normal(scale=deviation, size=weight.shape))
    return model


def draw_ids(*shape, vocab_size=11, seed=0):
    """Returns int32 token ids, a function of the arguments."""
    return np.random.default_rng(seed).integers(vocab_size, size=shape).astype("int32")


def temp_dir(test):
    """Returns a new folder that is removed when `test` ends."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return pathlib.Path(folder.name)


def usual_signals(test):
    """Resets SIGINT and SIGTERM to their default actions until `test` ends, also in children.

    Processes that a shell starts in the background inherit SIGINT as ignored, and pass it on.
    """
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
    ):
        test.addCleanup(signal.signal, number, signal.signal(number, handler))


def write_data(folder, vocab_size=11, seed=0, **tokens):
    """Writes prepared data of random characters, `tokens` of each split; returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizers.CharTokenizer(
        vocabulary=vocabulary.Vocabulary([*map(chr, range(97, 96 + vocab_size)), "<unk>"]),
        end_of_line="none",
    )
    splits = {}
    for split, count in (tokens or dict(train=200, valid=60)).items():
        with shards.ShardWriter(folder, split, shard_tokens=64) as writer:
            writer.write(draw_ids(count, vocab_size=vocab_size, seed=seed), range(0, count, 37))
        splits[split] = metadata.SplitMetadata(
            shards=tuple(writer.shards), tokens=count, bytes=count, characters=count
        )
    tokenizer.save(str(folder))
    data = metadata.Metadata(
        tokenizer=dict(kind=tokenizer.kind, options=tokenizer.options),
        vocab_size=vocab_size,
        vocab_checksum=tokenizer.checksum,
        splits=splits,
    )
    (folder / metadata.FILE_NAME).write_text(data.to_json())
    return folder


def cluster(size):
    """Returns the TF_CONFIG of each worker, on free local ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(size)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        places = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    tasks = ({"type": "worker", "index": i} for i in range(size))
    return [{"cluster": {"worker": places}, "task": task} for task in tasks]
