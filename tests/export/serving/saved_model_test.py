"""Tests of txl_tf.export.serving.saved_model: each signature's outputs and rejected input."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import c_api
import helpers
import rounding
from exported import (
    TEXT,
    call,
    chain,
    folder_of,
    initial,
    make_model,
    make_tokenizer,
    model_chain,
    segments_of,
    signatures,
    step,
)
from txl_tf.configs.run import Config
from txl_tf.export.serving.saved_model import export_saved_model
from txl_tf.inference.generation import Generator
from txl_tf.inference.model_scorer import Scorer
from txl_tf.inference.sampling import Sampling


def atol_of(model):
    return rounding.of_scores(model.config, 128)


class StepTest(parameterized.TestCase):
    @parameterized.parameters("kv", "hidden")
    def test_chained_calls_equal_the_model(self, state):  # AC19
        found, segments = signatures(state=state), segments_of(2, 4, 4, 4)
        expected = model_chain(make_model(), segments)
        for ours, theirs in zip(chain(found, segments), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol_of(make_model()))
        fresh = model_chain(make_model(), segments[2:])
        self.assertGreater(np.abs(fresh[0] - expected[2]).max(), 1e-2)  # memory shows

    def test_initial_state_is_no_memory(self):  # AC02
        (ids,) = segments_of(2, 4)
        model = make_model()
        expected = np.asarray(model(ids)[0])
        found, _ = model(ids, model.initial_mems(2))
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol_of(model))
        for state in ("kv", "hidden"):
            (scores,) = chain(signatures(state=state), [ids])
            np.testing.assert_allclose(scores, expected, rtol=0, atol=atol_of(model))

    @parameterized.product(rows=(1, 3, 8), size=(1, 7, 64))
    def test_one_export_takes_any_batch_and_segment(self, rows, size):
        segments = segments_of(rows, size, size)
        found = chain(signatures(), segments)
        for ours, theirs in zip(found, model_chain(make_model(), segments), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol_of(make_model()))

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
        atol = atol_of(make_model())
        np.testing.assert_allclose(scores[1:, :2], alone, rtol=0, atol=atol)
        self.assertEqual(state["mem_length"].tolist(), [4, 2])
        ours, theirs = state["keys"][1, :, :, 2:], after["keys"][0, :, :, 2:]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)

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
            # What is carried is rounded once; the rest of the sums is float32.
            error = np.abs(ours - theirs).mean()
            self.assertLess(error, rounding.typical(4, 8, scale=0.5 * 8**0.5, dtype="float16"))

    @parameterized.parameters(
        dict(pre_norm=True, attend_to_initial_zeros=True),
        dict(cutoffs=(4, 7), div_val=2, untie_biases=True),
        dict(clamp_len=3, attention_span=3, d_embed=6, tie_output_projection=False),
    )
    def test_options_of_the_model(self, **changes):
        found, segments = signatures(changes=tuple(changes.items())), segments_of(2, 4, 4)
        expected = model_chain(make_model(**changes), segments)
        for ours, theirs in zip(chain(found, segments), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol_of(make_model()))

    def test_as_a_keras_layer(self):  # AC19
        layer = tf.keras.layers.TFSMLayer(str(folder_of()), call_endpoint="step")
        (ids,), state = segments_of(2, 4), initial(signatures(), 2)
        scores = layer(ids, lengths=np.array([4, 4], "int32"), **state)["scores"]
        atol = atol_of(make_model())
        np.testing.assert_allclose(scores, make_model()(ids)[0], rtol=0, atol=atol)


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
                log_probs = found["log_probs"][i, 1:size]
                atol = atol_of(make_model(kind))
                np.testing.assert_allclose(log_probs, expected[1:], rtol=0, atol=atol)
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
        np.testing.assert_allclose(scored, expected, rtol=0, atol=atol_of(model))


class RefusalTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # What a server checks is not checked before it.
        cls.session = cls.enterClassContext(c_api.Session(folder_of()))

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
        session = self.session
        inputs = dict(input_ids=np.array([[1, 2]], "int32"), lengths=np.array([2], "int32"))
        inputs |= session.run("initial_state", batch_size=np.int32(1))
        wrong = {k: np.asarray(v, inputs[k].dtype) for k, v in wrong.items()}
        with self.assertRaisesRegex(c_api.Error, message) as caught:
            session.run("step", **(inputs | wrong))
        self.assertEqual(caught.exception.code, c_api.INVALID_ARGUMENT)
        self.assertEqual(session.run("step", **inputs)["scores"].shape, (1, 2, 11))

    @parameterized.parameters(
        (dict(length=[-1]), "length must be at least 0, got -1"),
        (dict(length=[2**31 - 1]), "length must be at most 1048576, got 2147483647"),
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


if __name__ == "__main__":
    absltest.main()
