"""A label for each token of a text."""

import keras

from txl_tf.models.labels import label_layer
from txl_tf.models.task_head import Head


@keras.saving.register_keras_serializable(package="txl_tf")
class TokenClassifier(Head):
    """Scores of labels for each token; with a causal backbone, of what it has seen by then.

    Shapes: those of `Head`; scores are [B, T, num_labels], targets [B, T], -1 where ignored;
    beyond lengths all are.

    Args:
      config, segment_len: see `Head`.
      num_labels: how many there are; at least 2.
    """

    def __init__(self, config, num_labels, *, segment_len=None, **kwargs):
        if num_labels < 2:
            raise ValueError(f"num_labels must be at least 2, got {num_labels}")
        super().__init__(config, segment_len=segment_len, **kwargs)
        self.num_labels = num_labels
        self.label_scores = label_layer(config, num_labels)
        self.build()

    def build(self, input_shape=None):
        self.label_scores.build((None, None, self.config.d_model))

    def scores_of(self, states, lengths):
        del lengths
        return self.label_scores(states)

    def get_config(self):
        return super().get_config() | {"num_labels": self.num_labels}
