"""Real exports on a server: clients get the results of the library for the same model."""

import functools
import pathlib

import numpy as np
import pytest
from absl.testing import absltest, parameterized

import c_api
import prediction_service
import rounding
import trained
from txl_tf import model_dir as model_dirs
from txl_tf.export.serving.saved_model import export_saved_model
from txl_tf.inference.generation import Conversation, Generator
from txl_tf.inference.model_scorer import Scorer
from txl_tf.inference.sampling import Sampling
from txl_tf.serving_client import conversation as served
from txl_tf.serving_client import scoring, transport

TURNS = ("kaka lo\nmi ter, süß", "", "lo", "\n")
EXPORTS = dict(  # name: (tokenizer, how it is prepared, how it is exported)
    byte=("byte", {}, {}),
    half=("byte", {}, dict(state_dtype="float16")),
    char=("char", {}, dict(state="hidden")),
    word=("word", {}, dict(segment_len=3)),
    marks=("word", dict(options=dict(end_of_line="boundary")), {}),
    unmarked=("word", dict(options=dict(end_of_line="none", unknown="error"), vocab_size=None), {}),
    pieces=("sentencepiece", dict(vocab_size=300), {}),
)
EXACT = tuple(name for name in EXPORTS if name != "half")  # whose state is not rounded
TWO_LAYERS = ("byte", "half")  # one that has to be like the other, and shows the order of layers
SAMPLING = Sampling(temperature=0.7, top_k=9, top_p=0.9)
GREEDY = Sampling(temperature=0.0)


def turns(name):
    """Text that the tokenizer of this export does not refuse."""
    if name != "unmarked":
        return TURNS
    words = trained.TEXT.split()
    return (" ".join(words[:5]), "", words[7], words[9])


