"""Tests of txl_tf.export.saved_model: the model's numbers, wherever the export is run."""

import functools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import c_api
import helpers
import prepared
from txl_tf.config import Config, from_dict
from txl_tf.data import text as texts
from txl_tf.data import tokenizers
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.export import warm_up
from txl_tf.export.saved_model import export_saved_model
from txl_tf.inference.generate import Generator
from txl_tf.inference.sampling import Sampling
from txl_tf.inference.score import Scorer
from txl_tf.models.transformer_xl import TransformerXL

TEXT = prepared.text(300)
SIGNATURES = ["decode", "encode", "generate", "initial_state", "score", "serving_default", "step"]
SIGNATURES += ["step_int64"]


@functools.cache
def make_tokenizer(kind):
    if kind == "byte":
        return tokenizers.ByteTokenizer()
    if kind == "letters":  # eleven ids
        return tokenizers.CharTokenizer(
            vocabulary=Vocabulary([*"abcdefghij", "<unk>"]), end_of_line="none"
        )
    size = 300 if kind == "sentencepiece" else None
    learner = tokenizers.kind(kind).start(vocab_size=size, min_count=0)
    learner.add(learner.observe(texts.Piece(TEXT.encode())))
    return learner.finish()


@functools.cache
def make_model(kind="letters", **changes):
    sizes = dict(vocab_size=make_tokenizer(kind).vocab_size, mem_len=4, **changes)
    return helpers.loud(TransformerXL(helpers.tiny_config(**sizes)), deviation=0.4)


@functools.cache
def exported(kind="letters", changes=(), **options):
    """The folder of an export in which nothing but the export is left."""
    folder = pathlib.Path(tempfile.mkdtemp())
    absltest.TestCase.addClassCleanup(shutil.rmtree, folder)
    write(folder / "first" / "toy", kind, dict(changes), **options)
    return pathlib.Path(shutil.move(folder / "first" / "toy" / "1", folder / "moved"))


def write(folder, kind="letters", changes=None, **options):
    model = make_model(kind, **(changes or {}))
    tokenizer = make_tokenizer(kind)
    return export_saved_model(
        model, tokenizer, Config(model=model.config), str(folder), **({"segment_len": 8} | options)
    )


@functools.cache
def signatures(*args, **options):
    return tf.saved_model.load(str(exported(*args, **options))).signatures


def call(signature, **inputs):
    return {
        k: v.numpy() for k, v in signature(**{k: tf.constant(v) for k, v in inputs.items()}).items()
    }


def initial(found, rows):
    return call(found["initial_state"], batch_size=rows)


def step(found, ids, state, lengths=None, name="step"):
    """Scores and the state after ids [B, T]."""
    dtype = np.int64 if name == "step_int64" else np.int32
    lengths = np.full(len(ids), ids.shape[1]) if lengths is None else np.array(lengths)
    outputs = call(found[name], input_ids=ids.astype(dtype), lengths=lengths.astype(dtype), **state)
    return outputs.pop("scores"), outputs


def chain(found, segments, **options):
    state, scores = initial(found, len(segments[0])), []
    for ids in segments:
        new, state = step(found, ids, state, **options)
        scores.append(new)
    return scores


def model_chain(model, segments):
    mems, scores = None, []
    for ids in segments:
        new, mems = model(ids, mems)
        scores.append(np.asarray(new))
    return scores


def segments_of(rows, *sizes):
    return [helpers.draw_ids(rows, size, seed=i) for i, size in enumerate(sizes)]


