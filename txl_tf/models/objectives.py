"""Training objectives: the model of each, and what it predicts of a segment of text."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.configs import objectives
from txl_tf.models.deep_supervision import DeeplySupervisedTransformerXL
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.models.xlnet import XLNet
from txl_tf.ops import permutation
from txl_tf.ops.shapes import shape_of


class Examples(NamedTuple):
    """Arguments of a model's `nll`."""

    inputs: dict[str, Any]  # by name, [B, ...] each
    targets: Any  # [B, N] int32, -1 where ignored


class _Objective:
    """Base class of objectives.

    Args:
      spec: the `configs.objectives.Objective` of that name.
    """

    MODEL: Any

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def make_model(self, config, **kwargs):
        """Returns a new model to train."""
        return self.MODEL(config, **kwargs)

    def for_use(self, model):
        """Returns the model without the weights that only training needs."""
        return model

    def examples(self, ids, targets, document_start=None, key=None, progress=None) -> Examples:
        """Returns what a segment gives to learn from.

        Shapes:
          ids: [B, T] int32.
          targets: [B, T] int32, the next tokens, -1 in padding.
          document_start: [B, T] bool, or None to ignore documents.

        Args:
          ids, targets, document_start: see above.
          key: a `DropoutKey`, of which all draws are a function.
          progress: [] float32, the fraction of training that is done; None outside of training.
        """
        raise NotImplementedError


class CausalObjective(_Objective):
    """Every token predicts the next one."""

    MODEL: Any = TransformerXL

    def examples(self, ids, targets, document_start=None, key=None, progress=None) -> Examples:
        del key, progress
        inputs = {"token_ids": ids}
        if document_start is not None:
            inputs["document_start"] = document_start
        return Examples(inputs, targets)


class AuxiliaryObjective(CausalObjective):
    """Every layer predicts the next token, and those after it; see `AuxiliaryClassifiers`."""

    MODEL: Any = DeeplySupervisedTransformerXL

    def make_model(self, config, **kwargs):
        return self.MODEL(config, num_targets=self.spec.targets, **kwargs)

    def for_use(self, model):
        return model.with_lengths()

    def examples(self, ids, targets, document_start=None, key=None, progress=None) -> Examples:
        found = super().examples(ids, targets, document_start)
        if progress is None:
            return found
        of_rows = tf.fill([shape_of(ids)[0]], progress)
        return Examples(found.inputs | {"progress": of_rows}, targets)


class PermutationObjective(_Objective):
    """Spans of tokens are predicted in a random order; see `ops.permutation`."""

    MODEL: Any = XLNet

    def examples(self, ids, targets, document_start=None, key=None, progress=None) -> Examples:
        del document_start, progress  # configs refuse documents
        lengths = tf.math.count_nonzero(targets != -1, axis=1, dtype=tf.int32)
        drawn = permutation.permute(
            ids,
            key,
            num_predict=self.spec.num_predict(ids.shape[1]),
            lengths=lengths,
            max_span=self.spec.max_span,
            block=self.spec.block,
        )
        inputs = {
            "token_ids": ids,
            "lengths": lengths,
            "visible": drawn.visible,
            "target_positions": drawn.positions,
        }
        return Examples(inputs, drawn.targets)


OBJECTIVES: Mapping[str, Any] = {
    "causal": CausalObjective,
    "auxiliary": AuxiliaryObjective,
    "permutation": PermutationObjective,
}


def make(spec: objectives.Objective) -> Any:
    """Returns the objective of a spec."""
    return OBJECTIVES[spec.name](spec)
