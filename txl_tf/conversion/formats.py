"""Checkpoint formats that can be read, by name: one module each, implementing `Format`."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import huggingface, nvidia, pytorch, tensors, tf1


class Format(Protocol):
    """Interface of a format's module."""

    def read(self, checkpoint: str) -> tensors.Source:
        """Reads the files, as NumPy arrays."""

    def renamed(
        self, state: Mapping[str, np.ndarray], given: Mapping[str, Any]
    ) -> dict[str, tensors.Tensor]:
        """Returns the tensors in the TensorFlow original's layout, `original_layout.parameters`.

        Aliases are left out; unknown tensors keep their names. `given` are flags of the original,
        used where the tensors are ambiguous.
        """

    def source_name(self, name: str) -> str:
        """Returns the name in the checkpoint of a parameter of that layout."""

    def config_from_hparams(self, flags: Mapping[str, Any], /) -> TransformerXLConfig:
        """Returns the architecture of a complete set of flags, with this code's conventions."""


FORMATS: dict[str, Format] = {
    "tf1": tf1,
    "pytorch": pytorch,
    "nvidia": nvidia,
    "huggingface": huggingface,
}
