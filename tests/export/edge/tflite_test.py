"""Tests of txl_tf.export.edge.tflite and the modules it is made of."""

import functools
import json
import os
import pathlib
import unittest.mock

import numpy as np
import pytest
import runtime_test
import tensorflow as tf
from absl.testing import absltest, parameterized
from ai_edge_litert import schema_py_generated as schema

import helpers
import quick_training
import rounding
from txl_tf.configs import presets
from txl_tf.configs.run import Config, override_all
from txl_tf.data import text, tokenizers
from txl_tf.data.text_size import TextSize
from txl_tf.export.edge import agreement, calibration, operators, quantization, runtime, tflite
from txl_tf.export.serving.saved_model import export_saved_model
from txl_tf.models.transformer_xl import TransformerXL

QUANTIZED = ("float16", "dynamic", "int8")
WIDE = dict(vocab_size=300, d_model=64, d_inner=128, head_dim=32)  # weights worth quantizing


def sample(count, vocab_size=11, seed=0):
    ids = helpers.draw_ids(count, vocab_size=vocab_size, seed=seed)
    size = TextSize(tokens=count, bytes=2 * count, characters=2 * count)
    return calibration.Sample(name="noise", ids=ids, size=size)


def byte_config(**changes):
    """The model of the preset tiny, with `changes`."""
    return override_all(presets.preset("tiny"), [f"model.{k}={v}" for k, v in changes.items()])


