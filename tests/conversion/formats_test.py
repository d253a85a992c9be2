"""Tests of reading the originals' files and rejecting invalid ones."""

import json
import unittest.mock

import numpy as np
import safetensors.numpy
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
from txl_tf.configs import presets
from txl_tf.conversion import (
    hparams,
    import_checkpoint,
    nvidia,
    original_layout,
    pytorch,
    shape_inference,
    tensors,
    tf1,
    torch_naming,
)
from txl_tf.conversion.torch_reader import torch_files
from txl_tf.conversion.torch_reader.allowlist import Record
from txl_tf.models.transformer_xl import TransformerXL

P1 = "P1_attn0_adaptive"


def read_case(case):
    folder = helpers.shared(f"golden/{case}")
    return folder, json.loads((folder / "config.json").read_text())


def first_nll(model, folder):
    """Returns the largest difference of nats, and their tolerance."""
    io = np.load(folder / "io.npz")
    nll, _ = model.nll(io["inputs_0"].T, io["labels_0"].T)
    config = model.config
    terms = rounding.stack_terms(config), config.d_model, config.vocab_size
    tolerance = rounding.tolerance(*terms, scale=io["nll_0"].max())
    return np.abs(np.asarray(nll) - io["nll_0"].T).max(), tolerance


class FilesTest(parameterized.TestCase):
    @parameterized.parameters(
        "T1_char_tied_r", "T3_word_div2_tied_projs", "T5_lm1b_div4_untied_projs"
    )
    def test_reads_tensorflow_files(self, case):
        folder, config = read_case(case)
        model = TransformerXL(tf1.config_from_hparams(config["hparams"]))
        total = tf1.load_weights(model, str(folder / config["checkpoint"]["prefix"]))
        self.assertEqual(total, sum(np.prod(v.shape) for v in model.trainable_variables))
        self.assertLess(*first_nll(model, folder))

    def test_reads_the_older_tensorflow_files(self):
        folder, _ = read_case("T1_char_tied_r")
        state = tf1.read(str(folder)).tensors
        path = str(helpers.temp_dir(self) / "model.ckpt")
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variables = [tf.compat.v1.Variable(v, name=name) for name, v in state.items()]
            session.run(tf.compat.v1.global_variables_initializer())
            saver = tf.compat.v1.train.Saver(
                variables, write_version=tf.compat.v1.train.SaverDef.V1
            )
            saver.save(session, path)
        self.assertFalse(tf.io.gfile.exists(f"{path}.index"))
        found = tf1.read(path).tensors
        self.assertEqual(found.keys(), state.keys())
        for name, value in state.items():
            np.testing.assert_array_equal(found[name], value)

    @parameterized.parameters("model.safetensors", "model_state.pt")
    def test_reads_pytorch_files(self, file):
        folder, config = read_case(P1)
        model = TransformerXL(pytorch.config_from_hparams(config["hparams"]))
        pytorch.load_weights(model, str(folder / file))
        self.assertLess(*first_nll(model, folder))

    def test_half_precision_is_read(self):
        folder, config = read_case(P1)
        state = safetensors.numpy.load_file(folder / "model.safetensors")
        path = str(helpers.temp_dir(self) / "half.safetensors")
        safetensors.numpy.save_file({n: v.astype("float16") for n, v in state.items()}, path)
        model = TransformerXL(pytorch.config_from_hparams(config["hparams"]))
        pytorch.load_weights(model, path)
        self.assertLess(first_nll(model, folder)[0], 0.05)

    def test_a_missing_checkpoint_is_named(self):
        with self.assertRaisesRegex(ValueError, "checkpoint must be readable, got nowhere/model"):
            tf1.read("nowhere/model")
        with self.assertRaisesRegex(ValueError, "checkpoint must be a file, got nowhere/model.pt"):
            pytorch.read("nowhere/model.pt")

    def test_a_pickled_module_determines_its_flags(self):
        layer = Record("PartialAttn", state={"pre_lnorm": True})
        block = Record("Layer", state={"_modules": {"dec_attn": layer}})
        layers = Record("ModuleList", state={"_modules": {"0": block}})
        words = Record("AdaptiveEmbedding", state={"cutoffs": [4, 7, 11], "div_val": 2})
        fields = {"n_layer": 1, "mem_len": 6, "_modules": {"word_emb": words, "layers": layers}}
        with (
            unittest.mock.patch.object(pytorch, "read_state", return_value={}),
            unittest.mock.patch.object(
                torch_files,
                "load",
                return_value=Record("MemTransformerLM", state=fields),
            ),
        ):
            found = pytorch.read("model.pt").hparams
        self.assertEqual(
            found, dict(n_layer=1, mem_len=6, cutoffs=[4, 7], div_val=2, pre_lnorm=True)
        )