class StepTest(parameterized.TestCase):
    @parameterized.parameters("kv", "hidden")
    def test_chained_calls_equal_the_model(self, state):  # AC19
        found, segments = signatures(state=state), segments_of(2, 4, 4, 4)
        expected = model_chain(make_model(), segments)
        for ours, theirs in zip(chain(found, segments), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
        fresh = model_chain(make_model(), segments[2:])
        self.assertGreater(np.abs(fresh[0] - expected[2]).max(), 1e-2)  # memory shows

    def test_initial_state_is_no_memory(self):  # AC02
        (ids,) = segments_of(2, 4)
        model = make_model()
        expected = np.asarray(model(ids)[0])
        np.testing.assert_allclose(
            model(ids, model.initial_mems(2))[0], expected, rtol=0, atol=1e-5
        )
        for state in ("kv", "hidden"):
            (scores,) = chain(signatures(state=state), [ids])
            np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)

    @parameterized.product(rows=(1, 3, 8), size=(1, 7, 64))
    def test_one_export_takes_any_batch_and_segment(self, rows, size):
        segments = segments_of(rows, size, size)
        found = chain(signatures(), segments)
        for ours, theirs in zip(found, model_chain(make_model(), segments), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)

    def test_interleaved_conversations_do_not_meet(self):
        found = signatures()
        talks = [segments_of(1, 4, 3, 5), [s[:, ::-1] for s in segments_of(1, 5, 4, 3)]]
        alone = [chain(found, talk) for talk in talks]
        states = [initial(found, 1), initial(found, 1)]
        for turn in range(3):
            for i, talk in enumerate(talks):
                scores, states[i] = step(found, talk[turn], states[i])
                np.testing.assert_array_equal(scores, alone[i][turn])

    def test_rows_of_different_lengths(self):
        found, ids = signatures(), helpers.draw_ids(2, 4)
        ids[1, 2:] = 99  # padding may hold anything
        scores, state = step(found, ids, initial(found, 2), lengths=[4, 2])
        alone, after = step(found, ids[1:, :2], initial(found, 1))
        np.testing.assert_allclose(scores[1:, :2], alone, rtol=0, atol=1e-5)
        self.assertEqual(state["mem_length"].tolist(), [4, 2])
        np.testing.assert_allclose(
            state["keys"][1, :, :, 2:], after["keys"][0, :, :, 2:], atol=1e-5
        )

    def test_wide_ids(self):
        found, segments = signatures(), segments_of(2, 4, 4)
        for ours, theirs in zip(
            chain(found, segments, name="step_int64"), chain(found, segments), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "got 42949673"):
            wide = segments[0].astype("int64") + 2**32
            step(found, wide + 1, initial(found, 2), name="step_int64")

    @parameterized.parameters("kv", "hidden")
    def test_half_precision_on_the_wire(self, state):
        found, segments = signatures(state=state, state_dtype="float16"), segments_of(2, 4, 4)
        floats = initial(found, 2).keys() - {"mem_length"}
        self.assertEqual({initial(found, 2)[name].dtype for name in floats}, {np.dtype("float16")})
        for ours, theirs in zip(
            chain(found, segments), model_chain(make_model(), segments), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.02)

    @parameterized.parameters(
        dict(pre_norm=True, attend_to_initial_zeros=True),
        dict(cutoffs=(4, 7), div_val=2, untie_biases=True),
        dict(clamp_len=3, attention_span=3),
    )
    def test_options_of_the_model(self, **changes):
        found, segments = signatures(changes=tuple(changes.items())), segments_of(2, 4, 4)
        expected = model_chain(make_model(**changes), segments)
        for ours, theirs in zip(chain(found, segments), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)

    def test_as_a_keras_layer(self):  # AC19
        layer = tf.keras.layers.TFSMLayer(str(exported()), call_endpoint="step")
        (ids,), state = segments_of(2, 4), initial(signatures(), 2)
        scores = layer(ids, lengths=np.array([4, 4], "int32"), **state)["scores"]
        np.testing.assert_allclose(scores, make_model()(ids)[0], rtol=0, atol=1e-5)


