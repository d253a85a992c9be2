"""Tests of txl_tf.export.edge.native_output."""

import os
import unittest.mock

from absl.testing import absltest

from txl_tf.export.edge import native_output


class SilenceTest(absltest.TestCase):
    def test_only_failures_speak(self):
        def fail(error):
            with native_output.suppress_native_output():
                os.write(2, b"chatter")
                raise error

        read, write = os.pipe()
        stderr = os.dup(2)
        os.dup2(write, 2)
        try:
            with unittest.mock.patch("sys.stderr", open(2, "w", closefd=False)):
                with self.assertRaises(ValueError):
                    fail(ValueError())
                with self.assertRaises(KeyError):
                    fail(KeyError())
        finally:
            os.dup2(stderr, 2)
            os.close(write)
        self.assertEqual(os.read(read, 100), b"chatter")


if __name__ == "__main__":
    absltest.main()
