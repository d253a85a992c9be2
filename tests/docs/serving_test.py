"""docs/serving.md is correct: sizes, signatures, examples and the server's files."""

import json
import re
import shlex
import types
import urllib.request

from absl.testing import absltest, parameterized
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

import helpers
import prediction_service
import toy_export
from txl_tf.configs import presets

PAGE = (helpers.ROOT / "docs" / "serving.md").read_text("utf-8")
FOLDER = helpers.ROOT / "docs" / "serving"
# Of session_bundle_config.proto, which tensorflow-serving-api leaves out.
BATCHING_PARAMETERS = dict(
    max_batch_size="Int64Value",
    batch_timeout_micros="Int64Value",
    max_enqueued_batches="Int64Value",
    num_batch_threads="Int64Value",
    thread_pool_name="StringValue",
    allowed_batch_sizes="int64",
    pad_variable_length_inputs="bool",
)


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text):
    """The cells of tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def batching_parameters():
    """The message of the server's BatchingParameters."""
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto", syntax="proto3", dependency=["google/protobuf/wrappers.proto"]
    )
    message = file.message_type.add(name="BatchingParameters")
    for number, (name, kind) in enumerate(BATCHING_PARAMETERS.items(), start=1):
        field = message.field.add(name=name, number=number, label=1 + 2 * (kind == "int64"))
        if kind.endswith("Value"):
            field.type, field.type_name = field.TYPE_MESSAGE, f".google.protobuf.{kind}"
        else:
            field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("BatchingParameters"))()


class FoldersTest(absltest.TestCase):
    def test_the_server_finds_what_is_exported(self):
        """All pages export to one folder, which is the server's and its model's."""
        (mounted,) = set(re.findall(r"^EXPORTS=\$PWD/(\S+) ", PAGE, re.MULTILINE))
        self.assertIn(f"EXPORTS=$PWD/{mounted} ", (FOLDER / "compose.yaml").read_text("utf-8"))
        (name,) = re.findall(r'name: "(\w+)"', (FOLDER / "models.config").read_text("utf-8"))
        pages = (helpers.ROOT / "README.md").read_text("utf-8") + PAGE
        written = re.findall(r"export_saved_model.py .*--output_dir=(\S+)", pages)
        self.assertLen(written, 3)
        self.assertEqual(set(written), {f"{mounted}/{name}"})


EXPORTED = [n for n in presets.names() if presets.preset(n).train.objective == "causal"]


class SizesTest(parameterized.TestCase):
    def test_every_preset_is_listed(self):
        listed = [row[0].strip("`") for row in rows(section("Message sizes"))]
        self.assertEqual(listed, EXPORTED)

    @parameterized.parameters(*EXPORTED)
    def test_of_preset(self, name):
        config = presets.preset(name)
        model = config.model
        mem_len = model.mem_len if config.eval.mem_len is None else config.eval.mem_len
        numbers = model.num_layers * mem_len
        key_values = 2 * numbers * model.num_heads * model.head_dim
        hidden = numbers * model.d_model
        sizes = [f"{size / 1e6:,.2f}" for n in (key_values, hidden) for size in (4 * n, 2 * n)]
        scores = [f"{tokens * model.vocab_size * 4 / 1e3:,.1f}" for tokens in (1, 32)]
        expected = [f"`{name}`", f"{mem_len:,}", *sizes, *scores]
        found = {row[0]: row for row in rows(section("Message sizes"))}
        self.assertEqual(found[f"`{name}`"], expected)


