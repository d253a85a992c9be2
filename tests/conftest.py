"""What pytest needs that absltest.main does for a test run as a program."""

import os

import pytest
from absl import flags, logging

for _name in ("KERAS_BACKEND", "TF_CONFIG"):  # left by a shell, they would steer what is tested
    os.environ.pop(_name, None)

flags.FLAGS.mark_as_parsed()  # else create_tempdir and every flag refuse to be read


@pytest.fixture(autouse=True)
def logs_from_info_on():
    """Tests read the log; whatever ran before in this process may have silenced it."""
    logging.set_verbosity(logging.INFO)
