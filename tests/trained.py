"""Small prepared data and a model_dir for it, for tests of programs and `inference`."""

import json
import pathlib

import helpers
import prepared
import programs
from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config, EvalConfig, TrainConfig
from txl_tf.data import prepare, recipe, tokenizers
from txl_tf.data import text as texts
from txl_tf.models.transformer_xl import TransformerXL

TEXT = prepared.text(1200)


def prepare_data(folder, tokenizer="byte", text=TEXT, **options):
    """Prepares `text` as the splits train and valid; returns the data_dir."""
    folder = pathlib.Path(folder) / "data"
    splits = {s: [texts.Source.from_text(f"{s}.txt", text)] for s in ("train", "valid")}
    prepare.prepare(splits, str(folder), recipe.Recipe(tokenizer=tokenizer, **options))
    return str(folder)


def describe(folder, data_dir, seed=4, mem_len=8, **changes):
    """Writes a model_dir for the data, with random weights; returns its path."""
    folder = str(pathlib.Path(folder) / "model")
    tokenizer = tokenizers.load(data_dir)
    sizes = dict(vocab_size=tokenizer.vocab_size, mem_len=mem_len, **changes)
    config = Config(
        model=helpers.tiny_config(**sizes),
        train=TrainConfig(batch_size=2, segment_len=8),
        eval=EvalConfig(batch_size=3),
    )
    model_dirs.describe(folder, config, tokenizer)
    model_dirs.save_weights(folder, helpers.loud(TransformerXL(config.model), seed, 0.3), step=7)
    return folder


def run(program, *flags, stdin="", code=0, fresh=False):
    """Runs a program of scripts/, expecting exit code `code`; returns stdout and stderr."""
    stdin = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = programs.run(program, *flags, stdin=stdin, fresh=fresh)
    stderr = done.stderr.decode()
    if done.returncode != code:
        raise AssertionError(f"exit code must be {code}, got {done.returncode}: {stderr}")
    return done.stdout.decode(), stderr


def last_json(stdout):
    """Returns the JSON object on the last line."""
    return json.loads(stdout.splitlines()[-1])