class SignaturesTest(absltest.TestCase):
    """The page against an export's own description, and its examples against a server."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = absltest.TestCase().create_tempdir().full_path
        path = toy_export.write(f"{folder}/book")
        cls.signatures = json.loads((path / "assets.extra/model.json").read_text())["signatures"]
        cls.service = cls.enterClassContext(prediction_service.Service({"book": f"{folder}/book"}))

    def test_tables(self):
        cells = rows(section("Signatures"))
        named = [re.findall(r"`(\w+)`", cell) for row in cells for cell in row[:1]]
        sides = {
            name: [re.findall(r"`(\w+)`|(STATE)", cell) for cell in row[1:3]]
            for row, names in zip(cells, named, strict=True)
            for name in names
            if name in self.signatures
        }
        self.assertEqual(sides.keys(), self.signatures.keys())
        tensors = {
            name: (row[1], row[2].count(",") + 1 if row[2] != "any" else None)
            for row, names in zip(cells, named, strict=True)
            for name in names
            if name not in self.signatures
        }
        state = {"keys", "values", "mem_length"}
        for signature, infos in self.signatures.items():
            for side, told in zip(("inputs", "outputs"), sides[signature], strict=True):
                if signature == "step_int64":
                    continue
                expected = {name for name, _ in told if name} | (
                    state if ("", "STATE") in told else set()
                )
                self.assertEqual(infos[side].keys(), expected, f"{signature} {side}")
                for name, info in infos[side].items():
                    dtype, rank = tensors[name]
                    self.assertIn(info["dtype"], dtype.split(" or "), name)
                    self.assertEqual(info["shape"] and len(info["shape"]), rank, name)

    def test_the_python_example_runs(self):
        (code,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        self.assertIn("localhost:8500", code)
        module = types.ModuleType("example")
        exec(code.replace("localhost:8500", self.service.grpc), module.__dict__)
        self.assertEqual(module.scores.shape, (toy_export.VOCAB_SIZE,))
        self.assertEqual(module.state["mem_length"], [toy_export.MEMORY])

    def test_the_curl_examples_are_answered(self):
        code = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
        words = shlex.split(code.replace("\\\n", " "))
        answers = []
        for place in [i for i, word in enumerate(words) if word == "curl"]:
            body = words[place + 2].encode() if words[place + 1] == "-d" else None
            url = words[place + 3] if body else words[place + 1]
            url = url.replace("http://localhost:8501", self.service.rest)
            with urllib.request.urlopen(url, body) as answer:
                answers.append(json.load(answer))
        scores, texts, metadata = answers
        self.assertEqual(scores["outputs"]["num_tokens"], [16, 4])
        self.assertEqual(texts, {"predictions": [" of |Once|50|0.80|0|1.00|1"]})
        self.assertEqual(metadata["model_spec"]["name"], "book")


class ServerFilesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.compose = (FOLDER / "compose.yaml").read_text()

    def test_models(self):
        text = (FOLDER / "models.config").read_text()
        config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
        (model,) = config.model_config_list.config
        self.assertEqual(model.base_path, f"{self.target('EXPORTS')}/{model.name}")
        self.assertIn(f"exports/{model.name}", PAGE)
        commented = re.sub(r"# (model_version_policy)", r"\1", text)
        (model,) = text_format.Parse(commented, type(config)()).model_config_list.config
        self.assertEqual(model.model_version_policy.specific.versions, [1, 2])

    def target(self, source):
        return re.search(rf"source: \S*{source}.*\n +target: (\S+)", self.compose)[1]

    def test_batching(self):
        text = (FOLDER / "batching_parameters.txt").read_text()
        found = text_format.Parse(text, batching_parameters())
        self.assertTrue(found.pad_variable_length_inputs)
        self.assertGreater(found.max_batch_size.value, 1)
        with self.assertRaises(text_format.ParseError):
            text_format.Parse(text + "max_batch: 3", batching_parameters())

    def test_compose(self):
        self.assertRegex(self.compose, r"image: tensorflow/serving:")
        ports = re.findall(r'"127\.0\.0\.1:(\d+):(\d+)" # (\w+)', self.compose)
        self.assertEqual(ports, [("8500", "8500", "gRPC"), ("8501", "8501", "REST")])
        config = re.search(r"source: \.\n +target: (\S+)", self.compose)[1]
        files = re.findall(rf"--\w+_file={config}/(\S+)", self.compose)
        self.assertCountEqual(files, ["models.config", "batching_parameters.txt"])
        for name in files:
            self.assertTrue((FOLDER / name).exists(), name)
        self.assertNotIn("\t", self.compose)


if __name__ == "__main__":
    absltest.main()
