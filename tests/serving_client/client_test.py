"""Tests of scripts/serving_client.py against a server's two interfaces."""

import json
import subprocess
import sys

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import rounding
import trained
from toy_service import WAYS, ServerTestCase
from txl_tf.inference import sampling as samplings
from txl_tf.serving_client import sampling, transport
from txl_tf.serving_client.conversation import Conversation


class ConversationTest(ServerTestCase):
    def converse(self, way, model="toy", **options):
        return Conversation(self.connect(way, model), **options)

    def turn(self, conversation, content, length=12):
        conversation.read(content)
        return "".join(conversation.write(length))

    @parameterized.product(way=WAYS, segment_len=(1, 3, 32))
    def test_equals_one_pass_over_all_text(self, way, segment_len):
        """Of greedy turns, each id is the likeliest after all before it, read at once."""
        conversation = self.converse(way, temperature=0, segment_len=segment_len)
        self.turn(conversation, "hello")
        self.turn(conversation, "")
        self.turn(conversation, "and so")
        asked = {"hello": 5, "and so": 6}
        written = np.array(conversation._turn, np.int32)[asked["and so"] :]
        everything = self.fed_ids("step")
        self.assertEqual(bytes(everything[:5]), b"hello")
        state = self.model.run("initial_state", batch_size=np.int32(1))
        lengths = np.array([len(everything)], np.int32)
        ids = np.array([everything], np.int32)
        scores = self.model.run("step", input_ids=ids, lengths=lengths, **state)["scores"][0]
        np.testing.assert_array_equal(scores[-12:].argmax(-1), written)
        self.assertGreater(len(set(written.tolist())), 3)

    def fed_ids(self, signature):
        """All ids that the service was given, in order."""
        steps = [inputs for name, inputs in self.service.calls if name == signature]
        return [i for step in steps for i in step["input_ids"][0, : step["lengths"][0]].tolist()]

    def test_requests_are_of_a_segment_and_then_of_one_token(self):
        self.turn(self.converse("grpc", segment_len=4), "hello world", length=3)
        shapes = [i["input_ids"].shape[1] for name, i in self.service.calls if name == "step"]
        self.assertEqual(shapes, [4, 4, 2, 1, 1, 1])

    @parameterized.product(way=WAYS, sampled=(False, True))
    def test_interleaved_conversations_equal_each_alone(self, way, sampled):
        options = dict(temperature=1.0, top_k=6) if sampled else dict(temperature=0)
        questions = ("hello", "worlds apart"), ("once", "", "more")

        def alone(turns, seed):
            conversation = self.converse(way, seed=seed, **options)
            return [self.turn(conversation, content) for content in turns]

        expected = [alone(turns, seed) for seed, turns in enumerate(questions)]
        self.assertNotEqual(expected[0][0], expected[1][0])
        both = [self.converse(way, seed=seed, **options) for seed in range(2)]
        found = [[], []]
        for turn in range(3):
            streams = []
            for i, turns in enumerate(questions):
                if turn < len(turns):
                    both[i].read(turns[turn])
                    found[i].append("")
                    streams.append((i, both[i].write(12)))
            while streams:  # one token of each in turns
                for i, stream in list(streams):
                    piece = next(stream, None)
                    if piece is None:
                        streams.remove((i, stream))
                    else:
                        found[i][-1] += piece
        self.assertEqual(found, expected)

    def test_float16_state(self):
        found = self.turn(self.converse("grpc", "half", temperature=0), "hello", 30)
        self.assertEqual(found, self.turn(self.converse("grpc", temperature=0), "hello", 30))

    @parameterized.product(way=WAYS)
    def test_characters_are_yielded_complete(self, way):
        conversation = self.converse(way, seed=2)
        conversation.read("ha")
        pieces = list(conversation.write(40))
        self.assertIn("ü", pieces)
        self.assertNotIn("\ufffd", "".join(pieces[:-1]))
        self.assertEqual("".join(pieces).encode()[:20], bytes(conversation._turn[2:22]))

    @parameterized.product(way=WAYS)
    def test_a_conversation_stays_with_its_version(self, way):
        expected = self.turn(self.converse(way, temperature=0), "hello", 24)
        conversation = self.converse(way, temperature=0)
        conversation.read("hello")
        stream = conversation.write(24)
        found = next(stream)
        versions = self.service.models["toy"]
        kept = versions[12]
        versions[13] = self.service.models["half"][1]  # would refuse the state
        try:
            found += "".join(stream)
            self.assertEqual(found, expected)
            with self.assertRaisesRegex(ValueError, "not found for request: Specific.toy, 12"):
                del versions[12]
                self.turn(conversation, "more")
        finally:
            versions[12] = kept
            del versions[13]

    def test_a_model_without_memory_is_refused(self):
        server = Words(("", ""))
        server.initial_state = lambda batch_size: dict(mems=np.zeros([1, 0]), mem_length=batch_size)
        with self.assertRaisesRegex(ValueError, "mem_len must be at least 1 to converse, got 0"):
            Conversation(server)

    def test_equal_seeds_give_equal_texts(self):
        texts = [self.turn(self.converse("grpc", seed=seed), "ha", 30) for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_an_empty_prompt_starts_after_a_line_end(self):
        conversation = self.converse("grpc", temperature=0)
        self.turn(conversation, "", 1)
        self.assertEqual(self.fed_ids("step"), [10])


class Words:
    """A server of words with a symbol for unknown ones, 1; `marks` begin or end lines, as 0."""

    def __init__(self, marks):
        self.words = ["<mark>", "<unk>", "a", "b"]
        self.marks = marks
        self.fed = []

    def predict(self, signature, inputs, outputs=()):
        return getattr(self, signature)(**inputs)

    def initial_state(self, batch_size):
        return dict(mems=np.zeros([1, 1]), mem_length=batch_size * 0)

    def step(self, input_ids, lengths, mems, mem_length):
        self.fed += input_ids[0].tolist()
        scores = np.zeros([1, input_ids.shape[1], 4], np.float32)
        scores[..., :3] = 1.0, 9.0, 5.0  # the unknown one is the likeliest
        return dict(scores=scores, mems=mems, mem_length=mem_length + lengths)

    def encode(self, text):
        content = text[0].decode()
        if content == "\n" and self.marks is None:
            raise transport.ServerError("not in the vocabulary", invalid=True)
        begin, end = self.marks or ("", "")
        words = (begin + content.replace("\n", f" {end} ")).split()
        ids = [self.words.index(w) if w in self.words else 1 for w in words]
        return dict(ids=np.array([ids], np.int32), lengths=np.array([len(ids)]))

    def decode(self, ids, lengths):
        return dict(text=np.array([" ".join(self.words[i] for i in ids[0]).encode()], object))


class MarksTest(parameterized.TestCase):
    def fed(self, marks, *turns):
        server = Words(marks)
        conversation = Conversation(server, temperature=0)
        for turn in turns:
            conversation.read(turn)
            list(conversation.write(1))
        return server.fed

    @parameterized.parameters(
        (("", "<mark>"), "a b", [2, 3, 2, 2, 3]),  # what was written last, 2, is read with the next
        (("<mark> ", "<mark>"), "a b", [0, 2, 3, 2, 2, 3]),  # but one mark at the start of a line
        (None, "a b", [2, 3, 2, 2, 3]),
        (("", "<mark>"), "", [0, 2]),
        (("<mark> ", "<mark>"), "", [0, 2]),
        (("", ""), "", [0, 2]),
        (None, "", [0, 2]),
    )
    def test_lines(self, marks, content, expected):
        self.assertEqual(self.fed(marks, content, content), expected)

    def test_the_unknown_symbol_is_read_and_never_written(self):
        self.assertEqual(self.fed(("", ""), "a zebra", ""), [2, 1, 2])


class ChooseTest(parameterized.TestCase):
    @parameterized.product(
        temperature=(0.0, 0.3, 1.0, 4.0), top_k=(None, 1, 3, 99), top_p=(1.0, 0.5, 0.01)
    )
    def test_chooses_as_the_library_does(self, temperature, top_k, top_p):
        draw = np.random.default_rng(5)
        scores = draw.normal(size=[40, 11]).astype(np.float32)
        scores[:20] = scores[:20].round()  # ties
        uniforms = draw.random(40, np.float32)
        how = samplings.Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
        expected = samplings.choose(scores, uniforms, how).numpy()
        found = [
            sampling.choose(row, uniform, temperature, top_k, top_p)
            for row, uniform in zip(scores, uniforms, strict=True)
        ]
        np.testing.assert_array_equal(found, expected)


class ProgramTest(ServerTestCase):
    def last_line(self, stderr):
        self.assertNotIn("Traceback", stderr)
        return stderr.splitlines()[-1].removeprefix("serving_client: error: ")

    @parameterized.product(way=WAYS)
    def test_score(self, way):
        stdout, _ = self.run_client(way, "--score=süß ab")
        expected = self.model.run("score", text=np.array(["süß ab"], object))
        found = trained.last_json(stdout)
        self.assertEqual(list(found), ["log_probs", "num_tokens", "nats", "perplexity"])
        self.assertEqual(found["num_tokens"], 8)
        self.assertIsNone(found["log_probs"][0])
        np.testing.assert_array_equal(
            np.array(found["log_probs"][1:], np.float32), expected["log_probs"][0, 1:]
        )
        total = -sum(found["log_probs"][1:])
        self.assertAlmostEqual(found["nats"], total, delta=rounding.tolerance(8, scale=total))

    def test_score_a_file(self):
        file = self.create_tempfile(content="süß\nab\n").full_path
        from_file, _ = self.run_client("grpc", f"--score=@{file}", "--model_version=3")
        from_flag, _ = self.run_client("grpc", "--score=süß\nab\n")
        self.assertEqual(json.loads(from_file), json.loads(from_flag))

    def test_a_single_token_has_no_perplexity(self):
        stdout, _ = self.run_client("rest", "--score=a")
        self.assertEqual(
            json.loads(stdout), dict(log_probs=[None], num_tokens=1, nats=0.0, perplexity=None)
        )

    @parameterized.product(way=WAYS)
    def test_generate(self, way):
        flags = ("--length=7", "--temperature=0.25", "--top_k=4", "--top_p=0.5", "--seed=3")
        stdout, stderr = self.run_client(way, "--generate=Hä", *flags)
        self.assertEqual(stdout, "Hä of |Hä|7|0.25|4|0.50|3\n")
        self.assertRegex(stderr, r"\A\S+ seed=3\n\Z")
        stdout, _ = self.run_client(way, "--generate=", "--length=7", "--seed=0")
        self.assertEqual(stdout, " of ||7|1.00|0|1.00|0\n")

    @parameterized.product(way=WAYS)
    def test_converse(self, way):
        flags = ("--converse", "--length=9", "--seed=5", "--top_k=5")
        stdout, _ = self.run_client(way, *flags, stdin="hello\n\n/reset\nhello\n")
        first, second, again = stdout.splitlines()
        conversation = Conversation(self.connect(way), 5, top_k=5)
        for content, expected in (("hello", first), ("", second)):
            conversation.read(content)
            self.assertEqual("".join(conversation.write(9)), expected)
        self.assertEqual(again, first)
        self.assertNotEqual(again, second)

    @parameterized.parameters(
        ("grpc", "toy", ["--generate=a", "--length=100"], "length must be below 100, got 100"),
        ("rest", "toy", ["--generate=a", "--length=100"], "length must be below 100, got 100"),
        ("grpc", "none", ["--score=a"], "Servable not found for request: Latest(none)"),
        ("rest", "none", ["--score=a"], "Servable not found for request: Latest(none)"),
        ("grpc", "toy", ["--score=a", "--model_version=9"], "Specific(toy, 9)"),
        ("rest", "half", ["--converse"], "keys must not be float16 over REST, got float16"),
        ("grpc", "toy", ["--score=@/nowhere"], "/nowhere: No such file or directory"),
    )
    def test_refusals(self, way, model, flags, message):
        _, stderr = self.run_client(way, *flags, model=model, stdin="a\n", code=1)
        self.assertIn(message, self.last_line(stderr))

    @parameterized.parameters("localhost:1", "http://localhost:1")
    def test_an_unreachable_server_is_reported(self, server):
        flags = (f"--server={server}", "--model=toy", "--score=a")
        _, stderr = trained.run("serving_client", *flags, code=1)
        self.assertStartsWith(self.last_line(stderr), f"server must answer at {server}, got: ")
        self.assertIn("Connection refused", stderr)

    def test_text_must_be_utf8(self):
        file = self.create_tempfile(content=b"ab\xff", mode="wb").full_path
        _, stderr = self.run_client("grpc", f"--score=@{file}", code=1)
        self.assertEqual(self.last_line(stderr), f"{file} must be UTF-8, got byte 0xff at offset 2")

    @parameterized.parameters(
        ([], "one of --score, --generate and --converse is needed, got none"),
        (["--noconverse"], "one of --score, --generate and --converse is needed, got none"),
        (["--score=a", "--converse"], "is needed, got --score and --converse"),
        (["--score=a", "--top_k=3"], "--top_k has no effect with --score; leave it out"),
        (["--generate=a", "--segment_len=3"], "--segment_len has no effect with --generate"),
        (["--converse", "--temperature=-1"], "temperature must be at least 0 and finite, got -1.0"),
        (["--converse", "--top_p=0"], "top_p must be above 0 and at most 1, got 0.0"),
        (["--converse", "--top_k=0"], "flag --top_k=0"),
        (["--converse", "--seed=-1"], "flag --seed=-1"),
        (["--score=a", "--timeout=0"], "timeout must be above 0, got 0.0"),
        (["--score=a", "--server=nowhere"], "server must be HOST:PORT or http://HOST:PORT, got"),
        (["--score=a", "--server=ftp://x:1"], "server must be HOST:PORT or http://HOST:PORT, got"),
        (["--score=a", "--model="], "flag --model must have a value, got none"),
    )
    def test_wrong_flags(self, flags, message):
        _, stderr = trained.run("serving_client", "--model=toy", *flags, code=2)
        self.assertIn(message, self.last_line(stderr))

    def test_the_model_is_required(self):
        _, stderr = trained.run("serving_client", "--converse", code=2)
        self.assertIn("flag --model is required", self.last_line(stderr))

    def test_no_tensorflow_is_loaded(self):
        code = "import sys, txl_tf.cli.serving_client; print('tensorflow' in sys.modules)"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=helpers.ROOT, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "False\n")


if __name__ == "__main__":
    absltest.main()
