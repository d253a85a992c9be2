"""Base class of the layers that a `LayerConfig` describes."""

import keras

from txl_tf.configs.model import LayerConfig


class ConfiguredLayer(keras.layers.Layer):
    """Keeps the config, and restores it from its text.

    Args:
      config: the `LayerConfig`.
      site: the first dropout site of the layer; see `ops.dropout`.
    """

    def __init__(self, config, *, site=0, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.site = site

    def get_config(self):
        return super().get_config() | {"config": self.config.to_dict(), "site": self.site}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": LayerConfig.from_dict(config["config"])})