class TextTest(parameterized.TestCase):
    @parameterized.parameters("byte", "char", "word", "sentencepiece")
    def test_score_equals_the_scorer(self, kind):
        contents = [TEXT, "", TEXT[:1], TEXT[100:140] + "\n", " "]
        found = call(signatures(kind)["score"], text=contents)
        scorer = Scorer(make_model(kind), make_tokenizer(kind), segment_len=8)
        for i, content in enumerate(contents):
            ids = make_tokenizer(kind).encode(content)
            size = found["num_tokens"][i]
            np.testing.assert_array_equal(found["ids"][i, :size], ids)
            np.testing.assert_array_equal(found["log_probs"][i, size:], 0.0)
            if size:
                expected = scorer.score(content).log_probs
                self.assertEqual(found["log_probs"][i, 0], 0.0)
                np.testing.assert_allclose(found["log_probs"][i, 1:size], expected[1:], atol=1e-4)
        self.assertGreater(found["num_tokens"].max(), 40)  # more segments than one

    @parameterized.parameters("byte", "char", "word", "sentencepiece")
    def test_generate_equals_the_generator(self, kind):
        prompts, lengths, seeds = [TEXT[:70], "", TEXT[7:9]], [40, 3, 0], [5, 6, 7]
        found = call(
            signatures(kind)["generate"],
            prompts=prompts,
            length=lengths,
            temperature=[1.0, 0.0, 1.0],
            top_k=[0, 0, 3],
            top_p=[0.9, 1.0, 1.0],
            seed=seeds,
        )["text"]
        settings = [Sampling(top_p=0.9), Sampling(temperature=0.0)]
        for i, sampling in enumerate(settings):
            generator = Generator(
                make_model(kind), make_tokenizer(kind), sampling=sampling, segment_len=8
            )
            ((expected,),) = generator.samples([prompts[i]], lengths[i], seed=seeds[i])
            self.assertEqual(found[i].decode(), expected.text)
        self.assertEqual(found[2], b"")
        self.assertGreater(len(found[0]), 10)

    def test_rows_of_generate_do_not_meet(self):
        found = signatures("char")["generate"]
        whole = dict(
            prompts=["ka", "lo mi", "", TEXT[:30]],
            length=[35, 4, 20, 1],
            temperature=[1.0, 0.5, 0.0, 2.0],
            top_k=[0, 4, 0, 2],
            top_p=[1.0, 1.0, 1.0, 0.5],
            seed=[1, 2, 3, 4],
        )
        together = call(found, **whole)["text"]
        for i in range(4):
            alone = call(found, **{name: values[i : i + 1] for name, values in whole.items()})
            self.assertEqual(alone["text"][0], together[i])

    def test_encode_leaves_the_last_line_open(self):  # AC19: the ids of prepare
        found = signatures("word")
        tokenizer = make_tokenizer("word")
        encoded = call(found["encode"], text=["a the", "a\n"])
        self.assertEqual(encoded["lengths"].tolist(), [2, 2])
        np.testing.assert_array_equal(encoded["ids"][0], tokenizer.encode("a the", complete=False))
        scored = call(found["score"], text=["a the", "a\n"])
        np.testing.assert_array_equal(scored["ids"][0], tokenizer.encode("a the"))
        decoded = call(found["decode"], **encoded)["text"].tolist()
        self.assertEqual(decoded, [b"a the", b"a\n"])

    def test_a_model_without_memory_scores_and_does_not_generate(self):
        model = make_model().with_lengths(mem_len=0)
        folder = helpers.temp_dir(self)
        told = export_saved_model(
            model, make_tokenizer("letters"), Config(model=model.config), str(folder / "toy")
        )
        self.assertNotIn("generate", told["signatures"])
        found = tf.saved_model.load(str(folder / "toy" / "1")).signatures
        scored = call(found["score"], text=["abcabc"])["log_probs"][0, 1:]
        expected = Scorer(model, make_tokenizer("letters")).score("abcabc").log_probs[1:]
        np.testing.assert_allclose(scored, expected, atol=1e-5)


