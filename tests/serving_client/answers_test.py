"""Invalid responses of servers are rejected by an error that names the cause."""

import json
import time

import numpy as np
from absl.testing import absltest, parameterized

import odd_servers
from txl_tf.serving_client import answers, messages, scoring, transport
from txl_tf.serving_client.conversation import Conversation
from txl_tf.serving_client.errors import ServerError

TEXT = {"text": np.array([b"ab"], object)}
SCORE = dict(log_probs=[[0.0, -1.5]], num_tokens=[2])
DEEP = b'{"outputs": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def proto(dtype, shape, **values):
    tensor = messages.MESSAGES["TensorProto"](dtype=dtype, **values)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


def connect(address, timeout=30.0):
    return transport.connect(address, "m", version=None, timeout=timeout)


class RestTest(parameterized.TestCase):
    def score(self, outputs):
        with odd_servers.rest({"score": outputs}) as address:
            return scoring.score(connect(address), "text", b"ab")

    def test_a_valid_answer_is_returned(self):
        found = self.score({"outputs": SCORE})
        self.assertEqual((found["log_probs"], found["nats"]), ([None, -1.5], 1.5))

    @parameterized.parameters(
        (dict(log_probs=-1.5), r"score must have log_probs of shape \[1, N\], got \[\]"),
        (dict(log_probs=[]), r"log_probs of shape \[1, N\], got \[0\]"),
        (dict(log_probs=[-1.5, -2.0]), r"log_probs of shape \[1, N\], got \[2\]"),
        (dict(log_probs=[[[-1.5]]]), r"log_probs of shape \[1, N\], got \[1, 1, 1\]"),
        (dict(log_probs=[[0.0], [1.0, 2.0]]), "log_probs must be an array, got lists of different"),
        (dict(log_probs=[["0.0", "-1.5"]]), "log_probs must hold float32, got '0.0'"),
        (dict(log_probs=[[None, 1.0]]), "log_probs must hold float32, got None"),
        (dict(log_probs=[[True, 1.0]]), "log_probs must hold float32, got True"),
        (dict(log_probs=[[0.0, float("nan")]]), "finite values in log_probs, got nan"),
        (dict(log_probs=[[0.0, float("-inf")]]), "finite values in log_probs, got -inf"),
        (dict(log_probs=[[0, 10**60]]), "log_probs must hold float32, got 1000000000"),
        (dict(log_probs={"a": 1}), "log_probs must hold float32, got {'a': 1}"),
        (dict(num_tokens=2), r"num_tokens of shape \[1\], got \[\]"),
        (dict(num_tokens=[]), r"num_tokens of shape \[1\], got \[0\]"),
        (dict(num_tokens=[1.5]), "num_tokens must hold int32, got 1.5"),
        (dict(num_tokens=[2**31]), "num_tokens must hold int32, got 2147483648"),
        (dict(num_tokens=[3]), r"num_tokens in 0\.\.2, got 3"),
        (dict(num_tokens=[-1]), r"num_tokens in 0\.\.2, got -1"),
    )
    def test_invalid_outputs_are_rejected(self, change, message):
        with self.assertRaisesRegex(ServerError, message):
            self.score({"outputs": SCORE | change})

    @parameterized.parameters(
        ({"outputs": dict(log_probs=[[0.0, 1.0]])}, "must have 'num_tokens', got none"),
        ({"predictions": []}, "must have 'outputs', got none"),
        ({"outputs": 5}, "the answer of http://localhost:.* must be of TensorFlow Serving: "),
        ([1, 2], "must be of TensorFlow Serving: "),
        (5, "must be of TensorFlow Serving: "),
        (b"", "server must answer at http://.*, got: a response that is not JSON: b''"),
        (b"<html>", "got: a response that is not JSON: b'<html>'"),
        (b'"\xff"', "got: a response that is not JSON: "),
        (DEEP, 'got: a response that is not JSON: b\'{"outputs": '),
    )
    def test_invalid_bodies_are_rejected(self, body, message):
        with self.assertRaisesRegex(ServerError, message):
            self.score(body)

    @parameterized.parameters(
        ([],),
        (7,),
        ({},),
        ({"model_spec": {"version": "x"}},),
        ({"model_spec": {"version": "1"}, "metadata": []},),
        (json.loads(json.dumps(odd_servers.METADATA).replace("DT_FLOAT", "DT_VARIANT")),),
        (
            {
                "model_spec": {"version": 1},
                "metadata": {"signature_def": {"signature_def": {"score": 1}}},
            },
        ),
    )
    def test_invalid_metadata_is_rejected(self, metadata):
        refused = self.assertRaisesRegex(ServerError, "the answer of http://localhost:.* must ")
        with odd_servers.rest({}, metadata) as address, refused:
            connect(address).predict("score", TEXT)

    def test_texts(self):
        for found in ([5], [{"b64": 5}], [{"b64": "?"}], [None], [["a"]], "a"):
            refused = self.assertRaisesRegex(ServerError, "text must hold text|text of shape")
            with odd_servers.rest({"generate": {"outputs": found}}) as address, refused:
                answers.ask(connect(address), "generate", {})
        with odd_servers.rest({"generate": {"outputs": [{"b64": "w7w="}]}}) as address:
            found = answers.ask(connect(address), "generate", {})
            self.assertEqual(found["text"][0], "ü".encode())

    def test_a_dripping_server_times_out(self):
        with odd_servers.rest({}, drip=0.05) as address:
            start = time.monotonic()
            with self.assertRaisesRegex(ServerError, "within timeout 0.3 s, got no complete"):
                connect(address, timeout=0.3).predict("score", TEXT)
            self.assertLess(time.monotonic() - start, 20)  # all of it would take a minute

    def test_a_truncated_body_is_reported(self):
        class Short(bytes):
            def __len__(self):
                return 1 << 42

        refused = self.assertRaisesRegex(ServerError, "server must answer at .*: IncompleteRead")
        with odd_servers.rest({}, Short(b"{}")) as address, refused:
            connect(address).predict("score", TEXT)