class ExportTest(parameterized.TestCase):
    def export(self, path=None, quantize="none", segment_len=4, held_out=None, **changes):
        """-> (model, report, EdgeModel)"""
        config = helpers.tiny_config(**dict(mem_len=8) | changes)
        model = helpers.loud(TransformerXL(config), 3, 0.5 if config.d_model < 64 else 0.2)
        path = path or str(helpers.temp_dir(self) / "model.tflite")
        report = tflite.export_tflite(
            model,
            runtime_test.tokenizer(config.vocab_size),
            Config(model=config),
            path,
            segment_len=segment_len,
            quantize=quantize,
            calibration=sample(200, config.vocab_size),
            held_out=held_out,
        )
        return model, report, runtime.EdgeModel(path)

    @classmethod
    @functools.cache
    def wide(cls, quantize):
        """An export of WIDE, for tests that only read it."""
        holder = cls()
        cls.addClassCleanup(holder.doCleanups)
        return holder.export(quantize=quantize, **WIDE)

    @parameterized.parameters(
        dict(cutoffs=(4, 8), attention=("topk(k=3)",)),
        dict(
            cutoffs=(4, 8),
            div_val=2,
            tie_projections=(False, True),
            feed_forward=("dense", "switch(experts=3)"),
            segment_len=12,
        ),
        dict(tie_embeddings=False, d_embed=4, tie_output_projection=False, untie_biases=False),
        dict(pre_norm=True, clamp_len=3, feed_forward=("dense(activation='gelu')",)),
        dict(attention_span=3, segment_len=12),
        dict(attention=("local(window=3, block=2)",), segment_len=12),
        dict(attention=("longformer(window=3, block=2)",), segment_len=12),
        dict(attention=("routing(clusters=3, local_heads=1, window=4)",), segment_len=12),
        dict(
            attention=("local(window=2, dilations=(1, 3), block=1, k=2)", "dense"), segment_len=12
        ),
    )
    def test_every_model_keeps_its_numbers(self, **changes):
        model, report, found = self.export(held_out=sample(60, seed=1), **changes)
        self.assertEmpty(operators.not_built_in(report.ops))
        atol = rounding.of_scores(model.config, 60)
        self.assertLess(report.agreement.largest_difference, atol)
        self.assertEqual(report.agreement.top1_agreement, 1.0)
        ids, targets = (helpers.draw_ids(1, 4, seed=seed) for seed in (2, 3))
        nll, _ = found.nll(ids, targets, found.initial(1))
        np.testing.assert_allclose(nll, model.nll(ids, targets)[0], rtol=0, atol=atol)

    def test_chained_calls_equal_the_saved_model(self):  # AC20
        model, _, found = self.export()
        folder = str(helpers.temp_dir(self) / "toy")
        export_saved_model(model, runtime_test.tokenizer(11), Config(model=model.config), folder)
        served = tf.saved_model.load(f"{folder}/1").signatures
        state, edge_state = served["initial_state"](batch_size=tf.constant(1)), found.initial(1)
        for seed in range(3):
            ids = helpers.draw_ids(1, 4, seed=seed)
            outputs = served["step"](input_ids=tf.constant(ids), lengths=tf.constant([4]), **state)
            scores, edge_state = found.step(ids, edge_state)
            atol = rounding.of_scores(model.config)
            np.testing.assert_allclose(scores, outputs.pop("scores"), rtol=0, atol=atol)
            state = outputs
            for name, value in edge_state.items():
                np.testing.assert_allclose(value, state[name], rtol=0, atol=atol)

    @parameterized.parameters("dynamic", "int8")
    def test_padding_does_not_show(self, quantize):
        _, report, found = self.wide(quantize)
        self.assertEmpty(operators.not_built_in(report.ops))
        ids = helpers.draw_ids(1, 12, vocab_size=300)
        whole = edge_state = found.initial(1)
        for start in (0, 2, 4):  # two real ids, then anything
            other = np.concatenate([ids[:, start : start + 2], ids[:, 8 + start // 2 :][:, :2]], 1)
            scores, edge_state = found.step(other, edge_state, np.array([2]))
            expected, whole = found.step(ids[:, start : start + 2], whole)
            np.testing.assert_array_equal(scores[:, :2], expected)
        self.assertEqual(edge_state["mem_length"], 6)
        for name in ("keys", "values"):
            np.testing.assert_array_equal(edge_state[name][..., 2:, :], whole[name][..., 2:, :])

    @parameterized.parameters("dynamic", "int8")
    def test_adaptive_models_are_quantized_too(self, quantize):
        cutoffs = dict(cutoffs=(100, 200), div_val=2, tie_projections=(False, True))
        held_out = sample(200, 300, seed=1)
        model, report, found = self.export(quantize=quantize, held_out=held_out, **WIDE, **cutoffs)
        self.assertGreater(report.agreement.top1_agreement, 0.85)
        ids, targets = (helpers.draw_ids(1, 4, vocab_size=300, seed=seed) for seed in (2, 3))
        scores, _ = found.step(ids, found.initial(1))
        atol = rounding.tolerance(300, scale=np.abs(scores).max())
        np.testing.assert_allclose(np.exp(scores).sum(-1), 1.0, rtol=0, atol=atol)
        nll, _ = found.nll(ids, targets, found.initial(1))
        chosen = np.take_along_axis(scores, targets[..., np.newaxis], axis=2)[..., 0]
        np.testing.assert_allclose(nll, -chosen, rtol=0, atol=atol)

    def test_what_is_int8(self):
        model, report, _ = self.wide("int8")
        self.assertTrue(model.config.tie_embeddings)
        found = operators.read(pathlib.Path(report.path).read_bytes())
        int8, float32 = schema.TensorType.INT8, schema.TensorType.FLOAT32
        tables = set()
        for graph in found.subgraphs:
            calls = {"FULLY_CONNECTED": [], "EMBEDDING_LOOKUP": [], "BATCH_MATMUL": []}
            for operator in graph.operators:
                read = [graph.tensors[number] for number in operator.inputs if number >= 0]
                if (kind := operators.kind(found, operator)) in calls:
                    types = [read[0].type, read[1].type, graph.tensors[operator.outputs[0]].type]
                    calls[kind].append(types)
                elif kind not in ("QUANTIZE", "DEQUANTIZE"):
                    self.assertNotIn(int8, [tensor.type for tensor in read], kind)
                tables |= {
                    t.buffer
                    for t in read
                    if t.shape is not None and len(t.shape) == 2 and tuple(t.shape) == (300, 64)
                }
            *layers, scores = calls["FULLY_CONNECTED"]
            self.assertEqual(layers, [[int8, int8, int8]] * 12)
            self.assertEqual(scores, [float32, int8, float32])
            self.assertEqual(calls["EMBEDDING_LOOKUP"], [[schema.TensorType.INT32, int8, float32]])
            by_distance = [types for types in calls["BATCH_MATMUL"] if int8 in types]
            self.assertEqual(by_distance, [[float32, int8, float32]] * 2)
            self.assertLen(calls["BATCH_MATMUL"], 6)
        self.assertLen(tables, 1)  # one table for both uses and both signatures

    def path(self):
        return str(helpers.temp_dir(self) / "model.tflite")

    @pytest.mark.slow
    def test_sizes(self):
        """Weights are stored once for both signatures, and quantizing pays."""
        config = byte_config()
        model, tokenizer, sizes = TransformerXL(config.model), tokenizers.ByteTokenizer(), {}
        positions = 4 * sum(w.numpy().size for w in model.weights if "position_k" in w.path)
        weights = 4 * sum(w.numpy().size for w in model.weights) - positions
        distances = 4 * 4 * 4 * (64 + 64) * 32  # [H, M + T, K] a layer
        for quantize in ("none", *QUANTIZED):
            report = tflite.export_tflite(
                model,
                tokenizer,
                config,
                self.path(),
                segment_len=64,
                quantize=quantize,
                calibration=sample(500, 256),
            )
            sizes[quantize] = report.bytes
            self.assertEqual(report.bytes, os.path.getsize(report.path))
        self.assertBetween(sizes["none"] / (weights + distances), 1.0, 1.05)
        # A quarter, and for a row of 128 weights a scale and a zero point in both signatures.
        self.assertLess(sizes["dynamic"] / sizes["none"], 0.25 + 24 / 512 + 0.02)
        self.assertLess(sizes["int8"] / sizes["none"], 0.25 + 24 / 512 + 0.04)
        self.assertLess(sizes["float16"] / sizes["none"], 0.53)

    def test_what_is_written(self):
        folder = helpers.temp_dir(self)
        for name in ("one", "two"):  # side by side
            path = str(folder / f"{name}.tflite")
            _, report, _ = self.export(path, held_out=sample(30, seed=1))
        expected = ["one.assets", "one.tflite", "two.assets", "two.tflite"]
        self.assertEqual(sorted(os.listdir(folder)), expected)
        self.assertEqual(
            sorted(os.listdir(folder / "two.assets")),
            ["model.json", "tokenizer.json", "vocab.txt"],
        )
        about = json.loads((folder / "two.assets" / "model.json").read_text())
        self.assertEqual(about["config"]["model"]["mem_len"], 8)
        told = json.loads(json.dumps(report.to_dict()))
        self.assertEqual(about["report"] | {"path": path}, told)
        self.assertEqual((about["batch_size"], about["segment_len"]), (1, 4))
        self.assertEqual(about["report"]["contexts"], 29)

    def test_nothing_is_overwritten_or_left_half_written(self):
        folder = helpers.temp_dir(self)
        path = str(folder / "model.tflite")
        data = pathlib.Path(runtime_test.exported()[1]).read_bytes()
        self.enterContext(unittest.mock.patch.object(tflite, "_convert", return_value=data))
        broken = unittest.mock.patch.object(agreement, "measure", side_effect=KeyError("no"))
        with broken, self.assertRaises(KeyError):
            self.export(path, held_out=sample(30))
        broken = unittest.mock.patch.object(tflite.files, "rename", side_effect=OSError("full"))
        with broken, self.assertRaises(OSError):
            self.export(path)
        self.assertEmpty(os.listdir(folder))
        (folder / "model.assets").mkdir()
        with self.assertRaisesRegex(ValueError, "output must not exist yet, got .*model.assets"):
            self.export(path)
        (folder / "model.tflite").write_text("mine")
        with self.assertRaisesRegex(ValueError, "output must not exist yet, got .*model.tflite"):
            self.export(path)
        self.assertEqual((folder / "model.tflite").read_text(), "mine")

    @parameterized.parameters(
        (dict(path="model.bin"), "output must be a file name that ends in .tflite, got model.bin"),
        (dict(segment_len=0), "segment_len must be at least 1, got 0"),
        (dict(quantize="int4"), "quantize must be one of none, float16, .*, int8, got 'int4'"),
        (dict(mem_len=0), "mem_len must be at least 1 for a device, got 0"),
    )
    def test_wrong_arguments(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            self.export(**changes)

    def test_int8_needs_text_and_models_float32(self):
        model = TransformerXL(helpers.tiny_config())
        arguments = [runtime_test.tokenizer(), Config(model=model.config), self.path()]
        with self.assertRaisesRegex(
            ValueError, "calibration must have at least 2 tokens for int8, got 0"
        ):
            tflite.export_tflite(model, *arguments, segment_len=4, quantize="int8")
        with self.assertRaisesRegex(ValueError, "tokenizer must have the model's 11 ids, got 256"):
            tflite.export_tflite(model, tokenizers.ByteTokenizer(), *arguments[1:], segment_len=4)
        model = TransformerXL(helpers.tiny_config(), dtype="mixed_bfloat16")
        with self.assertRaisesRegex(ValueError, "must compute in float32, got bfloat16"):
            tflite.export_tflite(model, *arguments, segment_len=4)

    def test_weights_must_be_finite(self):
        model = TransformerXL(helpers.tiny_config())
        arguments = [runtime_test.tokenizer(), Config(model=model.config), self.path()]
        model.blocks[0].trainable_variables[0].assign_add(np.nan)
        with self.assertRaisesRegex(ValueError, "finite weights, got NaN or infinity in .*block"):
            tflite.export_tflite(model, *arguments, segment_len=4, quantize="dynamic")

    def test_a_model_that_does_not_convert(self):
        error = quantization.ConverterError("traceback\nfile.py: error: 'tf.X' op is not\nmore")
        broken = unittest.mock.patch.dict(
            quantization.QUANTIZATIONS, none=unittest.mock.Mock(side_effect=error)
        )
        with broken, self.assertRaisesRegex(ValueError, "TFLite builtins, got: .*'tf.X' op is"):
            self.export()

    def test_operators_that_are_not_built_in_are_refused(self):
        ops = {"ADD": 1, "FlexErf": 2}
        with (
            unittest.mock.patch.object(quantization, "convert", return_value=b""),
            unittest.mock.patch.object(operators, "count", return_value=ops),
            self.assertRaisesRegex(ValueError, "TFLite builtins, got .'FlexErf'"),
        ):
            self.export()

    @pytest.mark.slow
    def test_real_text(self):
        """Quantized models predict what the trained model predicts."""
        corpus = text.Source.from_path(str(helpers.shared("data/tinyshakespeare.txt")))
        config = byte_config(num_layers=3)
        model, tokenizer = TransformerXL(config.model), tokenizers.ByteTokenizer()
        found = calibration.from_text(tokenizer, [corpus], 1 << 30)
        loss = quick_training.train(model, found.ids[:-20_000], steps=350)
        self.assertLess(loss, 2.1)
        limits = {"none": (1.0, 1e-6), "float16": (0.99, 1e-3)}
        for quantize in quantization.QUANTIZATIONS:
            report = tflite.export_tflite(
                model,
                tokenizer,
                config,
                self.path(),
                segment_len=64,
                quantize=quantize,
                calibration=found.part(0, 4097),
                held_out=found.part(len(found.ids) - 8193),
            )
            measured = report.agreement
            print(quantize, report.bytes, measured)
            top1, change = limits.get(quantize, (0.95, 0.02))
            self.assertGreaterEqual(measured.top1_agreement, top1)
            self.assertAlmostEqual(
                measured.bits_per_character / measured.float_bits_per_character, 1, delta=change
            )
            self.assertEqual(measured.contexts, 8192)


if __name__ == "__main__":
    absltest.main()
