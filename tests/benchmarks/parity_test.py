"""Parity with Hugging Face's own code, run side by side on random models.

TXL_PARITY_ENV names a virtual environment for it: `pip install torch==2.13.0 transformers==4.36.2`.
"""

import json
import math
import os
import pathlib
import subprocess
import unittest

import pytest
from absl.testing import absltest, parameterized

import helpers
import rounding
import trained
from txl_tf import model_dir as model_dirs

ENVIRONMENT = "TXL_PARITY_ENV"
SIZES = dict(n_layer=2, d_model=20, d_embed=20, n_head=3, d_head=6, d_inner=26, vocab_size=64)
CUTOFFS = dict(cutoffs=[12, 28, 45])
# One configuration a line: what differs from SIZES, tokens of a segment, rows.
CASES = [
    (CUTOFFS | dict(div_val=2, mem_len=7, clamp_len=6, same_length=True), 5, 2),
    (CUTOFFS | dict(div_val=2, d_embed=16, mem_len=9, clamp_len=-1, same_length=False), 4, 3),
    (CUTOFFS | dict(div_val=4, d_embed=64, share=False, mem_len=3, clamp_len=4), 6, 2),
    (CUTOFFS | dict(div_val=1, mem_len=5, clamp_len=-1, same_length=False), 5, 1),
    (CUTOFFS | dict(div_val=1, d_embed=14, mem_len=8, clamp_len=5), 5, 2),
    (CUTOFFS | dict(div_val=1, d_embed=14, share=False, mem_len=4, same_length=False), 3, 2),
    (CUTOFFS | dict(div_val=2, tie_word_embeddings=False, mem_len=6), 4, 2),
    (dict(cutoffs=[20, 40], div_val=3, untie_r=False, mem_len=12, n_layer=3, clamp_len=8), 7, 2),
    (CUTOFFS | dict(div_val=2, pre_lnorm=True, mem_len=6, layer_norm_epsilon=1e-3), 4, 2),
    (dict(cutoffs=[63], div_val=2, mem_len=6, untie_r=False, same_length=False), 1, 4),
    (dict(cutoffs=[], div_val=1, mem_len=6, untie_r=False, tie_word_embeddings=False), 6, 2),
    (dict(cutoffs=[], div_val=1, mem_len=6), 3, 1),
]


def python():
    """Returns the interpreter of the environment; skips the test without torch."""
    folder = os.environ.get(ENVIRONMENT)
    if not folder:
        raise unittest.SkipTest(f"{ENVIRONMENT} names no environment with torch and transformers")
    found = pathlib.Path(folder) / "bin" / "python"
    done = subprocess.run([found, "-c", "import torch, transformers"], capture_output=True)
    if done.returncode:
        raise unittest.SkipTest(f"{ENVIRONMENT}={folder} has no torch and transformers")
    return found


@pytest.mark.slow
class ParityTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        peer = python()
        cls.folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        cases = [
            dict(options=SIZES | options, segment_len=length, rows=rows, safe=i % 2 == 0)
            for i, (options, length, rows) in enumerate(CASES)
        ]
        program = helpers.ROOT / "tests" / "parity_peer.py"
        command = [peer, str(program), str(cls.folder)]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(
            command, input=json.dumps(cases).encode(), env=environment, check=True, timeout=600
        )

    @parameterized.parameters(*range(len(CASES)))
    def test_losses_and_memory_agree(self, index):
        source = self.folder / str(index)
        model_dir = helpers.temp_dir(self) / "model"
        stdout, _ = trained.run(
            "import_checkpoint",
            "--format=huggingface",
            f"--checkpoint={source}",
            f"--verify_io={source / 'io.npz'}",
            f"--model_dir={model_dir}",
        )
        found = trained.last_json(stdout)["differences"]
        self.assertLessEqual({"logprob", "mems"}, found.keys())
        # Weights have a deviation of 0.02, so log-probabilities are about uniform.
        config = model_dirs.read_config(str(model_dir)).model
        terms = rounding.stack_terms(config), config.d_model, config.vocab_size
        atol = rounding.tolerance(*terms, scale=2 * math.log(config.vocab_size))
        self.assertLess(max(found.values()), atol)


if __name__ == "__main__":
    absltest.main()
