"""Parity of XLNet with Hugging Face's own code, run side by side on random models.

TXL_PARITY_ENV names a virtual environment for it, as in parity_test; transformers 4.57.6 works too.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import parity_test
import pytest
import safetensors.numpy
from absl.testing import absltest, parameterized

import helpers
import rounding
import trained
from txl_tf import model_dir as model_dirs

SIZES = dict(n_layer=2, d_model=12, n_head=3, d_inner=26, vocab_size=23, dropout=0.0)
CASES = [
    dict(mem_len=7),
    dict(mem_len=9, clamp_len=4, ff_activation="gelu_new"),
    dict(mem_len=6, attn_type="uni", same_length=True, layer_norm_eps=1e-3),
    dict(mem_len=12, attn_type="uni", ff_activation="relu"),
]


@pytest.mark.slow
class ParityTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        peer = parity_test.python()
        cls.folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        cases = [dict(options=SIZES | c, safe=i % 2 == 0) for i, c in enumerate(CASES)]
        program = helpers.ROOT / "tests" / "parity_xlnet_peer.py"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(
            [peer, str(program), str(cls.folder)],
            input=json.dumps(cases).encode(),
            env=environment,
            check=True,
            timeout=600,
        )

    @parameterized.parameters(*range(len(CASES)))
    def test_logits_and_memory_agree_there_and_back(self, index):
        source, folder = self.folder / str(index), helpers.temp_dir(self)
        flags = ("--format=xlnet", f"--model_dir={folder / 'model'}")
        trained.run("import_checkpoint", *flags, f"--checkpoint={source}")
        model = model_dirs.load(str(folder / "model")).model
        io = np.load(source / "io.npz")
        (first, second), atol = io["ids"], rounding.of_scores(model.config)
        if model.config.attention_span is not None:  # there of the slots that are filled
            model = model.with_lengths(attention_span=1)
        scores, mems = model(first, segments=first % 2)
        np.testing.assert_allclose(scores, io["first"], rtol=0, atol=atol)
        if model.config.attention_span is not None:
            model = model.with_lengths(attention_span=first.shape[1] + 1)
        scores, after = model(second, mems, segments=second % 2)
        np.testing.assert_allclose(scores, io["second"], rtol=0, atol=atol)
        found = np.transpose(after.states, (0, 2, 1, 3))[:, -io["mems"].shape[1] :]
        np.testing.assert_allclose(found, io["mems"], rtol=0, atol=atol)
        if model.config.bidirectional:
            targets = np.broadcast_to(np.array([1, 4], "int32"), [len(second), 2])
            given = dict(segments=second % 2, visible=io["visible"], target_positions=targets)
            scores, _ = model(second, mems, **given)
            np.testing.assert_allclose(scores, io["streams"], rtol=0, atol=atol)
        trained.run("export_checkpoint", *flags, f"--output_dir={folder / 'back'}")
        if (source / "model.safetensors").exists():
            back = safetensors.numpy.load_file(folder / "back" / "model.safetensors")
            theirs = safetensors.numpy.load_file(source / "model.safetensors")
            theirs.pop("lm_loss.weight", None)  # tied
            self.assertEqual(back.keys(), theirs.keys())
            for name, value in theirs.items():
                np.testing.assert_array_equal(back[name], value, name)


if __name__ == "__main__":
    absltest.main()