class NvidiaTest(parameterized.TestCase):
    def state(self):
        """P1's tensors by the names that NVIDIA's code gives them."""
        folder, config = read_case(P1)
        found = {}
        for name, value in pytorch.read_state(str(folder / "model.safetensors")).items():
            if name.startswith("crit.out_layers") and name.endswith("bias"):
                found[f"crit.out_layers_biases.{name.split('.')[2]}"] = value
            elif not name.startswith("crit.out_layers") and name not in ALIASES:
                found[name] = value
        for i in range(4):
            found[f"crit.shared_out_projs.{i}"] = found[f"word_emb.emb_projs.{i}"]
        return folder, config["hparams"], found

    def test_same_numbers_from_its_names_and_its_longer_span(self):
        folder, _, state = self.state()
        found = nvidia.renamed(state, {})
        shapes = {name: tensor.value.shape for name, tensor in found.items()}
        complete = shape_inference.hparams(shapes, dict(mem_len=6, same_length=True, clamp_len=5))
        self.assertEqual(complete["cutoffs"], (12, 25, 40))
        model = TransformerXL(nvidia.config_from_hparams(complete))
        self.assertEqual(model.config.attention_span, 7)
        original_layout.assign(model, {name: tensor.value for name, tensor in found.items()})
        self.assertLess(*first_nll(model, folder))

    def test_a_checkpoint_determines_flags_and_step(self):
        _, flags, state = self.state()
        held = {"model_state": state, "model_config": flags | {"dtype": None}, "train_step": 40}
        with (
            unittest.mock.patch.object(pytorch, "read_state", return_value=state),
            unittest.mock.patch.object(torch_files, "load", return_value=held),
        ):
            source = nvidia.read("checkpoint.pt")
        self.assertEqual((source.step, source.hparams["mem_len"]), (40, 7))

    def test_a_shared_projection_that_differs_is_refused(self):
        _, _, state = self.state()
        state["crit.shared_out_projs.1"] = state["crit.shared_out_projs.1"] + 1
        with self.assertRaisesRegex(
            ValueError, "shared_out_projs.1 must equal word_emb.emb_projs.1"
        ):
            nvidia.renamed(state, {})


ALIASES = ("crit.out_projs.1", "crit.out_projs.2", "crit.out_projs.3")


