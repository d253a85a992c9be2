r"""Trains and evaluates a classifier of long texts, and labels new texts.

    txl-classify --train=TRAIN --valid=VALID --test=TEST --model_dir=MODEL
    txl-classify --init_from=PRETRAINED --train=TRAIN --valid=VALID --model_dir=MODEL
    txl-classify --test=TEST --model_dir=MODEL
    txl-classify --predict=TEXTS --model_dir=MODEL

TRAIN, VALID and TEST are files with one label<TAB>text per line, in which newlines, tabs, carriage
returns and backslashes of the text are written \n, \t, \r and \\; or folders with one subfolder per
label and one file per text. The labels are those of TRAIN. The weights with the best validation are
kept. Prints one JSON object for VALID and one for TEST, or one for TRAIN if there is neither:
{split, texts, accuracy, macro_f1, nats, labels, step, model_dir}, and except for VALID the duration
in seconds.

TEXTS is a file with one text per line, escaped likewise, - for standard input, or a folder of
files; a line with a tab, like a labelled one, is refused.
Prints one JSON object per text: {text, label, probabilities}, where text is its line or path.
"""

import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from absl import app, flags

from txl_tf.classification import config as configs
from txl_tf.cli import config_flags, entry_point
from txl_tf.configs.backbones import BACKBONES
from txl_tf.data import labelled_text, outputs, text
from txl_tf.progress import Progress

if TYPE_CHECKING:
    from txl_tf.classification.classifier import Classifier
    from txl_tf.data.tokenizers import Tokenizer

_TRAIN = flags.DEFINE_string("train", None, "Labelled texts to train on: a file or a folder.")
_VALID = flags.DEFINE_string("valid", None, "Labelled texts that select the best weights.")
_TEST = flags.DEFINE_string("test", None, "Labelled texts to evaluate the best weights on.")
_PREDICT = flags.DEFINE_string("predict", None, "Texts to label: a file, a folder, or -.")
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Folder of the classifier; new or empty with --train.", required=True
)
_INIT_FROM = flags.DEFINE_string(
    "init_from",
    None,
    "Pre-trained model, the output of train or import_checkpoint, whose weights, architecture and "
    "tokenizer the backbone starts from.",
)
_BACKBONE = flags.DEFINE_enum(
    "backbone",
    "encoder",
    list(BACKBONES),
    "encoder: bidirectional, reads a text at once; xlnet: likewise, an XLNet; causal: a "
    "Transformer-XL, reads it segment by segment with a memory; star: a Star-Transformer, reads it "
    "at once.",
)
_SHORTHANDS = {
    "tokenizer": "text.tokenizer",
    "max_tokens": "text.max_tokens",
    "keep": "text.keep",
    "pooling": "text.pooling",
    "global_tokens": "text.global_tokens",
    "batch_size": "train.batch_size",
    "segment_len": "train.segment_len",
    "train_steps": "train.train_steps",
    "warmup_steps": "train.warmup_steps",
    "learning_rate": "train.learning_rate",
    "eval_every": "train.eval_every",
    "precision": "train.precision",
    "jit": "train.jit",
    "seed": "train.seed",
}
_HELPS = {  # where the docstring of the field would not do
    "tokenizer": "byte, char or word; the vocabulary is that of the training texts.",
    "batch_size": "Texts per optimizer step.",
    "segment_len": "Number of tokens that a causal backbone reads at once.",
    "precision": "float32 or bfloat16; weights, norms, scores and loss stay float32.",
    "jit": "Whether to compile the step with XLA; none compiles on a GPU only.",
    "seed": "Seed of the initial weights, of dropout and of the order of texts.",
}
config_flags.define_shorthands(_SHORTHANDS, configs.ClassifierConfig, _HELPS)


def main(argv: list[str]) -> None:
    del argv  # entry_point refuses positional arguments
    if _PREDICT.value is None and _TRAIN.value is None and _TEST.value is None:
        raise app.UsageError("--train, --test or --predict is required")
    if _PREDICT.value is not None:
        config_flags.refuse("--predict only labels texts", "train", "valid", "test")
    if _TRAIN.value is None:
        config_flags.refuse(
            "it needs --train", "valid", "init_from", "backbone", "set", *_SHORTHANDS
        )
    entry_point.log_devices()
    if _PREDICT.value is not None:
        _predict(_PREDICT.value)
    elif _TRAIN.value is not None:
        _train(_TRAIN.value)
    else:
        classifier = _load()
        _evaluate(classifier, "test", _read(_held_out()["test"], classifier.config.labels))


