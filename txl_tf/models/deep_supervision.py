"""A Transformer-XL in training whose layers all predict the tokens to come."""

import keras

from txl_tf.layers.auxiliary_classifiers import AuxiliaryClassifiers
from txl_tf.models.transformer_xl import TransformerXL


@keras.saving.register_keras_serializable(package="txl_tf")
class DeeplySupervisedTransformerXL(TransformerXL):
    """`TransformerXL` with `AuxiliaryClassifiers`, whose losses `nll` adds in training.

    With learned positions in each layer and no memory, the character model of Al-Rfou et al. 2018
    (arXiv 1808.04444) in training. A `TransformerXL` loads the weights of all else for use, which
    `with_lengths` returns as well.

    Args:
      config: as in `TransformerXL`, without cut-offs.
      num_targets: number of tokens that each position predicts.
    """

    def __init__(self, config, *, num_targets=2, **kwargs):
        self.num_targets = num_targets
        super().__init__(config, **kwargs)

    def make_layers(self):
        super().make_layers()
        self.auxiliary = AuxiliaryClassifiers(
            num_layers=self.config.num_layers,
            vocab_size=self.config.vocab_size,
            num_targets=self.num_targets,
            dtype=self.dtype_policy,
            name="auxiliary",
        )

    def build(self, input_shape=None):
        super().build(input_shape)
        self.auxiliary.build([(None, None, self.config.d_model)] * self.config.num_layers)

    def nll(
        self,
        token_ids,
        targets,
        mems=None,
        lengths=None,
        document_start=None,
        dropout_key=None,
        training=False,
        progress=None,
    ):
        """Returns what `TransformerXL.nll` does, and adds the auxiliary losses.

        Shapes: progress [B] float32, the fraction of training that is done, the same in all rows;
        None adds no losses.
        """
        nll, states, mems = self._nll(
            token_ids, targets, mems, lengths, document_start, dropout_key, training
        )
        if progress is not None:
            self.auxiliary(states[1:], targets, progress)
        return nll, mems

    def with_lengths(self, **lengths):
        return TransformerXL(self.config, weights_of=self).with_lengths(**lengths)

    def get_config(self):
        return super().get_config() | {"num_targets": self.num_targets}