class NamingTest(parameterized.TestCase):
    def state(self):
        folder, _ = read_case(P1)
        return pytorch.read_state(str(folder / "model.safetensors"))

    def test_every_name_leads_back(self):
        state = self.state()
        for name, tensor in pytorch.renamed(state, {}).items():
            self.assertEqual(torch_naming.source_name(name), tensor.sources[0])

    def test_what_flags_tie_must_be_equal(self):
        state = self.state()
        with self.assertRaisesRegex(ValueError, "crit.out_projs.0 must equal word_emb.emb_projs.0"):
            pytorch.renamed(state, {"tie_projs": [True]})
        found = pytorch.renamed(state, {"tie_projs": [False], "tie_weight": False})
        self.assertIn("adaptive_softmax/cutoff_3/proj", found)
        self.assertIn("adaptive_softmax/cutoff_3/lookup_table", found)

    def test_an_identity_projection_is_left_out(self):
        state = {
            "word_emb.emb_layers.0.weight": np.ones((3, 2), "float32"),
            "word_emb.emb_layers.1.weight": np.ones((4, 1), "float32"),
            "word_emb.emb_projs.0": np.eye(2, dtype="float32"),
            "word_emb.emb_projs.1": np.ones((2, 1), "float32"),
            "crit.cluster_weight": np.ones((1, 2), "float32"),
        }
        found = pytorch.renamed(state, {})
        self.assertNotIn("adaptive_embed/cutoff_0/proj_W", found)
        self.assertIn("adaptive_embed/cutoff_1/proj_W", found)
        state["crit.out_projs.0"] = np.ones((2, 2), "float32")
        self.assertIn("adaptive_embed/cutoff_0/proj_W", pytorch.renamed(state, {}))

    def test_one_table_does_not_determine_the_cutoffs(self):
        state = {
            "word_emb.emb_layers.0.weight": np.ones((9, 2), "float32"),
            "crit.cluster_weight": np.ones((2, 2), "float32"),
            "crit.out_layers.0.bias": np.arange(9, dtype="float32"),
        }
        with self.assertRaisesRegex(ValueError, "cutoffs must be given, by a config or a preset"):
            pytorch.renamed(state, {})
        with self.assertRaisesRegex(ValueError, r"cutoffs must be 2, .* got \[3\]"):
            pytorch.renamed(state, {"cutoffs": [3]})
        found = pytorch.renamed(state, {"cutoffs": [3, 7]})
        np.testing.assert_array_equal(found["adaptive_softmax/cutoff_1/b"].value, [3, 4, 5, 6])

    def test_layers_share_a_line(self):
        moves = [
            ((f"layers.{i}.o_net",), (4, 2), (f"block_{i}/layer_1", f"block_{i}/b"))
            for i in range(3)
        ]
        self.assertEqual(
            tensors.summarise_mapping(moves),
            ["layers.*.o_net [4, 2] x3 -> block_*/layer_1 + block_*/b"],
        )


class ArchitectureTest(parameterized.TestCase):
    @parameterized.parameters(*(n for n in presets.names() if not n.startswith("tiny_")))
    def test_every_preset_follows_from_shapes(self, name):
        config = presets.preset(name).model
        small = dict(
            vocab_size=60,
            num_layers=2,
            d_model=64,
            d_inner=24,
            mem_len=3,
            cutoffs=(10, 20, 40) if config.cutoffs else (),
        )
        config = helpers.tiny_config(
            **small,
            **{
                field: getattr(config, field)
                for field in ("untie_biases", "div_val", "tie_projections", "project_same_dim")
            },
        )
        shapes = {n: p.shape for n, p in original_layout.parameters(TransformerXL(config)).items()}
        found = shape_inference.hparams(shapes, {"mem_len": 3})
        ours = TransformerXL(tf1.config_from_hparams(found))
        self.assertEqual({n: p.shape for n, p in original_layout.parameters(ours).items()}, shapes)
        shape_inference.hparams(shapes, hparams.from_config(config))  # no contradiction

    def shapes(self, **changes):
        model = TransformerXL(helpers.tiny_config(**changes))
        return {n: p.shape for n, p in original_layout.parameters(model).items()}

    @parameterized.parameters(
        (dict(n_layer=3), "n_layer must be 2, as in the tensors, got 3"),
        (dict(n_head=4), "n_head must be 2, .* got 4"),
        (dict(cutoffs=[3, 8]), r"cutoffs must be \[3, 7\], .* got \[3, 8\]"),
        (dict(div_val=4), "div_val must be 2, .* got 4"),
        (dict(tie_projs=[True]), r"tie_projs must be \[False, True, True\], .* got \[True\]"),
        (dict(attn_type=1), "attn_type must be 0, .* got 1"),
        (dict(mem_len=None), "mem_len must be given, by itself, a config or a preset"),
    )
    def test_what_contradicts_the_shapes_is_named(self, given, message):
        shapes = self.shapes(cutoffs=(3, 7), div_val=2, tie_projections=(False, True))
        with self.assertRaisesRegex(ValueError, message):
            shape_inference.hparams(shapes, {"mem_len": 4} | given)

    def test_what_is_missing_is_named(self):
        shapes = self.shapes()
        with self.assertRaisesRegex(ValueError, "must hold layers of a Transformer-XL, got a$"):
            shape_inference.hparams({"a": (1,)}, {})
        del shapes["adaptive_embed/lookup_table"]
        with self.assertRaisesRegex(ValueError, "must hold adaptive_embed/lookup_table, got "):
            shape_inference.hparams(shapes, {})
        del shapes["r_r_bias"], shapes["r_w_bias"]
        shapes["r_bias"] = (2, 6, 2)
        with self.assertRaisesRegex(ValueError, "r_w_bias and r_r_bias, .* got r_bias"):
            shape_inference.hparams(shapes, {})

    def test_num_heads_is_required_if_undetermined(self):
        shapes = self.shapes(position="absolute", mem_len=0)
        with self.assertRaisesRegex(ValueError, "num_heads must be given.* times width is 8"):
            shape_inference.hparams(shapes, {"mem_len": 0})
        found = shape_inference.hparams(shapes, {"mem_len": 0, "n_head": 4})
        self.assertEqual((found["attn_type"], found["d_head"]), (2, 2))


