"""Tests of scripts/export_checkpoint.py: exports of imported checkpoints are bitwise equal."""

import json

import import_checkpoint_test as importing
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config
from txl_tf.conversion import (
    export_checkpoint,
    hparams,
    huggingface,
    import_checkpoint,
    original_layout,
)
from txl_tf.models.transformer_xl import TransformerXL


def variables(checkpoint):
    """The model's variables in a TensorFlow checkpoint, without the optimizer's."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith("transformer/")]
    return {n: reader.get_tensor(n) for n in names if not n.endswith(("/Adam", "/Adam_1"))}


def loaded(test, **changes):
    """A tiny model with loud weights, as if read from a model_dir."""
    model = helpers.loud(TransformerXL(helpers.tiny_config(**changes)))
    tokenizer = import_checkpoint.numbers(model.config.vocab_size)
    return model_dirs.Loaded(model, tokenizer, Config(model=model.config), step=7)


@pytest.mark.slow
class ExportCheckpointTest(parameterized.TestCase):
    def same(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, name)
            self.assertEqual(found[name].dtype, value.dtype)

    def export(self, target, model_dir, code=0):
        folder = helpers.temp_dir(self) / "out"
        flags = (f"--format={target}", f"--model_dir={model_dir}", f"--output_dir={folder}")
        stdout, stderr = trained.run("export_checkpoint", *flags, code=code)
        return folder, stdout, stderr

    @parameterized.parameters(*importing.TENSORFLOW)
    def test_tensorflow_there_and_back(self, case):
        source = helpers.shared(f"golden/{case}")
        model_dir, told, _ = importing.run(self, "--format=tf1", f"--checkpoint={source}")
        folder, stdout, stderr = self.export("tf1", model_dir)
        self.same(variables(folder), variables(source))
        back = trained.last_json(stdout)
        self.assertEqual((back["parameters"], back["step"]), (told["parameters"], told["step"]))
        self.assertTrue((folder / f"model.ckpt-{told['step']}.index").exists())
        self.assertNotIn("warning", stderr)

    def test_hugging_face_there_and_back(self):
        source = helpers.shared(f"golden/{importing.HUGGING_FACE}")
        model_dir, _, _ = importing.run(self, "--format=huggingface", f"--checkpoint={source}")
        folder, _, stderr = self.export("huggingface", model_dir)
        files = (f / "model.safetensors" for f in (folder, source))
        self.same(*map(safetensors.numpy.load_file, files))
        theirs, ours = (json.loads((f / "config.json").read_text()) for f in (source, folder))
        del theirs["transformers_version"]
        self.assertEqual({name: ours[name] for name in theirs}, theirs)
        self.assertNotIn("warning", stderr)

    @parameterized.parameters("T4_base_div1", "T5_lm1b_div4_untied_projs", "T9_nocutoff_embed_proj")
    def test_tensorflow_by_way_of_hugging_face(self, case):
        source = helpers.shared(f"golden/{case}")
        model_dir, _, _ = importing.run(self, "--format=tf1", f"--checkpoint={source}")
        hugging, _, _ = self.export("huggingface", model_dir)
        checkpoint = f"--checkpoint={hugging}"
        again, told, _ = importing.run(self, "--format=huggingface", checkpoint)
        self.assertEqual(told["parameters"], sum(v.size for v in variables(source).values()))
        folder, _, _ = self.export("tf1", again)
        self.same(variables(folder), variables(source))

    def test_a_model_of_ours_warns_where_the_other_differs(self):
        model_dir = trained.describe(
            helpers.temp_dir(self), trained.prepare_data(helpers.temp_dir(self), "char")
        )
        folder, _, stderr = self.export("tf1", model_dir)
        self.assertIn("warning: tf1: layer_norm_epsilon is 1e-12 there, here 1e-05", stderr)
        self.assertIn("zeros of an initial memory receive attention there", stderr)
        again, _, _ = importing.run(
            self, "--format=tf1", f"--checkpoint={folder}", f"--vocab={folder / 'tokenizer'}"
        )
        before, after = (model_dirs.load(str(path)) for path in (model_dir, again))
        self.assertEqual(before.tokenizer.checksum, after.tokenizer.checksum)
        self.same(original_layout.values_of(after.model), original_layout.values_of(before.model))


class TargetsTest(parameterized.TestCase):
    def folder(self):
        return str(helpers.temp_dir(self) / "out")

    @parameterized.parameters(
        ("tf1", dict(pre_norm=True), "representable in tf1, got pre_norm"),
        ("tf1", dict(tie_embeddings=False), "got tie_embeddings off"),
        ("tf1", dict(d_embed=6, tie_output_projection=False), "got tie_output_projection off"),
        ("huggingface", dict(position="shaw", num_positions=6), "got position shaw"),
    )
    def test_unsupported_models_are_rejected(self, target, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            export_checkpoint.export_checkpoint(target, loaded(self, **changes), self.folder())

    def test_attention_of_another_kind_is_only_here(self):
        config = helpers.tiny_config(attention=("dense", "topk(k=2)"))
        self.assertEqual(export_checkpoint.only_here(config), ["attention topk(k=2)"])

    def test_a_span_of_another_size_is_logged(self):
        config = helpers.tiny_config(attention_span=9, attend_to_initial_zeros=True)
        lines = ["same_length sees mem_len keys there, here 9"]
        self.assertEqual(huggingface.known_differences(config), lines)

    @parameterized.parameters(
        dict(),
        dict(untie_biases=True, tie_embeddings=False, cutoffs=(3, 7), div_val=2),
        dict(tie_embeddings=False, cutoffs=(3, 7), d_embed=6, tie_projections=(False, True)),
        dict(cutoffs=(3, 7), div_val=2, project_same_dim=False, untie_biases=True),
        dict(d_embed=6, tie_embeddings=False),
        dict(d_embed=6, tie_output_projection=False),
    )
    def test_hugging_face_gives_it_back(self, **changes):
        before, folder = loaded(self, **changes), self.folder()
        export_checkpoint.export_checkpoint("huggingface", before, folder)
        model_dir = self.folder()
        told = hparams.read(f"{folder}/config.json")
        import_checkpoint.import_checkpoint("huggingface", folder, model_dir, given=told)
        after = model_dirs.load(model_dir)
        values = original_layout.values_of(before.model)
        self.assertEqual(original_layout.values_of(after.model).keys(), values.keys())
        for name, value in original_layout.values_of(after.model).items():
            np.testing.assert_array_equal(value, values[name], name)
        ids = helpers.draw_ids(2, 5)
        model = TransformerXL(after.config.model, weights_of=before.model)
        atol = rounding.of_scores(model.config)
        np.testing.assert_allclose(after.model(ids)[0], model(ids)[0], rtol=0, atol=atol)


if __name__ == "__main__":
    absltest.main()
