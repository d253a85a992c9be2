"""Set-up for pytest that absltest.main does when a test runs as a program."""

import os
import pathlib

import pytest
from absl import flags, logging

for _name in ("KERAS_BACKEND", "TF_CONFIG"):  # left by a shell, they would steer what is tested
    os.environ.pop(_name, None)

flags.FLAGS.mark_as_parsed()  # else create_tempdir and every flag refuse to be read


@pytest.fixture(autouse=True)
def logs_from_info_on():
    """Resets the verbosity, which earlier tests may have changed: tests read the log."""
    logging.set_verbosity(logging.INFO)


def pytest_collection_modifyitems(items):
    """Skips tests in which TensorFlow would crash if oneDNN is limited below the processor.

    TensorFlow asks the processor, not oneDNN, whether 16-bit products are available, and ends in a
    segmentation fault if `ONEDNN_MAX_CPU_ISA` excludes them.
    """
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    cpu = pathlib.Path("/proc/cpuinfo")
    limited = isa.startswith(("SSE", "AVX")) and not isa.startswith("AVX512")
    if limited and cpu.exists() and "avx512bw" in cpu.read_text():
        reason = f"TensorFlow crashes in products of 16 bits with ONEDNN_MAX_CPU_ISA={isa} here"
        for item in items:
            if "float16" in item.nodeid or item.get_closest_marker("half_precision"):
                item.add_marker(pytest.mark.skip(reason=reason))
