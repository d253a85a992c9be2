"""Base class of models that are made from a config, and saved with it."""

import dataclasses
from typing import Any

import keras

from txl_tf.configs.validation import from_dict


class ConfiguredModel(keras.Model):
    """Base class of models made from a config.

    Args:
      config: the architecture, of class `CONFIG`.
    """

    CONFIG: Any

    def __init__(self, config, **kwargs):
        if not isinstance(config, self.CONFIG):
            expected, actual = self.CONFIG.__name__, type(config).__name__
            article = "an" if expected[0] in "AEIOU" else "a"
            raise ValueError(f"config must be {article} {expected}, got a {actual}")
        super().__init__(**kwargs)
        self.config = config

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}

    @classmethod
    def from_config(cls, config):
        return cls(from_dict(cls.CONFIG, config.pop("config")), **config)