class HparamsTest(parameterized.TestCase):
    def read(self, text):
        path = helpers.temp_dir(self) / "config.json"
        path.write_text(text)
        return hparams.read(str(path))

    def test_reads_what_is_about_the_model(self):
        self.assertEqual(self.read('{"vocab_size": 9, "d_model": null, "x": 1}'), {"n_token": 9})
        self.assertEqual(self.read('{"hparams": {"mem_len": 5}, "n_token": 3}'), {"mem_len": 5})

    @parameterized.parameters(
        ("{", "config.json must be JSON, got"),
        ("[]", "must hold a JSON object, got list"),
        ('{"x": 1}', "must hold n_layer, mem_len or other flags"),
        ('{"mem_len": "5"}', "mem_len must be of type int, got '5'"),
        ('{"mem_len": true}', "mem_len must be of type int, got True"),
    )
    def test_what_is_no_set_of_flags_is_refused(self, text, message):
        with self.assertRaisesRegex(ValueError, message):
            self.read(text)


class AssignTest(parameterized.TestCase):
    def values(self, model):
        return {
            n: np.zeros(p.shape, "float32") for n, p in original_layout.parameters(model).items()
        }

    def test_every_weight_has_a_name(self):
        for changes in (
            {},
            dict(untie_biases=True, cutoffs=(4, 7), div_val=2),
            dict(tie_embeddings=False, cutoffs=(4, 7)),
        ):
            model = TransformerXL(helpers.tiny_config(**changes))
            named = [w.path for p in original_layout.parameters(model).values() for w in p.weights]
            self.assertCountEqual(named, [w.path for w in model.trainable_variables])

    def test_values_come_back(self):
        changes = dict(untie_biases=True, cutoffs=(4, 7), div_val=2, tie_embeddings=False)
        source = helpers.loud(TransformerXL(helpers.tiny_config(**changes)))
        target = TransformerXL(source.config)
        original_layout.assign(target, original_layout.values_of(source))
        for a, b in zip(source.get_weights(), target.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_what_does_not_fit_is_named(self):
        model = TransformerXL(helpers.tiny_config())
        values = self.values(model)
        del values["r_w_bias"]
        values["extra"] = np.zeros(1)
        with self.assertRaisesRegex(ValueError, "missing: r_w_bias; unused: extra"):
            original_layout.assign(model, values)
        values = self.values(model) | {"r_w_bias": np.zeros((2, 5))}
        with self.assertRaisesRegex(ValueError, r"r_w_bias must have shape \(2, 4\), got \(2, 5\)"):
            original_layout.assign(model, values)

    def test_nothing_is_assigned_when_something_does_not_fit(self):
        model = TransformerXL(helpers.tiny_config())
        before = model.get_weights()
        values = self.values(model) | {"r_w_bias": np.zeros((2, 5))}
        with self.assertRaises(ValueError):
            original_layout.assign(model, values)
        for a, b in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_numbers_only(self):
        with self.assertRaisesRegex(ValueError, "floating-point tensors, got others: a"):
            tensors.check_numbers({"a": np.zeros(1, "int32")})
        with self.assertRaisesRegex(ValueError, "NaN or infinity in b"):
            tensors.check_numbers({"a": np.zeros(1), "b": np.array([np.inf])})

    def test_ids_as_text(self):
        tokenizer = import_checkpoint.numbers(11)
        self.assertEqual(tokenizer.encode("10 0 7").tolist(), [10, 0, 7])
        with self.assertRaisesRegex(ValueError, "11"):
            tokenizer.encode("11")


if __name__ == "__main__":
    absltest.main()