class RefusalTest(parameterized.TestCase):
    def refuses(self, message, name, **inputs):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            call(signatures()[name], **inputs)

    @parameterized.parameters(
        (dict(input_ids=[[1, 11]]), r"input_ids must lie in 0\.\.10 \(vocabulary of 11\), got 11"),
        (dict(input_ids=[[1, -1]]), r"input_ids must lie in 0\.\.10 \(vocabulary of 11\), got -1"),
        (dict(lengths=[3]), "lengths must lie between 0 and 2 but got 3"),
        (dict(lengths=[-1]), "lengths must lie between 0 and 2 but got -1"),
        (dict(lengths=[1, 1]), "lengths must have as many rows as input_ids: 1 but got 2"),
        (dict(mem_length=[5]), "mem_length must lie between 0 and 4 but got 5"),
        (dict(mem_length=[0, 0]), "mem_length must have as many rows as input_ids: 1 but got 2"),
        (
            dict(keys=np.zeros([1, 2, 2, 5, 4], "float32")),
            r"keys must be the state of this model, with shape \[rows, 2, 2, 4, 4\], "
            r"but has shape 1, 2, 2, 5, 4",
        ),
        (dict(values=np.zeros([2, 2, 2, 4, 4], "float32")), "values must have as many rows"),
    )
    def test_step(self, wrong, message):
        session = c_api.Session(exported())  # what a server checks is not checked before it
        inputs = dict(input_ids=np.array([[1, 2]], "int32"), lengths=np.array([2], "int32"))
        inputs |= session.run("initial_state", batch_size=np.int32(1))
        wrong = {k: np.asarray(v, inputs[k].dtype) for k, v in wrong.items()}
        with self.assertRaisesRegex(c_api.Error, message) as caught:
            session.run("step", **(inputs | wrong))
        self.assertEqual(caught.exception.code, c_api.INVALID_ARGUMENT)
        self.assertEqual(session.run("step", **inputs)["scores"].shape, (1, 2, 11))

    @parameterized.parameters(
        (dict(length=[-1]), "length must be at least 0, got -1"),
        (dict(temperature=[float("nan")]), "temperature must be at least 0 and finite, got nan"),
        (dict(temperature=[-0.5]), "temperature must be at least 0 and finite, got -0.5"),
        (dict(top_k=[-2]), "top_k must be at least 0, got -2"),
        (dict(top_p=[0.0]), "top_p must be above 0 and at most 1, got 0"),
        (dict(seed=[-1]), "seed must be at least 0, got -1"),
        (dict(prompts=[b"a\xff"]), "text must be UTF-8, got byte 0xff at offset 1 of row 0"),
    )
    def test_generate(self, wrong, message):
        inputs = dict(
            prompts=["a"], length=[1], temperature=[1.0], top_k=[0], top_p=[1.0], seed=[0]
        )
        self.refuses(message, "generate", **(inputs | wrong))

    def test_text(self):
        self.refuses("text must be UTF-8", "score", text=[b"\xff"])
        self.refuses("batch_size must be at least 0, got -2", "initial_state", batch_size=-2)
        self.refuses("ids must lie in", "decode", ids=[[11]], lengths=[1])
        self.refuses("lengths must lie between 0 and 1 but got 2", "decode", ids=[[1]], lengths=[2])


