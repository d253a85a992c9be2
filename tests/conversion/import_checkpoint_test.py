"""Tests of scripts/import_checkpoint.py on the originals' own files, and on damaged ones."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.conversion import original_layout
from txl_tf.data import tokenizers
from txl_tf.models.memory import Memory

TENSORFLOW = [
    "T1_char_tied_r",
    "T2_char_eval_same_length_clamp",
    "T3_word_div2_tied_projs",
    "T4_base_div1",
    "T5_lm1b_div4_untied_projs",
    "T8_div1_embed_proj",
    "T9_nocutoff_embed_proj",
]
PYTORCH = [
    "P1_attn0_adaptive",
    "P1n_attn0_adaptive_prelnorm",
    "P2_attn1_learned_relative",
    "P2r_attn1_reset_length",
    "P3_attn2_absolute_sinusoid",
    "P3n_attn2_absolute_sinusoid_prelnorm",
    "P4_attn3_absolute_learned",
]
HUGGING_FACE = "P5_hf_transfo_xl"
CASES = [
    *(("tf1", case, "") for case in TENSORFLOW),
    *(
        ("pytorch", case, file)
        for case in PYTORCH
        for file in ("model_state.pt", "model.safetensors")
    ),
    *(("huggingface", HUGGING_FACE, f) for f in ("", "pytorch_model.bin", "model.safetensors")),
]
P1, T3 = "P1_attn0_adaptive", "T3_word_div2_tied_projs"


def run(test, *flags, code=0, model_dir=None):
    """Runs the program -> (model_dir, its result or None, stderr)."""
    model_dir = model_dir or helpers.temp_dir(test) / "model"
    stdout, stderr = trained.run("import_checkpoint", f"--model_dir={model_dir}", *flags, code=code)
    return model_dir, trained.last_json(stdout) if stdout else None, stderr


def atol_of(model, loss):
    """Returns the tolerance of nats of the size of this loss."""
    terms = rounding.stack_terms(model.config), model.config.d_model, model.config.vocab_size
    return rounding.tolerance(*terms, scale=float(loss))


@pytest.mark.slow
class GoldenTest(parameterized.TestCase):
    @parameterized.parameters(*CASES)
    def test_gives_the_originals_outputs(self, source_format, case, file):
        folder = helpers.shared(f"golden/{case}")
        name = "case.json" if case == HUGGING_FACE else "config.json"
        told = json.loads((folder / name).read_text())
        reset = told.get("reset_length")
        model_dir, found, stderr = run(
            self,
            f"--format={source_format}",
            f"--checkpoint={folder / file}",
            f"--verify_io={folder / 'io.npz'}",
            *([f"--mem_len={reset['mem_len']}"] if reset else []),
        )
        kinds = {"nll", "losses", "hidden", "last_hidden", "mems", "logprob"}
        kinds &= {array.rpartition("_")[0] for array in np.load(folder / "io.npz")}
        self.assertEqual(found["differences"].keys(), kinds)
        for kind, difference in found["differences"].items():
            self.assertLessEqual(difference, told["suggested_atol"][kind], kind)
        loaded = model_dirs.load(str(model_dir))
        self.assertEqual(found["parameters"], loaded.model.count_params())
        self.assertEqual(found["step"], loaded.step)
        self.assertEqual(found["step"], told.get("checkpoint", {}).get("global_step", 0))
        self.assertIn(" -> block_*/attention/query_kernel + ", stderr)

    @parameterized.parameters("init", "final")
    def test_training_before_and_after(self, which):
        folder = helpers.shared("golden/T6_training_12_steps")
        io = np.load(folder / "io.npz")
        model_dir, found, _ = run(
            self,
            "--format=tf1",
            f"--checkpoint={folder / which}",
            f"--config={folder / 'config.json'}",
        )
        self.assertEqual(found["step"], {"init": 0, "final": 12}[which])
        model = model_dirs.load(str(model_dir)).model
        if which == "init":
            nll, _ = model.nll(io["inputs"][0].T, io["labels"][0].T)
            atol = atol_of(model, io["loss"][0])
            self.assertAlmostEqual(float(np.mean(nll)), float(io["loss"][0]), delta=atol)
        else:
            norms = json.loads((folder / "final_norms.json").read_text())
            for name, value in original_layout.values_of(model).items():
                expected = norms[f"transformer/{name}"]["l2"]
                rtol = rounding.tolerance(np.size(value))  # a sum of squares, all of one sign
                np.testing.assert_allclose(np.linalg.norm(value), expected, rtol=rtol)

    def test_a_loss_after_a_given_memory(self):
        folder = helpers.shared("golden/T7_gradients")
        io = np.load(folder / "io.npz")
        model_dir, _, _ = run(self, "--format=tf1", f"--checkpoint={folder}/model.ckpt-0")
        model = model_dirs.load(str(model_dir)).model
        states = tuple(tf.constant(s.transpose(1, 0, 2)) for s in io["mems_in"])
        mems = Memory(states, tf.fill([2], model.config.mem_len))
        nll, _ = model.nll(io["inputs"].T, io["labels"].T, mems)
        atol = atol_of(model, io["loss"])
        self.assertAlmostEqual(float(np.mean(nll)), float(io["loss"]), delta=atol)


@pytest.mark.slow
class ProgramTest(parameterized.TestCase):
    def golden(self, case, *flags, code=0):
        folder = helpers.shared(f"golden/{case}")
        return run(self, "--format=tf1", f"--checkpoint={folder}", *flags, code=code)

    def test_a_vocabulary_and_a_change_by_set(self):
        folder = helpers.temp_dir(self)
        symbols = ["<eos>", *(f"w{i}" for i in range(99)), "<unk>"]
        (folder / "vocab.txt").write_text("\n".join(symbols) + "\n")
        model_dir, found, stderr = self.golden(
            T3, f"--vocab={folder / 'vocab.txt'}", "--set=model.dropout=0.25", "--clamp_len=5"
        )
        loaded = model_dirs.load(str(model_dir))
        self.assertEqual(loaded.tokenizer.encode("w2 w0\n").tolist(), [3, 1, 0])
        self.assertEqual((loaded.config.model.dropout, loaded.config.model.clamp_len), (0.25, 5))
        self.assertIn("--clamp_len", found["config_source"])
        self.assertNotIn("without --vocab", stderr)

    def test_without_a_vocabulary_text_is_ids(self):
        model_dir, _, stderr = self.golden(T3)
        self.assertIn("without --vocab the model reads token ids written as numbers", stderr)
        self.assertEqual(tokenizers.load(str(model_dir)).encode("17 4 100").tolist(), [17, 4, 100])
        stdout, _ = trained.run("score", f"--model_dir={model_dir}", "--input=-", stdin="17 4 9")
        self.assertEqual(trained.last_json(stdout)["num_tokens"], 3)

    def test_mismatches_are_rejected_by_message(self):
        folder = helpers.temp_dir(self)
        (folder / "vocab.txt").write_text("a\nb\n")
        (folder / "config.json").write_text('{"n_layer": 3, "mem_len": 4}')
        for flags, message in (
            ([f"--vocab={folder / 'vocab.txt'}"], "vocab must have 101 symbols.*, got 2"),
            ([f"--config={folder / 'config.json'}"], "n_layer must be 2, .* got 3"),
            (["--set=model.d_inner=31"], r"layer_0/ff/layer_1/bias must have shape \(31,\), got"),
            (["--preset=wt103_base"], "must be .*, as in the tensors"),
            (["--format=huggingface"], "checkpoint must hold model.safetensors or pytorch_model"),
            (["--verify_io=/nowhere"], "verify_io must be an .npz file, got /nowhere"),
        ):
            model_dir, _, stderr = self.golden(T3, *flags, code=1)
            self.assertRegex(stderr.splitlines()[-1], f"^import_checkpoint: error: .*{message}")
            self.assertEqual(list(model_dir.parent.iterdir()), [])

    def test_a_model_dir_that_exists_stays(self):
        mine = helpers.temp_dir(self)
        (mine / "config.json").write_text("dear")
        folder = helpers.shared(f"golden/{T3}")
        _, _, stderr = run(self, "--format=tf1", f"--checkpoint={folder}", model_dir=mine, code=1)
        self.assertIn(f"model_dir must be new or an empty folder, got {mine}", stderr)
        self.assertEqual((mine / "config.json").read_text(), "dear")

    def test_other_outputs_are_refused(self):
        folder, case = helpers.temp_dir(self), helpers.shared(f"golden/{T3}")
        arrays = dict(np.load(case / "io.npz"))
        arrays["nll_1"] = arrays["nll_1"] + np.float32(0.01)
        np.savez(folder / "io.npz", **arrays)
        model_dir, _, stderr = self.golden(T3, f"--verify_io={folder / 'io.npz'}", code=1)
        self.assertRegex(stderr, "outputs must agree within 3e-05, got differences: nll by 0.01")
        self.assertFalse(model_dir.exists())

    def damaged(self, message, change):
        """Runs on P1's safetensors after `change` of its tensors, and expects the message."""
        case, folder = helpers.shared(f"golden/{P1}"), helpers.temp_dir(self)
        state = safetensors.numpy.load_file(case / "model.safetensors")
        path = folder / "model.safetensors"
        change(state)
        safetensors.numpy.save_file(state, path)
        flags = ["--format=pytorch", f"--checkpoint={path}", f"--config={case / 'config.json'}"]
        model_dir, _, stderr = run(self, *flags, code=1)
        self.assertRegex(stderr.splitlines()[-1], message)
        self.assertEqual(list(model_dir.parent.iterdir()), [])

    def test_a_tensor_removed(self):
        name = "layers.1.pos_ff.CoreNet.3.bias"
        self.damaged(
            rf"missing: {name} \(layer_1/ff/layer_2/bias\); unused: none", lambda s: s.pop(name)
        )

    def test_a_tensor_added(self):
        self.damaged(
            "missing: none; unused: layers.1.gate.weight",
            lambda s: s.update({"layers.1.gate.weight": np.zeros(3, "float32")}),
        )

    def test_a_tensor_of_another_shape(self):
        name = "layers.0.dec_attn.o_net.weight"
        self.damaged(
            r"layers.1.dec_attn.qkv_net.weight \(layer_1/rel_attn/qkv/kernel\) .* must agree",
            lambda s: s.update({"layers.1.dec_attn.qkv_net.weight": s[name]}),
        )

    def test_not_a_number(self):
        def change(state):
            state["r_w_bias"][0, 0] = np.nan

        self.damaged("finite numbers, got NaN or infinity in r_w_bias", change)

    @parameterized.parameters(
        ("tf1", T3, "model.ckpt-1234.data-00000-of-00001", "model.ckpt-1234"),
        ("pytorch", P1, "model.safetensors", "model.safetensors"),
        ("pytorch", P1, "model_state.pt", "model_state.pt"),
        ("huggingface", HUGGING_FACE, "pytorch_model.bin", "pytorch_model.bin"),
    )
    def test_a_truncated_file(self, source_format, case, file, checkpoint):
        folder = helpers.temp_dir(self) / "case"
        folder.mkdir()
        for path in helpers.shared(f"golden/{case}").iterdir():
            shutil.copyfile(path, folder / path.name)
        whole = (folder / file).read_bytes()
        (folder / file).write_bytes(whole[: len(whole) // 2])
        flags = (f"--format={source_format}", f"--checkpoint={folder / checkpoint}")
        model_dir, _, stderr = run(self, *flags, code=1)
        self.assertIn(str(folder / checkpoint), stderr.splitlines()[-1])
        self.assertEqual(list(model_dir.parent.iterdir()), [])

    @parameterized.parameters(
        ("pytorch", "T3_word_div2_tied_projs/model.ckpt-1234.index"),
        ("tf1", "P1_attn0_adaptive/model.safetensors"),
        ("tf1", "P5_hf_transfo_xl/pytorch_model.bin"),
        ("huggingface", "P1_attn0_adaptive/model.safetensors"),
        ("nvidia", "P5_hf_transfo_xl/model.safetensors"),
        ("nvidia", "P1_attn0_adaptive/model_state.pt"),
    )
    def test_the_wrong_format(self, source_format, file):
        path = helpers.shared(f"golden/{file}")
        flags = (f"--format={source_format}", f"--checkpoint={path}")
        model_dir, _, stderr = run(self, *flags, code=1)
        self.assertRegex(stderr.splitlines()[-1], "^import_checkpoint: error: .")
        self.assertEqual(list(pathlib.Path(model_dir).parent.iterdir()), [])


if __name__ == "__main__":
    absltest.main()
