"""The checkpoints that can be read, by name: one module each, with the functions of `Format`."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from txl_tf.configs.model import TransformerXLConfig
from txl_tf.conversion import huggingface, nvidia, pytorch, tensors, tf1


class Format(Protocol):
    """What the module of a format has."""

    def read(self, checkpoint: str) -> tensors.Source:
        """Reads the files, as NumPy arrays."""

    def renamed(
        self, state: Mapping[str, np.ndarray], given: Mapping[str, Any]
    ) -> dict[str, tensors.Tensor]:
        """The model's tensors in the layout of the TensorFlow original, `original.parameters`.

        Tensors that repeat others are left out; what is not known keeps its name. `given` are flags
        of the original, read where the tensors do not tell.
        """

    def source_name(self, name: str) -> str:
        """What a parameter of that layout is called in the checkpoint."""

    def config_from_hparams(self, flags: Mapping[str, Any], /) -> TransformerXLConfig:
        """The architecture of a complete set of flags, with the habits of this code."""


FORMATS: dict[str, Format] = {
    "tf1": tf1,
    "pytorch": pytorch,
    "nvidia": nvidia,
    "huggingface": huggingface,
}
