"""The serving client's transport, over sockets."""

import socket

import grpc
import numpy as np
from absl.testing import absltest, parameterized
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from toy_service import WAYS, ServerTestCase
from txl_tf.serving_client import errors, messages, transport

STATE = ("keys", "values", "mem_length")


class TransportTest(ServerTestCase):
    @parameterized.product(way=WAYS, content=(False, True))
    def test_every_dtype_arrives_as_it_was(self, way, content):
        self.service.content = content
        server = self.connect(way)
        state = server.predict("initial_state", {"batch_size": np.ones([2], np.int32)})
        state["keys"] += np.float32(0.1)
        state["values"] = -state["keys"]
        inputs = dict(
            input_ids=np.array([[1, 2, 200], [3, 0, 0]]), lengths=np.array([3, 1]), **state
        )
        found = server.predict("step_int64", inputs)
        expected = self.model.run("step_int64", **inputs)
        self.assertEqual(found.keys(), {"scores", *STATE})
        for name, value in expected.items():
            self.assertEqual(found[name].dtype, value.dtype)
            np.testing.assert_array_equal(found[name], value)
        text = np.array(["süß\0".encode(), b"x"], object)
        found, expected = (
            server.predict("encode", {"text": text}),
            self.model.run("encode", text=text),
        )
        np.testing.assert_array_equal(found["ids"], expected["ids"])

    def test_float16(self):
        for self.service.content in (False, True):
            server = self.connect("grpc", "half")
            state = server.predict("initial_state", {"batch_size": np.int32(1)})
            ids = dict(input_ids=np.array([[5]], np.int32), lengths=np.array([1], np.int32))
            found = server.predict("step", ids | state)
            self.assertEqual(found["keys"].dtype, np.float16)
            np.testing.assert_array_equal(found["keys"].ravel(), [0, 0, 0, 0, 6])
        state = self.connect("rest", "half").predict("initial_state", {"batch_size": np.int32(1)})
        with self.assertRaisesRegex(ValueError, "keys must not be float16 over REST.*use gRPC"):
            self.connect("rest", "half").predict("step", ids | state)

    def test_a_failed_check_inside_the_graph_is_reported_without_its_prefix(self):
        message = "assertion failed: [ids must lie in 0..3, got [4]]\n\t [[{{node Assert}}]]"
        error = errors.refusal(message, invalid=True)
        self.assertEqual(str(error), "ids must lie in 0..3, got [4]")

    def test_values_that_repeat_may_be_left_out(self):
        tensor = messages.MESSAGES["TensorProto"](dtype=1, float_val=[1.0, 2.0])
        tensor.tensor_shape.dim.add(size=4)
        np.testing.assert_array_equal(messages.from_proto("x", tensor), [1, 2, 2, 2])

    def test_outputs_can_be_chosen(self):
        server = self.connect("grpc")
        state = server.predict("initial_state", {"batch_size": np.int32(1)}, ["keys"])
        self.assertEqual(list(state), ["keys"])

    def test_messages_above_4_megabytes(self):
        text = np.array([("ü" * 2_500_000).encode()], object)  # an id of it takes 2 bytes
        found = self.connect("grpc").predict("encode", {"text": text})
        self.assertEqual(found["lengths"], [5_000_000])
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "toy", "encode"
        request.inputs["text"].dtype = 7
        request.inputs["text"].tensor_shape.dim.add(size=1)
        request.inputs["text"].string_val.append(text[0])
        with grpc.insecure_channel(self.service.grpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            with self.assertRaisesRegex(grpc.RpcError, "larger than max"):
                stub.Predict(request)

    @parameterized.product(way=WAYS)
    def test_versions(self, way):
        self.connect(way, version=3).predict("initial_state", {"batch_size": np.int32(1)})
        with self.assertRaisesRegex(ValueError, r"not found for request: Specific\(toy, 4\)"):
            self.connect(way, version=4).predict("initial_state", {"batch_size": np.int32(1)})

    @parameterized.product(way=WAYS)
    def test_unknown_signature(self, way):
        with self.assertRaisesRegex(transport.ServerError, "'nope'|\"nope\"") as raised:
            self.connect(way).predict("nope", {})
        self.assertTrue(raised.exception.invalid)

    @parameterized.product(way=WAYS)
    def test_a_silent_server_times_out(self, way):
        with socket.create_server(("localhost", 0)) as silent:
            address = f"localhost:{silent.getsockname()[1]}"
            server = f"http://{address}" if way == "rest" else address
            model = transport.connect(server, "toy", version=None, timeout=0.3)
            with self.assertRaisesRegex(ValueError, f"{server}.*(within timeout 0.3 s|answer at)"):
                model.predict("initial_state", {"batch_size": np.int32(1)})

    def test_a_server_of_something_else(self):
        model = transport.connect(f"{self.service.rest}/x", "y", version=None, timeout=9)
        with self.assertRaisesRegex(ValueError, "Malformed request"):
            model.predict("score", {})

    def test_metadata_of_the_stand_in(self):
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = "half"
        with grpc.insecure_channel(self.service.grpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            packed = stub.GetModelMetadata(request).metadata["signature_def"]
        signatures = get_model_metadata_pb2.SignatureDefMap()
        packed.Unpack(signatures)
        self.assertEqual(signatures.signature_def["step"].outputs["keys"].dtype, 19)


if __name__ == "__main__":
    absltest.main()
