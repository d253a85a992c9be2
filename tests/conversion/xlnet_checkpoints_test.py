"""Import and export of XLNet's checkpoints: both codes' names, any file, and there and back."""

import json

import numpy as np
import safetensors.numpy
import tensorflow as tf
from absl.testing import absltest, parameterized

import golden_xlnet as golden
import helpers
import pickled
import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.configs.run import Config, TrainConfig
from txl_tf.conversion import export_checkpoint, hparams, import_checkpoint, xlnet
from txl_tf.models.xlnet import XLNet

CASE = "xlnet_two_stream_mems"


def state_of(data):
    """The weights of a golden file as Hugging Face's state dict."""
    found = {}
    for name, value in data.items():
        if name.startswith("w."):
            short = name.removeprefix("w.")
            value = value.T if short.endswith("kernel") else value
            short = short.replace("kernel", "weight")
            found[short if short.startswith("lm_loss") else f"transformer.{short}"] = (
                np.ascontiguousarray(value)
            )
    return found | {"lm_loss.weight": found["transformer.word_embedding.weight"]}


def original_of(state, num_layers):
    """The same weights as variables of the original code."""
    short = {name.removeprefix("transformer."): value for name, value in state.items()}
    found = {
        "model/transformer/word_embedding/lookup_table": short["word_embedding.weight"],
        "model/transformer/mask_emb/mask_emb": short["mask_emb"],
        "model/lm_loss/bias": short["lm_loss.bias"],
        "global_step": np.int64(9),
        "model/transformer/layer_0/rel_attn/q/kernel/Adam": np.zeros(3, "float32"),
    }
    for name in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed"):
        layers = [short[f"layer.{i}.rel_attn.{name}"] for i in range(num_layers)]
        found[f"model/transformer/{name}"] = np.stack(layers)
    for i in range(num_layers):
        ours, theirs = f"layer.{i}", f"model/transformer/layer_{i}"
        for name in "qkvor":
            found[f"{theirs}/rel_attn/{name}/kernel"] = short[f"{ours}.rel_attn.{name}"]
        for part in ("rel_attn", "ff"):
            found[f"{theirs}/{part}/LayerNorm/gamma"] = short[f"{ours}.{part}.layer_norm.weight"]
            found[f"{theirs}/{part}/LayerNorm/beta"] = short[f"{ours}.{part}.layer_norm.bias"]
        for name in ("layer_1", "layer_2"):
            found[f"{theirs}/ff/{name}/kernel"] = short[f"{ours}.ff.{name}.weight"].T
            found[f"{theirs}/ff/{name}/bias"] = short[f"{ours}.ff.{name}.bias"]
    return found


def config_of(hparams_of_case):
    """Hugging Face's config.json of a golden case."""
    names = ("attn_type", "clamp_len", "ff_activation", "layer_norm_eps", "mem_len", "reuse_len")
    own = {name: hparams_of_case[name] for name in (*names, "same_length")}
    return own | dict(
        vocab_size=hparams_of_case["vocab"],
        n_layer=hparams_of_case["num_layers"],
        d_model=hparams_of_case["d"],
        n_head=hparams_of_case["H"],
        d_inner=hparams_of_case["F"],
        dropout=0.0,
        untie_r=True,
    )