class GrpcTest(parameterized.TestCase):
    def score(self, **outputs):
        good = dict(
            log_probs=proto(1, [1, 2], float_val=[0.0, -1.5]), num_tokens=proto(3, [1], int_val=[2])
        )
        outputs = {name: value for name, value in (good | outputs).items() if value is not None}
        with odd_servers.grpc_server(outputs) as address:
            return scoring.score(connect(address), "text", b"ab")

    def test_a_valid_answer_is_returned(self):
        self.assertEqual(self.score()["nats"], 1.5)

    @parameterized.parameters(
        (None, "score must have the output log_probs, got num_tokens"),
        (proto(1, [], float_val=[1.0]), r"log_probs of shape \[1, N\], got \[\]"),
        (proto(1, [2], float_val=[1.0]), r"log_probs of shape \[1, N\], got \[2\]"),
        (proto(1, [1, 1 << 40], float_val=[1.0]), r"at most 2147483648 bytes, got shape \[1, 1099"),
        (proto(1, [-1, -2], float_val=[1.0]), r"bytes, got shape \[-1, -2\]"),
        (proto(1, [1, 1], float_val=[1.0, 2.0]), r"fill its shape \[1, 1\], got 2 values"),
        (proto(1, [1, 2], tensor_content=b"12345"), "fill its shape .*, got 5 bytes"),
        (proto(2, [1, 2]), "log_probs must be one of DT_FLOAT, .*, got dtype number 2"),
        (proto(0, [1, 2]), "got dtype number 0"),
        (proto(3, [1, 2], int_val=[1, 2]), "must have floats in log_probs, got int32"),
        (proto(7, [1, 2], string_val=[b"1", b"2"]), "must have floats in log_probs, got object"),
        (proto(1, [1, 2], float_val=[0.0, float("nan")]), "finite values in log_probs, got nan"),
    )
    def test_invalid_outputs_are_rejected(self, log_probs, message):
        with self.assertRaisesRegex(ServerError, message):
            self.score(log_probs=log_probs)

    def test_missing_values_are_zero(self):
        for dtype, expected in ((1, 0.0), (3, 0), (7, b"")):
            found = messages.from_proto("x", proto(dtype, [2, 2]))
            self.assertEqual(found.tolist(), [[expected] * 2] * 2)

    def test_a_slow_server_times_out(self):
        refused = self.assertRaisesRegex(ServerError, "timeout 0.1 s, got no complete answer")
        with odd_servers.grpc_server({}, delay=1.0) as address, refused:
            connect(address, timeout=0.1).predict("score", TEXT)


