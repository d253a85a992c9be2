"""PyTorch files, written without PyTorch; see `pickled`."""

import numpy as np
from absl.testing import parameterized

import helpers
import pickled
from txl_tf.conversion.torch_reader import torch_files

NUMBERS = np.arange(24, dtype="<f4")
FORMATS = dict(zip=pickled.write_zip, legacy=pickled.write_legacy)


class TorchFileTest(parameterized.TestCase):
    """Base class of tests that write a PyTorch file and read it."""

    def setUp(self):
        super().setUp()
        self.path = helpers.temp_dir(self) / "model.pt"

    def write(self, form, value, storages, **options):
        FORMATS[form](self.path, value, storages, **options)
        return str(self.path)

    def load(self, form, value, storages=None, **options):
        storages = {"0": NUMBERS.tobytes()} if storages is None else storages
        return torch_files.load(self.write(form, value, storages, **options))

    def refuse(self, message, read=torch_files.load):
        """Asserts that the file is rejected, with a message that names it."""
        with self.assertRaisesRegex(ValueError, message) as caught:
            read(str(self.path))
        self.assertStartsWith(str(caught.exception), str(self.path))
        self.assertNotIn("\n", str(caught.exception))
