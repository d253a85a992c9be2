"""Contract of feed-forward nets."""

import keras

from txl_tf.configs import layer_specs


class FeedForward(keras.layers.Layer):
    """Base class of feed-forward nets. Subclasses implement `call`; their options are their spec's.

    Shapes: [B, T, D] -> [B, T, D], hidden width F. The caller drops the result.

    Args:
      spec: the kind's `configs.layer_specs.LayerSpec`.
      d_model: D.
      d_inner: F.
      dropout: rate after the activation.
      site: its dropout site; see `ops.dropout`.
      init_std: standard deviation of the initializer of the weights that the subclass defines.
    """

    ROUTES = False  # whether the net routes each token to one of several; see `routing`

    def __init__(self, spec, *, d_model, d_inner, dropout=0.0, site=0, init_std=0.02, **kwargs):
        super().__init__(**kwargs)
        self.spec = spec
        self.d_model = d_model
        self.d_inner = d_inner
        self.dropout = dropout
        self.site = site
        self.init_std = init_std

    def get_config(self):
        own = ("d_model", "d_inner", "dropout", "site", "init_std")
        fields = {name: getattr(self, name) for name in own}
        return super().get_config() | fields | {"spec": str(self.spec)}

    @classmethod
    def from_config(cls, config):
        spec = layer_specs.parse(layer_specs.FEED_FORWARD, config["spec"])
        return cls(**{**config, "spec": spec})