@pytest.mark.slow
class ExportTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = pathlib.Path(absltest.TestCase().create_tempdir().full_path)
        c_api.load_library(c_api.text_ops())
        cls.loaded, models = {}, {}
        for name, (tokenizer, options, how) in EXPORTS.items():
            (folder / name).mkdir()
            data_dir = trained.prepare_data(folder / name, tokenizer, **options)
            layers = 2 if name in TWO_LAYERS else 1
            loaded = model_dirs.load(trained.describe(folder / name, data_dir, num_layers=layers))
            models[name] = folder / "exports" / name
            export_saved_model(
                loaded.model, loaded.tokenizer, loaded.config, str(models[name]), **how
            )
            cls.loaded[name] = loaded
        cls.service = cls.enterClassContext(prediction_service.Service(models))

    def connect(self, name, way="grpc"):
        address = getattr(self.service, way)
        return transport.connect(address, name, version=None, timeout=60)

    @classmethod
    @functools.cache
    def scores(cls, name):
        """The library's scores of a first turn."""
        loaded = cls.loaded[name]
        return Scorer(loaded.model, loaded.tokenizer).score(turns(name)[0]).to_dict()

    @classmethod
    @functools.cache
    def generator(cls, name, sampling):
        """The library's, compiled once for all tests."""
        loaded = cls.loaded[name]
        return Generator(loaded.model, loaded.tokenizer, sampling=sampling)

    @parameterized.product(name=(*EXPORTS,), way=("grpc", "rest"))
    def test_scores(self, name, way):
        text = turns(name)[0]
        loaded = self.loaded[name]
        expected = self.scores(name)
        found = scoring.score(self.connect(name, way), "text", text.encode())
        atol = rounding.of_scores(loaded.config.model, len(text))
        for key in ("num_tokens", "nats", "perplexity"):
            self.assertAlmostEqual(found[key], expected[key], delta=atol * abs(expected[key]))
        self.assertIsNone(found["log_probs"][0])
        ours, theirs = found["log_probs"][1:], expected["log_probs"][1:]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)

    @parameterized.product(name=(*EXPORTS,))
    def test_generates(self, name):
        generator = self.generator(name, SAMPLING)
        prompts = [turns(name)[0], ""]
        inputs = dict(
            prompts=np.array([prompt.encode() for prompt in prompts], object),
            length=np.array([40, 40], np.int32),
            temperature=np.array([0.7, 0.7], np.float32),
            top_k=np.array([9, 9], np.int32),
            top_p=np.array([0.9, 0.9], np.float32),
            seed=np.array([5, 5], np.int32),
        )
        found = self.connect(name).predict("generate", inputs)["text"]
        expected = [sample.text for (sample,) in generator.samples(prompts, 40, seed=5)]
        self.assertEqual([text.decode() for text in found], expected)

    @parameterized.product(name=EXACT, way=("grpc", "rest"))
    def test_converses(self, name, way):
        """Greedy turns; with choices, the two sides draw other numbers from a seed."""
        here = Conversation(self.generator(name, GREEDY))
        there = served.Conversation(self.connect(name, way), temperature=0.0)
        for turn in turns(name):
            here.read(turn)
            there.read(turn)
            self.assertEqual("".join(there.write(20)), "".join(here.write(20)))

    @parameterized.parameters(*EXPORTS)
    def test_an_empty_beginning(self, name):
        here = Conversation(self.generator(name, GREEDY))
        there = served.Conversation(self.connect(name), temperature=0.0)
        for conversation in (here, there):
            conversation.read("")
        self.assertEqual("".join(there.write(6)), "".join(here.write(6)))

    def test_a_float16_state_is_near(self):
        scores = []
        for name in ("byte", "half"):
            conversation = served.Conversation(self.connect(name))
            conversation.read("kaka lo\nmi ter")
            scores.append(conversation._advance())
        self.assertEqual(conversation._state["keys"].dtype, np.float16)
        size = self.loaded["byte"].config.model
        atol = rounding.typical_of_scores(size, dtype="float16")
        self.assertLess(np.abs(scores[0] - scores[1]).mean(), atol)
        self.assertGreater(np.abs(scores[0] - scores[1]).max(), 0)

    @parameterized.parameters("byte", "char")
    def test_requests_can_be_joined(self, name):
        """As a server's batching does it: what is shorter is filled up with a value of its own."""
        server = self.connect(name)
        state = server.predict("initial_state", {"batch_size": np.int32([1])})
        requests = []
        for seed, size in enumerate((3, 7, 1)):
            ids = np.random.default_rng(seed).integers(1, 20, [1, size]).astype(np.int32)
            inputs = dict(input_ids=ids, lengths=np.int32([size])) | state
            state = server.predict("step", inputs)
            requests.append((inputs, dict(state)))
            del state["scores"]
        joined = {}
        for key in requests[0][0]:
            parts = [inputs[key] for inputs, _ in requests]
            if key == "input_ids":
                fill = [[(0, 0), (0, 7 - part.shape[1])] for part in parts]
                parts = [
                    np.pad(part, width, constant_values=part[0, 0])
                    for part, width in zip(parts, fill, strict=True)
                ]
            joined[key] = np.concatenate(parts)
        found = server.predict("step", joined)
        for row, (inputs, expected) in enumerate(requests):
            size = inputs["lengths"][0]
            expected = expected | {"scores": expected["scores"][:, :size]}
            for key, value in expected.items():
                cut = found[key][row : row + 1]
                cut = cut[:, :size] if key == "scores" else cut
                atol = rounding.of_scores(self.loaded[name].config.model)
                np.testing.assert_allclose(cut, value, rtol=0, atol=atol, err_msg=key)
        ones = server.predict("initial_state", {"batch_size": np.int32([1, 1, 1])})
        self.assertEqual(ones["mem_length"].tolist(), [0, 0, 0])

    def test_the_unknown_symbol_is_found(self):
        for name, loaded in self.loaded.items():
            conversation = served.Conversation(self.connect(name))
            tokenizer = loaded.tokenizer
            encoded = None if tokenizer.kind == "sentencepiece" else tokenizer.unknown_id
            self.assertEqual(conversation._unknown, encoded, name)  # pieces of bytes know all text

    @parameterized.parameters("grpc", "rest")
    def test_refusals_are_reported(self, way):
        server = self.connect("byte", way)
        with self.assertRaisesRegex(ValueError, r"^ids must lie in 0\.\.255.*got 300$"):
            server.predict("decode", dict(ids=np.int32([[300]]), lengths=np.int32([1])))
        with self.assertRaisesRegex(ValueError, r"^text must be UTF-8, got byte 0xff at offset 2"):
            self.connect("char", way).predict("score", dict(text=np.array([b"ab\xff"], object)))


if __name__ == "__main__":
    absltest.main()
