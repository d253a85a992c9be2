"""Toy models on a server, for the tests of its clients."""

import pathlib

from absl.testing import absltest, parameterized

import c_api
import prediction_service
import toy_export
import trained
from txl_tf.serving_client import transport

WAYS = ("grpc", "rest")


class ServerTestCase(parameterized.TestCase):
    """Base class of tests with a server of two versions of "toy", and "half" of float16 state."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        cls.path = toy_export.write(folder / "toy", version=3)
        toy_export.write(folder / "toy", version=12)
        toy_export.write(folder / "half", state_dtype="float16")
        models = {"toy": folder / "toy", "half": folder / "half"}
        cls.service = cls.enterClassContext(prediction_service.Service(models))
        cls.model = cls.enterClassContext(c_api.Session(cls.path))

    def setUp(self):
        super().setUp()
        self.service.calls.clear()

    def connect(self, way, model="toy", version=None, timeout=30):
        server = getattr(self.service, way)
        return transport.connect(server, model, version=version, timeout=timeout)

    def run_client(self, way, *flags, model="toy", stdin="", code=0):
        server = f"--server={getattr(self.service, way)}"
        return trained.run(
            "serving_client", server, f"--model={model}", *flags, stdin=stdin, code=code
        )
