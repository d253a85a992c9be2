"""Transformer-XL for TensorFlow 2 and Keras 3.

What `__all__` lists is the public API; all else can be imported by its path and may change. A name
loads on first use: importing the package loads no TensorFlow. `import txl_tf.models` registers the
layers and models with Keras, so that `keras.models.load_model` knows them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txl_tf.attention import ATTENTION
    from txl_tf.classification.classifier import Classifier
    from txl_tf.configs.model import (
        EncoderConfig,
        StarTransformerConfig,
        TransformerXLConfig,
        XLNetConfig,
    )
    from txl_tf.configs.presets import preset
    from txl_tf.configs.run import (
        Config,
        DataConfig,
        EvalConfig,
        TrainConfig,
        override,
        override_all,
    )
    from txl_tf.data.batches import Batches
    from txl_tf.data.prepare import prepare
    from txl_tf.data.recipe import Recipe
    from txl_tf.data.sliding import SlidingBatches
    from txl_tf.data.tokenizers import TOKENIZERS
    from txl_tf.data.tokenizers import load as load_tokenizer
    from txl_tf.export.edge.tflite import export_tflite
    from txl_tf.export.serving.saved_model import export_saved_model
    from txl_tf.feed_forward import FEED_FORWARD
    from txl_tf.inference.evaluation import evaluate
    from txl_tf.inference.generation import generate
    from txl_tf.inference.model_scorer import Scorer
    from txl_tf.inference.sampling import Sampling
    from txl_tf.model_dir import load
    from txl_tf.models.encoder import Encoder
    from txl_tf.models.masked_language_model import MaskedLanguageModel
    from txl_tf.models.memory import Memory
    from txl_tf.models.sequence_classifier import SequenceClassifier, TokenClassifier
    from txl_tf.models.star_transformer import StarTransformer
    from txl_tf.models.transformer_xl import TransformerXL
    from txl_tf.models.xlnet import XLNet
    from txl_tf.training.loop import train

__version__ = "0.1.0"

__all__ = [
    "ATTENTION",
    "FEED_FORWARD",
    "TOKENIZERS",
    "Batches",
    "Classifier",
    "Config",
    "DataConfig",
    "Encoder",
    "EncoderConfig",
    "EvalConfig",
    "MaskedLanguageModel",
    "Memory",
    "Recipe",
    "Sampling",
    "Scorer",
    "SequenceClassifier",
    "SlidingBatches",
    "StarTransformer",
    "StarTransformerConfig",
    "TokenClassifier",
    "TrainConfig",
    "TransformerXL",
    "TransformerXLConfig",
    "XLNet",
    "XLNetConfig",
    "evaluate",
    "export_saved_model",
    "export_tflite",
    "generate",
    "load",
    "load_tokenizer",
    "override",
    "override_all",
    "prepare",
    "preset",
    "train",
]

_HOMES = {
    "ATTENTION": "txl_tf.attention",
    "FEED_FORWARD": "txl_tf.feed_forward",
    "TOKENIZERS": "txl_tf.data.tokenizers",
    "Batches": "txl_tf.data.batches",
    "Classifier": "txl_tf.classification.classifier",
    "Config": "txl_tf.configs.run",
    "DataConfig": "txl_tf.configs.run",
    "Encoder": "txl_tf.models.encoder",
    "EncoderConfig": "txl_tf.configs.model",
    "EvalConfig": "txl_tf.configs.run",
    "MaskedLanguageModel": "txl_tf.models.masked_language_model",
    "Memory": "txl_tf.models.memory",
    "Recipe": "txl_tf.data.recipe",
    "Sampling": "txl_tf.inference.sampling",
    "Scorer": "txl_tf.inference.model_scorer",
    "SequenceClassifier": "txl_tf.models.sequence_classifier",
    "SlidingBatches": "txl_tf.data.sliding",
    "StarTransformer": "txl_tf.models.star_transformer",
    "StarTransformerConfig": "txl_tf.configs.model",
    "TokenClassifier": "txl_tf.models.sequence_classifier",
    "TrainConfig": "txl_tf.configs.run",
    "TransformerXL": "txl_tf.models.transformer_xl",
    "TransformerXLConfig": "txl_tf.configs.model",
    "XLNet": "txl_tf.models.xlnet",
    "XLNetConfig": "txl_tf.configs.model",
    "evaluate": "txl_tf.inference.evaluation",
    "export_saved_model": "txl_tf.export.serving.saved_model",
    "export_tflite": "txl_tf.export.edge.tflite",
    "generate": "txl_tf.inference.generation",
    "load": "txl_tf.model_dir",
    "load_tokenizer": "txl_tf.data.tokenizers",
    "override": "txl_tf.configs.run",
    "override_all": "txl_tf.configs.run",
    "prepare": "txl_tf.data.prepare",
    "preset": "txl_tf.configs.presets",
    "train": "txl_tf.training.loop",
}
_OTHER_NAMES = {"load_tokenizer": "load"}  # at home


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'txl_tf' has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    globals()[name] = value = getattr(home, _OTHER_NAMES.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