class Scripted:
    """A server with one answer a signature."""

    def __init__(self, **answers):
        state = dict(mems=np.zeros([1, 1]), mem_length=np.zeros([1], int))
        self.answers = dict(
            initial_state=state,
            encode=dict(ids=np.array([[1, 2]]), lengths=np.array([2])),
            step=dict(scores=np.zeros([1, 1, 4], np.float32)) | state,
            decode=dict(text=np.array([b"x"], object)),
        )
        for signature, change in answers.items():
            self.answers[signature] = self.answers[signature] | change

    def predict(self, signature, inputs, outputs=()):
        found = self.answers[signature]
        return {name: value for name, value in found.items() if value is not None}


class ConversationTest(parameterized.TestCase):
    @parameterized.parameters(
        (
            dict(initial_state=dict(mem_length=None)),
            "initial_state must have the output mem_length",
        ),
        (dict(initial_state=dict(mems=np.array([[np.nan]]))), "finite values in mems, got nan"),
        (dict(encode=dict(ids=np.array([1, 2]))), r"encode must have ids of shape \[1, N\]"),
        (dict(encode=dict(lengths=np.array([5]))), r"encode must have lengths in 0\.\.2, got 5"),
        (dict(encode=dict(ids=np.array([[-1, 2]]))), "ids in 0..2147483647, got -1"),
        (dict(encode=dict(ids=np.array([[2**40, 2]]))), "ids in 0..2147483647, got 1099511627776"),
        (dict(step=dict(scores=np.zeros([1, 1, 0]))), r"scores of shape \[1, 1, V\], V above 0"),
        (dict(step=dict(scores=np.zeros([1, 2, 4]))), r"scores of shape \[1, 1, V\], V above 0"),
        (dict(step=dict(scores=np.zeros([4]))), r"step must have scores of shape \[1, T, V\]"),
        (dict(step=dict(scores=np.full([1, 1, 4], np.nan))), "finite values in scores, got nan"),
        (dict(step=dict(mems=None)), "step must have the output mems, got mem_length, scores"),
        (
            dict(step=dict(mems=np.zeros([1, 2]))),
            r"mems of shape \[1, 1\] and float64, got \[1, 2\]",
        ),
        (dict(decode=dict(text=np.array([1]))), "decode must have text in text, got int64"),
    )
    def test_invalid_answers_are_rejected(self, answers, message):
        with self.assertRaisesRegex(ServerError, message):
            conversation = Conversation(Scripted(**answers))
            conversation.read("a")
            "".join(conversation.write(2))

    def test_valid_answers_are_accepted(self):
        conversation = Conversation(Scripted())
        conversation.read("a")
        self.assertEqual("".join(conversation.write(2)), "")  # all of it is "x", as before it

    @parameterized.parameters(b"abcd?", b"   \n?", b"\xe6\x97\xa5a?")  # "?" is unknown
    def test_the_cost_of_decoding_does_not_grow_with_a_turn(self, alphabet):
        server, written = Scripted(encode=dict(ids=np.array([[1, 4]]))), 1000
        decoded, chosen, answer = [], [], server.predict

        def predict(signature, inputs, outputs=()):
            if signature == "decode":
                ids = inputs["ids"][0].tolist()
                decoded.append(len(ids))
                return dict(text=np.array([bytes(alphabet[i] for i in ids)], object))
            if signature == "step":
                chosen.append(len(chosen) % 4)
                scores = np.eye(5, dtype=np.float32)[np.newaxis, chosen[-1:]]
                return answer(signature, inputs) | dict(scores=scores)
            return answer(signature, inputs, outputs)

        server.predict = predict
        conversation = Conversation(server, temperature=0.0)
        conversation.read("a")
        text = "".join(conversation.write(written))
        whole = bytes(alphabet[i] for i in [1, 4, *chosen[-written:]]).decode("utf-8", "replace")
        before = bytes(alphabet[i] for i in [1, 4]).decode("utf-8", "replace")
        self.assertEqual(text, whole[len(before) :])
        self.assertLess(len(decoded), 3 * written)
        if alphabet[:4].strip():  # text that may be begun at some of its ids
            self.assertLess(sum(decoded), 150 * written)  # all of it each time is 500 a token


if __name__ == "__main__":
    absltest.main()