class FilesTest(parameterized.TestCase):
    def test_description(self):
        folder = exported()
        told = json.loads((folder / "assets.extra" / "model.json").read_text())
        self.assertEqual(list(told["signatures"]), SIGNATURES)
        self.assertEqual(told["state"]["keys"], {"shape": [-1, 2, 2, 4, 4], "dtype": "float32"})
        self.assertEqual(told["state_bytes_per_row"], 2 * 2 * 2 * 4 * 4 * 4 + 4)
        config = Config(model=make_model().config)
        self.assertEqual(from_dict(type(config.model), told["config"]["model"]), config.model)
        step = told["signatures"]["step"]
        self.assertEqual(step["inputs"]["input_ids"]["tensor"], "step_input_ids:0")
        self.assertEqual(step["outputs"]["scores"]["shape"], [-1, -1, 11])

    def test_the_tokenizer_goes_along(self):
        found = tokenizers.load(str(exported("word") / "assets"))
        self.assertEqual(found.checksum, make_tokenizer("word").checksum)

    @parameterized.parameters("letters", "byte", "sentencepiece")
    def test_no_path_of_this_machine_is_inside(self, kind):
        for path in exported(kind).rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                for place in (tempfile.gettempdir(), str(helpers.ROOT)):
                    self.assertNotIn(place.encode() + b"/", data, path)

    @parameterized.parameters("letters", "byte")
    def test_warm_up_requests_run(self, kind):
        folder = exported(kind, state_dtype="float16")
        path = folder / "assets.extra" / warm_up.FILE_NAME
        self.assertLess(path.stat().st_size, 5000)
        seen = set()
        for record in tf.data.TFRecordDataset(str(path)):
            log = warm_up.prediction_log_pb2.PredictionLog.FromString(record.numpy())
            request = log.predict_log.request
            self.assertEqual(request.model_spec.name, "toy")
            inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
            call(
                signatures(kind, state_dtype="float16")[request.model_spec.signature_name], **inputs
            )
            seen.add(request.model_spec.signature_name)
        self.assertEqual(seen, set(SIGNATURES) - {"serving_default"})

    def test_versions_stand_side_by_side(self):
        folder = helpers.temp_dir(self) / "toy"
        write(folder)
        write(folder, version=2)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["1", "2"])
        before = (folder / "1" / "saved_model.pb").read_bytes()
        with self.assertRaisesRegex(
            ValueError, "output_dir must not hold version 1 yet, got .*toy/1"
        ):
            write(folder)
        self.assertEqual((folder / "1" / "saved_model.pb").read_bytes(), before)

    def test_nothing_is_left_of_a_failure(self):
        folder = helpers.temp_dir(self) / "toy"
        full = mock.patch.object(warm_up, "write", side_effect=OSError("disk full"))
        with full, self.assertRaisesRegex(OSError, "disk full"):
            write(folder)
        self.assertEmpty(list(folder.iterdir()))

    @parameterized.parameters(
        (dict(version=0), "version must be at least 1, got 0"),
        (dict(state="both"), "state must be one of kv, hidden, got 'both'"),
        (dict(state_dtype="int8"), "state_dtype must be one of float32, float16, got 'int8'"),
        (dict(segment_len=0), "segment_len must be at least 1, got 0"),
    )
    def test_wrong_values(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            write(helpers.temp_dir(self) / "toy", **options)


class ElsewhereTest(parameterized.TestCase):
    """A fresh process, and only the moved folder."""

    def test_by_tensorflow_alone(self):  # AC19
        program = """
import sys, numpy as np, tensorflow as tf
found = tf.saved_model.load(sys.argv[1]).signatures
state = found["initial_state"](batch_size=tf.constant(2))
for name in ("0", "1", "2"):
    ids = tf.constant(np.load(sys.argv[2])[name])
    out = found["serving_default"](input_ids=ids, lengths=tf.fill([2], 4), **state)
    np.save(sys.argv[3] + name, out.pop("scores"))
    state = out
print([name for name in sys.modules if name.startswith("txl_tf")])
"""
        folder, segments = helpers.temp_dir(self), segments_of(2, 4, 4, 4)
        np.savez(folder / "ids.npz", **{str(i): ids for i, ids in enumerate(segments)})
        command = [
            sys.executable,
            "-c",
            program,
            exported(),
            folder / "ids.npz",
            f"{folder}/scores",
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True)
        self.assertEqual(done.stdout.strip(), "[]")
        for i, expected in enumerate(model_chain(make_model(), segments)):
            np.testing.assert_allclose(np.load(folder / f"scores{i}.npy"), expected, atol=1e-5)

    @parameterized.parameters("char", "sentencepiece")
    def test_by_the_c_library_alone(self, kind):
        folder = helpers.temp_dir(self)
        ids = helpers.draw_ids(3, 5)
        state = initial(signatures(kind), 3)
        requests = dict(input_ids=ids, lengths=np.array([5, 5, 5], "int32"), **state)
        requests = {f"0/step/{name}": value for name, value in requests.items()}
        requests["1/score/text"] = np.array([TEXT[:80].encode()])
        np.savez(folder / "requests.npz", **requests)
        command = [sys.executable, helpers.ROOT / "tests" / "c_api.py", exported(kind)]
        command += [folder / "requests.npz", folder / "answers.npz"]
        if kind == "sentencepiece":
            command.append(f"--library={c_api.text_ops()}")
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True)
        self.assertEqual(done.stdout.splitlines()[-1], "[]")  # no Python of TensorFlow
        answers = np.load(folder / "answers.npz")
        np.testing.assert_allclose(
            answers["0/step/scores"], make_model(kind)(ids)[0], rtol=0, atol=1e-5
        )
        expected = Scorer(make_model(kind), make_tokenizer(kind), segment_len=8).score(TEXT[:80])
        np.testing.assert_allclose(
            answers["1/score/log_probs"][0, 1:], expected.log_probs[1:], atol=1e-4
        )


if __name__ == "__main__":
    absltest.main()
