"""Specs of training objectives: what a model predicts, as named by `train.objective`."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from txl_tf.configs import layer_specs
from txl_tf.configs.layer_specs import Spec
from txl_tf.configs.model import StackConfig, TransformerXLConfig, XLNetConfig
from txl_tf.configs.validation import LONGEST, check_between

if TYPE_CHECKING:
    from txl_tf.configs.run import Config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective(Spec):
    """Base class of specs of objectives.

    Attributes:
      model: class of the configs of its models.
      predicts_all: whether every token is predicted.
    """

    model: ClassVar[type[StackConfig]]
    predicts_all: ClassVar[bool] = True

    def num_predict(self, num_tokens: int) -> int:
        """Returns the number of targets of a segment."""
        return num_tokens

    def check_run(self, config: "Config") -> None:
        """Raises if the objective does not support the rest of a run, whose model is of its class.

        Raises:
          ValueError: gives the reason.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Causal(Objective):
    """Prediction of the next token, by a Transformer-XL."""

    name = "causal"
    model = TransformerXLConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auxiliary(Causal):
    """Prediction of the next token by every layer, and of the ones after it.

    See `txl_tf.layers.auxiliary_classifiers`. Only training makes these predictions.

    Attributes:
      targets: number of tokens that each position predicts.
    """

    name = "auxiliary"

    targets: int = 2

    def _check(self) -> None:
        check_between(self, 1, 100, "targets")

    def check_run(self, config: "Config") -> None:
        if config.model.cutoffs:
            raise ValueError(
                f"cutoffs must be empty for objective {self}, whose classifiers score every word, "
                f"got {config.model.cutoffs}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Permutation(Objective):
    """Prediction of spans in a random order, by an XLNet; see `txl_tf.ops.permutation`.

    Attributes:
      context: tokens of a segment for each that is predicted.
      max_span: maximum number of tokens of a span.
      block: tokens of a block in whose order targets are permuted; None is the segment.
    """

    name = "permutation"
    model = XLNetConfig
    predicts_all = False

    context: int = 6
    max_span: int = 5
    block: int | None = None

    def _check(self) -> None:
        check_between(self, 1, LONGEST, "context", "block")
        check_between(self, 1, 1000, "max_span")

    def num_predict(self, num_tokens: int) -> int:
        return max(num_tokens // self.context, 1)

    def check_run(self, config: "Config") -> None:
        train = config.train
        if config.model.reuse_len is not None:
            raise ValueError(
                "reuse_len must be none in training, whose segments do not overlap, "
                f"got {config.model.reuse_len}"
            )
        if train.scored_fraction != 1:
            raise ValueError(
                f"scored_fraction must be 1 for objective {train.objective}, which scores "
                f"the tokens that it draws, got {train.scored_fraction}"
            )
        if config.data.reset_memory_at_documents:
            raise ValueError(
                f"reset_memory_at_documents must be false for objective {train.objective}, got true"
            )
        if train.sample_length:
            raise ValueError(
                f"sample_length must be 0 for objective {train.objective}, which does not "
                f"generate text, got {train.sample_length}"
            )


OBJECTIVES: Mapping[str, type[Objective]] = {
    objective.name: objective for objective in (Causal, Auxiliary, Permutation)
}

NEXT_TOKEN = tuple(name for name, spec in OBJECTIVES.items() if issubclass(spec, Causal))


def parse(text: str) -> Objective:
    """Returns the objective that `text` names, with its options.

    Raises:
      ValueError: the text names none, or an option is unknown or breaks a rule.
    """
    return layer_specs.parse(OBJECTIVES, text)
