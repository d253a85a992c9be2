"""What pytest needs that absltest.main does for a test run as a program."""

import os
import pathlib

import pytest
from absl import flags, logging

for _name in ("KERAS_BACKEND", "TF_CONFIG"):  # left by a shell, they would steer what is tested
    os.environ.pop(_name, None)

flags.FLAGS.mark_as_parsed()  # else create_tempdir and every flag refuse to be read


@pytest.fixture(autouse=True)
def logs_from_info_on():
    """Tests read the log; whatever ran before in this process may have silenced it."""
    logging.set_verbosity(logging.INFO)


def pytest_collection_modifyitems(items):
    """Skips what TensorFlow itself cannot run where oneDNN is held below what the processor has.

    TensorFlow asks the processor whether oneDNN multiplies in 16 bits, not oneDNN, and ends in a
    segmentation fault where `ONEDNN_MAX_CPU_ISA` says otherwise.
    """
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    cpu = pathlib.Path("/proc/cpuinfo")
    limited = isa.startswith(("SSE", "AVX")) and not isa.startswith("AVX512")
    if limited and cpu.exists() and "avx512bw" in cpu.read_text():
        reason = f"TensorFlow crashes in products of 16 bits with ONEDNN_MAX_CPU_ISA={isa} here"
        for item in items:
            if "float16" in item.nodeid or item.get_closest_marker("half_precision"):
                item.add_marker(pytest.mark.skip(reason=reason))
