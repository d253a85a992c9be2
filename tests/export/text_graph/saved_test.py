"""A tokenizer in a graph gives the same after its export has moved."""

import json
import shutil
import subprocess
import sys

import tensorflow as tf
from absl.testing import absltest

import helpers
import text_graphs

LOADER = """
import json, sys
import tensorflow as tf
data = [content.encode("latin-1") for content in json.load(sys.stdin)]
for argument in sys.argv[1:]:
    folder, _, library = argument.rpartition(" ")
    assert "tensorflow_text" not in sys.modules
    if library:
        __import__(library)
    signatures = tf.saved_model.load(folder).signatures
    found = []
    for name in ("encode", "encode_prompt"):
        out = signatures[name](text=tf.constant(data))
        shown = signatures["decode"](**out)["text"]
        context = {"context_" + key: value for key, value in out.items()}
        after = signatures["decode_after"](**context, **out)
        texts = [[t.decode() for t in x.numpy().tolist()] for x in (shown, after["text"])]
        found.append([out["ids"].numpy().tolist(), out["lengths"].numpy().tolist(), *texts])
    try:
        signatures["decode"](ids=tf.constant([[-1]]), lengths=tf.constant([1]))
    except tf.errors.InvalidArgumentError as error:
        found.append(str(error))
    print(json.dumps(found))
assert not [name for name in sys.modules if name.startswith("txl_tf")]
"""


def save(graph, folder):
    """An export as `export.saved_model` makes it: the graph is a part of what is saved."""
    text_spec = tf.TensorSpec([None], tf.string, "text")
    ids = [tf.TensorSpec([None, None], tf.int32, n) for n in ("ids", "context_ids")]
    lengths = [tf.TensorSpec([None], tf.int32, n) for n in ("lengths", "context_lengths")]
    module = tf.Module()
    module.text_graph = graph

    @tf.function(input_signature=[text_spec])
    def encode(text):
        return dict(zip(("ids", "lengths"), graph.encode(text), strict=True))

    @tf.function(input_signature=[text_spec])
    def encode_prompt(text):
        return dict(zip(("ids", "lengths"), graph.encode(text, complete=False), strict=True))

    @tf.function(input_signature=[ids[0], lengths[0]])
    def decode(ids, lengths):
        return {"text": graph.decode(ids, lengths)}

    @tf.function(input_signature=[ids[1], lengths[1], ids[0], lengths[0]])
    def decode_after(context_ids, context_lengths, ids, lengths):
        return {"text": graph.decode_after(context_ids, context_lengths, ids, lengths)}

    functions = (encode, encode_prompt, decode, decode_after)
    signatures = {function.python_function.__name__: function for function in functions}
    tf.saved_model.save(module, folder, signatures=signatures)


class SavedModelTest(absltest.TestCase):
    def move(self, graph, library):
        """Saves the graph and moves it; returns where it is and the library that it needs."""
        folder = helpers.temp_dir(self)
        save(graph, str(folder / "here"))
        shutil.move(folder / "here", folder / "there")
        for path in (folder / "there").rglob("*"):
            if path.is_file():
                self.assertNotIn(str(folder).encode(), path.read_bytes())
                self.assertNotIn(str(helpers.ROOT).encode(), path.read_bytes())
        return f"{folder / 'there'} {library}"

    def run_elsewhere(self, moved, data):
        """What a process that knows TensorFlow alone makes of each graph that was moved."""
        folder = helpers.temp_dir(self)
        done = subprocess.run(
            [sys.executable, "-I", "-c", LOADER, *moved],
            input=json.dumps([one.decode("latin-1") for one in data]),
            capture_output=True,
            text=True,
            cwd=folder,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return map(json.loads, done.stdout.splitlines())

    def test_moved_to_another_process(self):
        dropping = dict(lower_case=True, blank_lines="drop")
        graphs = [
            text_graphs.example("byte", drop_newlines=True)[1],
            text_graphs.example("char", end_of_line="eos", unknown="unk", **dropping)[1],
            text_graphs.example("word", end_of_line="boundary", unknown="error", **dropping)[1],
            text_graphs.example("sentencepiece")[1],  # last: no other may need its library
        ]
        libraries = ["", "", "", "tensorflow_text"]
        data = [content.encode() for content in text_graphs.AWKWARD]
        moved = [self.move(*pair) for pair in zip(graphs, libraries, strict=True)]
        for graph, found in zip(graphs, self.run_elsewhere(moved, data), strict=True):
            self.check(graph, data, *found)

    def check(self, graph, data, *found):
        *found, message = found
        for complete, (ids, lengths, texts, after) in zip((True, False), found, strict=True):
            right = graph.encode(data, complete)
            self.assertEqual(ids, right[0].numpy().tolist())
            self.assertEqual(lengths, right[1].numpy().tolist())
            shown = graph.decode(*right), graph.decode_after(*right, *right)
            for found_texts, right_texts in zip((texts, after), shown, strict=True):
                self.assertEqual([t.encode() for t in found_texts], right_texts.numpy().tolist())
        self.assertRegex(message, r"ids must lie in 0\.\.\d+ \(vocabulary of \d+\), got -1")


if __name__ == "__main__":
    absltest.main()