def write_torch(path, state):
    """Writes a state dict as `torch.save` does."""
    storages = {str(i): value.tobytes() for i, value in enumerate(state.values())}
    found = {}
    for i, (name, value) in enumerate(state.items()):
        strides = tuple(stride // value.itemsize for stride in value.strides)
        found[name] = pickled.tensor(pickled.storage(str(i), value.size), value.shape, strides)
    pickled.write_zip(path, found, storages)


def write(folder, form, state, told):
    """Writes a checkpoint; returns the path that the program takes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(told))
    if form == "safetensors":
        safetensors.numpy.save_file(state, folder / "model.safetensors")
        return folder
    if form == "pickled":
        write_torch(folder / "pytorch_model.bin", state)
        return folder / "pytorch_model.bin"
    variables = original_of(state, told["n_layer"])
    prefix = folder / "xlnet_model.ckpt"
    names = sorted(variables)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[variables[name] for name in names],
    )
    return prefix


class ImportTest(parameterized.TestCase):
    @parameterized.parameters("safetensors", "pickled", "tf1")
    def test_gives_the_references_logits(self, form):
        data, case = golden.load(CASE)
        told = config_of(case)
        if form == "tf1":  # that code calls its approximation gelu
            self.assertEqual(told.pop("ff_activation"), "gelu_new")
            told |= dict(ff_activation="gelu", n_token=told.pop("vocab_size"))
        folder = helpers.temp_dir(self)
        source = write(folder / "theirs", form, state_of(data), told)
        path = str(folder / "model")
        given = hparams.read(str(folder / "theirs" / "config.json"), hparams.XLNET_FLAGS)
        result = import_checkpoint.import_checkpoint("xlnet", str(source), path, given=given)
        loaded = model_dirs.load(path)
        self.assertEqual(result.step, 9 if form == "tf1" else 0)
        self.assertEqual(loaded.step, result.step)
        self.assertEqual(result.parameters, loaded.model.count_params())
        expected = golden.make(data, case)
        self.assertEqual(loaded.config.model, expected.config)
        for found, weight in zip(loaded.model.weights, expected.weights, strict=True):
            np.testing.assert_array_equal(found, weight, weight.path)
        logits, _ = loaded.model(
            data["in.input_ids"],
            mems=golden.memory_of(data["in.mems"], case["mem_len"]),
            segments=data["in.token_type_ids"],
            visible=(data["in.perm_mask"] == 0) & data["in.attention_mask"][:, np.newaxis],
            target_positions=data["in.target_mapping"].argmax(axis=-1),
        )
        atol = rounding.of_scores(loaded.model.config)
        np.testing.assert_allclose(logits, data["out.logits"], rtol=0, atol=atol)

    def check(self, message, given=(), **changes):
        data, case = golden.load(CASE)
        state = {n: v for n, v in (state_of(data) | changes).items() if v is not None}
        folder = helpers.temp_dir(self)
        source = write(folder / "theirs", "safetensors", state, config_of(case))
        told = config_of(case) | dict(n_token=case["vocab"]) | dict(given)
        with self.assertRaisesRegex(ValueError, message):
            import_checkpoint.import_checkpoint(
                "xlnet", str(source), str(folder / "model"), given=told
            )
        self.assertFalse((folder / "model").exists())

    def test_mistakes_are_told(self):
        self.check("n_layer must be 2 as in the tensors, got 3", dict(n_layer=3))
        self.check("ff_activation must be one of relu, gelu, gelu_new", dict(ff_activation="elu"))
        self.check("attn_type must be bi or uni, got 'both'", dict(attn_type="both"))
        self.check("got missing: mask_emb; unused: none", **{"transformer.mask_emb": None})
        self.check(
            r"mask_emb must have shape \(1, 1, 16\), got \(1, 2, 16\)",
            **{"transformer.mask_emb": np.zeros([1, 2, 16], "float32")},
        )
        self.check(
            "must hold the tensors of an XLNet, got layer.0",
            **{"transformer.word_embedding.weight": None},
        )

    def test_a_head_of_a_task_is_left_out_and_a_bias_may_be_missing(self):
        data, case = golden.load(CASE)
        state = state_of(data) | {"logits_proj.weight": np.zeros([2, 16], "float32")}
        del state["lm_loss.bias"], state["lm_loss.weight"]
        folder = helpers.temp_dir(self)
        source = write(folder / "theirs", "safetensors", state, config_of(case))
        path = str(folder / "model")
        import_checkpoint.import_checkpoint("xlnet", str(source), path, given={})
        model = model_dirs.load(path).model
        np.testing.assert_array_equal(model.softmax.biases[0], np.zeros(case["vocab"]))
        np.testing.assert_array_equal(model.embedding.tables[0], data["w.word_embedding.weight"])


class ExportTest(parameterized.TestCase):
    def loaded(self, **changes):
        model = helpers.loud(XLNet(helpers.tiny_xlnet(**changes)))
        config = Config(model=model.config, train=TrainConfig(objective="permutation"))
        return model_dirs.Loaded(model, import_checkpoint.numbers(11), config, step=7)

    @parameterized.parameters(
        dict(),
        dict(bidirectional=False, attention_span=5, clamp_len=3),
        dict(feed_forward=("dense(activation='gelu_tanh')",), mem_len=0),
    )
    def test_there_and_back(self, **changes):
        before, folder = self.loaded(**changes), helpers.temp_dir(self)
        theirs, path = str(folder / "theirs"), str(folder / "model")
        count = export_checkpoint.export_checkpoint("xlnet", before, theirs)
        self.assertEqual(count, before.model.count_params())
        told = hparams.read(f"{theirs}/config.json", hparams.XLNET_FLAGS)
        import_checkpoint.import_checkpoint("xlnet", theirs, path, given=told)
        after = model_dirs.load(path)
        self.assertEqual(after.config.model, before.model.config)
        for found, weight in zip(after.model.weights, before.model.weights, strict=True):
            np.testing.assert_array_equal(found, weight, weight.path)

    def test_the_state_dict_is_the_references(self):
        data, case = golden.load(CASE)
        model = golden.make(data, case)
        folder = helpers.temp_dir(self) / "theirs"
        folder.mkdir()
        export_checkpoint.write("xlnet", model, str(folder))
        found = safetensors.numpy.load_file(folder / "model.safetensors")
        expected = state_of(data)
        del expected["lm_loss.weight"]  # tied
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, name)

    @parameterized.parameters(
        (dict(pre_norm=True), "representable in xlnet, got pre_norm"),
        (dict(head_dim=3), "got 2 heads of 3, not d_model in all"),
        (dict(attention=("topk(k=2)",)), r"got attention topk\(k=2\)"),
        (dict(attention_span=3), "got attention_span of a bidirectional model"),
    )
    def test_unsupported_models_are_refused(self, changes, message):
        folder = str(helpers.temp_dir(self) / "out")
        with self.assertRaisesRegex(ValueError, message):
            export_checkpoint.export_checkpoint("xlnet", self.loaded(**changes), folder)

    def test_models_of_other_formats_are_refused(self):
        folder = str(helpers.temp_dir(self) / "out")
        message = "model must have a TransformerXLConfig for format tf1, got a XLNetConfig"
        with self.assertRaisesRegex(ValueError, message):
            export_checkpoint.export_checkpoint("tf1", self.loaded(), folder)

    def test_differences_are_known(self):
        config = helpers.tiny_xlnet(dropout=0.1, bidirectional=False, attention_span=3)
        first, second = xlnet.known_differences(config)
        self.assertRegex(first, "sees mem_len . 1 keys there, here 3")
        self.assertRegex(second, "dropout 0.1 is also that of attention weights")


class ProgramsTest(absltest.TestCase):
    def test_import_and_export(self):
        data, case = golden.load(CASE)
        folder = helpers.temp_dir(self)
        source = write(folder / "theirs", "safetensors", state_of(data), config_of(case))
        flags = ("--format=xlnet", f"--model_dir={folder / 'model'}")
        stdout, _ = trained.run("import_checkpoint", *flags, f"--checkpoint={source}")
        found = trained.last_json(stdout)
        self.assertEqual(found["config_source"], ["shapes", f"{source}/config.json"])
        trained.run("export_checkpoint", *flags, f"--output_dir={folder / 'back'}")
        before, after = (
            safetensors.numpy.load_file(f / "model.safetensors") for f in (source, folder / "back")
        )
        for name, value in after.items():
            np.testing.assert_array_equal(value, before[name], name)
        more = ("--checkpoint=none", "--preset=tiny")
        _, stderr = trained.run("import_checkpoint", *flags, *more, code=2)
        self.assertIn("--preset must be left out: it is of a Transformer-XL", stderr)
        wrong = ("--format=tf1", *flags[1:], "--checkpoint=none", "--preset=tiny_xlnet")
        _, stderr = trained.run("import_checkpoint", *wrong, code=2)
        self.assertIn("--preset must be of a Transformer-XL, got tiny_xlnet", stderr)


if __name__ == "__main__":
    absltest.main()