def _load() -> "Classifier":
    from txl_tf.classification.classifier import Classifier

    return Classifier.load(_MODEL_DIR.value)


def _train(path: str) -> None:
    import keras

    from txl_tf.classification import batches, training
    from txl_tf.classification.classifier import Classifier

    start, pretrained = _start()
    folder = outputs.checked("model_dir", _MODEL_DIR.value)
    if not start.model.is_causal:
        config_flags.refuse("the backbone reads a text at once", "segment_len")
    config_flags.resolve(start)  # reports invalid flags first
    texts = labelled_text.read(path)
    labels = labelled_text.labels_of(texts, path)
    others = {name: _read(path, labels) for name, path in _held_out().items()}
    start = dataclasses.replace(start, labels=labels)
    tokenizer = pretrained or batches.make_tokenizer(config_flags.resolve(start).text, texts)
    sizes = {} if pretrained else {"model.vocab_size": tokenizer.vocab_size}
    config = config_flags.resolve(start, sizes)
    if config.model.vocab_size < tokenizer.vocab_size:
        raise ValueError(
            f"model.vocab_size must be at least the {tokenizer.vocab_size} of the texts, "
            f"got {config.model.vocab_size}"
        )
    keras.utils.set_random_seed(config.train.seed)
    classifier = Classifier(config, tokenizer)
    if _INIT_FROM.value is not None:
        classifier.take_weights(_INIT_FROM.value)
    best = training.train(classifier, texts, others.get("valid"), folder)
    if best is not None:
        _print("valid", classifier, best.to_dict())
    if "test" in others or best is None:
        split = "test" if "test" in others else "train"
        _evaluate(classifier, split, others.get("test", texts))


def _start() -> "tuple[configs.ClassifierConfig, Tokenizer | None]":
    """Returns the config before flags, and the tokenizer of a pre-trained model."""
    if _INIT_FROM.value is None:
        return configs.start(_BACKBONE.value), None
    from txl_tf import model_dir as model_dirs
    from txl_tf.data import tokenizers

    config_flags.refuse("it is that of --init_from", "backbone", "tokenizer")
    model = model_dirs.read_config(_INIT_FROM.value).model
    tokenizer = tokenizers.load(_INIT_FROM.value)
    return configs.start_from(model, tokenizer.kind), tokenizer


def _held_out() -> dict[str, str]:
    """Split -> path."""
    given = {"valid": _VALID.value, "test": _TEST.value}
    return {split: path for split, path in given.items() if path is not None}


def _read(path: str, labels: tuple[str, ...]) -> list[labelled_text.Text]:
    texts = labelled_text.read(path)
    labelled_text.check_labels(texts, labels)
    return texts


def _evaluate(classifier: "Classifier", split: str, texts: list[labelled_text.Text]) -> None:
    start = time.monotonic()
    encoded = classifier.encode(texts)
    if split != "train":  # training has warned already
        classifier.warn_of_cut(encoded.cut, len(texts), split)
    scores = classifier.evaluate(encoded)
    seconds = round(time.monotonic() - start, 1)
    _print(split, classifier, scores.to_dict() | {"seconds": seconds})


def _print(split: str, classifier: "Classifier", scores: dict[str, object]) -> None:
    about = {
        "labels": len(classifier.config.labels),
        "step": classifier.step,
        "model_dir": _MODEL_DIR.value,
    }
    print(json.dumps({"split": split} | scores | about))


def _predict(path: str) -> None:
    classifier = _load()
    if path == "-":
        source = text.Source("standard input", 0, lambda: sys.stdin.buffer)
        texts = labelled_text.from_lines(source)
    else:
        texts = labelled_text.read_unlabelled(path)
    with Progress("predict", "texts") as progress:
        for count, (found, probabilities) in enumerate(classifier.predict(texts), 1):
            label = max(probabilities, key=probabilities.__getitem__)
            result = {"text": found.name, "label": label, "probabilities": probabilities}
            print(json.dumps(result, ensure_ascii=False))
            progress.reach(count)


def run() -> NoReturn:
    entry_point.run(main)


if __name__ == "__main__":
    run()
