"""A tokenizer in a graph gives what the tokenizer gives, also after the export has moved."""

import functools
import itertools
import json
import random
import shutil
import subprocess
import sys

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
import prepared
from txl_tf.data import text, tokenizers
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.export import text_graph
from txl_tf.export.text_graph import lower_case, positions

AWKWARD = [
    *("", "\n", "\n\n\n", " ", " \n", "\n ", "a b", "a b\n", "a\rb\r\nc\r\n", "\r", "\x00"),
    *(
        "\ufeffa b\n",
        "\ufeff",
        "\ufeff\ufeffa",
        "a\ufeff",
        "\ufeff\n",
        "a\x00b c\n",
        "a\n\n \t\nb\n\n",
    ),
    *("\n\n a\n  ", "a\u2028b\x85c\x1cd\u3000e\n", text.WHITE_SPACE, "a".join(text.WHITE_SPACE)),
    *(
        "a <eos> b <unk> <UNK> <S> x<eos>y\n",
        "<eos>",
        "<S>",
        "<S> ",
        " <S> <S> ",
        "<S>\n<S>",
        "<S> \n",
    ),
    *("👨‍👩‍👧 e\u0301 é 日本\n", "A İ ΣΑΣ ΑΣ. aΣ\u0301 Σ\nΣ AΣ\u00adB\n", "ⰯꟀ𐕰"),
    *(
        "\u2581",
        "a\u2581\u2581 b\n\u2581\n",
        "\\n \\s \\1",
        "never seen Ж",
        "x<S> y",
        "\U0010ffff\ufffe",
    ),
]
LETTERS = [
    *"ab \n\t\rAΣİ\u2581\x00\u3000\u2028é\ufeff日\u0301x👨",
    "<eos>",
    " <S> ",
    "<unk>",
    " \n\n",
]
PARTS = list(b"\x00\n A\x80\x82\x98\x9f\xa0\xc0\xc3\xe2\xed\xef\xf0\xf4\xff")  # of characters


def product(**values):
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def covering(rows):
    """A few of the rows, in which every two values of two options still meet."""

    def pairs(row):
        return set(itertools.combinations(sorted(row.items(), key=str), 2))

    left, chosen = set().union(*map(pairs, rows)), []
    while left:
        chosen.append(max(rows, key=lambda row: len(left & pairs(row))))
        left -= pairs(chosen[-1])
    return chosen


CHOICES = dict(lower_case=(False, True), blank_lines=("keep", "drop"), unknown=("unk", "error"))
MARKINGS = ("eos", "boundary", "none")
GRID = {
    "byte": product(drop_newlines=(False, True)),
    "char": [
        *covering(product(end_of_line=["none"], drop_newlines=(False, True), **CHOICES)),
        *covering(product(end_of_line=["eos"], **CHOICES)),
    ],
    "word": [
        *covering(
            product(
                white_space=["ascii"], end_of_line=MARKINGS, **CHOICES | dict(lower_case=[False])
            )
        ),
        *covering(product(white_space=["unicode"], end_of_line=MARKINGS, **CHOICES)),
    ],
    "sentencepiece": [{}],
}
ROWS = [(kind, options) for kind, rows in GRID.items() for options in rows]


def random_texts(count=200):
    draw = random.Random(0)
    return ["".join(draw.choices(LETTERS, k=draw.randrange(30))) for _ in range(count)]


def learn(kind, *contents, **options):
    vocab_size = 400 if kind == "sentencepiece" else None
    start = tokenizers.kind(kind).start(vocab_size=vocab_size, min_count=0, **options)
    if not isinstance(start, tokenizers.Learner):
        return start
    for content in contents:
        start.add(start.observe(text.Piece(content.encode())))
    return start.finish()


@functools.cache
def example(kind, **options):
    """A tokenizer that knows some of the texts, or all where it has to, and its graph."""
    known = {
        "unk": AWKWARD[::2],
        "error": [*AWKWARD, *random_texts(), "x".join(sorted(set("".join(LETTERS + AWKWARD))))],
    }.get(options.get("unknown"), [prepared.text(20_000)])
    tokenizer = learn(kind, *known, **options)
    return tokenizer, text_graph.from_tokenizer(tokenizer)


def random_ids(tokenizer, count, width, seed):
    """Ids and lengths; often the end of a line, and of byte ids those that make up characters."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(tokenizer.vocab_size, size=(count, width))
    if tokenizer.end_id is not None:
        ids[draw.random(ids.shape) < 0.4] = tokenizer.end_id
    if tokenizer.kind == "byte":
        ids = draw.choice(PARTS, size=ids.shape)
    return ids.astype(np.int32), draw.integers(width + 1, size=count).astype(np.int32)


def rows_of(ids, lengths):
    pairs = zip(np.array(ids), np.array(lengths), strict=True)
    return [row[:length].tolist() for row, length in pairs]


class EqualityTest(parameterized.TestCase):
    def test_every_kind_is_covered(self):
        self.assertEqual(text_graph.GRAPHS.keys(), tokenizers.TOKENIZERS.keys())
        self.assertEqual(GRID.keys(), tokenizers.TOKENIZERS.keys())
        for kind, rows in GRID.items():
            options = set(tokenizers.kind(kind).option_names())
            self.assertEqual(set().union(*rows), options)

    @parameterized.parameters(*ROWS)
    def test_ids_and_their_text(self, kind, options):
        tokenizer, graph = example(kind, **options)
        data = [content.encode() for content in [*AWKWARD, *random_texts()]]
        for complete in (True, False):
            ids, lengths = graph.encode(data, complete)
            self.assertEqual((ids.dtype, lengths.dtype), (tf.int32, tf.int32))
            self.assertEqual(ids.shape[1], max(lengths))
            for row, length in zip(ids.numpy(), lengths.numpy(), strict=True):
                self.assertFalse(row[length:].any())
            expected = [tokenizer.encode_bytes(d, complete=complete).tolist() for d in data]
            for one, found, right in zip(data, rows_of(ids, lengths), expected, strict=True):
                self.assertEqual(found, right, one)
            texts = graph.decode(ids, lengths).numpy().tolist()
            self.assertEqual(texts, [tokenizer.decode_bytes(row) for row in expected])

    @parameterized.parameters(*ROWS)
    def test_text_of_any_ids(self, kind, options):
        from txl_tf.text_stream import TextStream

        tokenizer, graph = example(kind, **options)
        context, new = (random_ids(tokenizer, 300, width, seed=width) for width in (9, 12))
        texts = graph.decode(*new).numpy().tolist()
        self.assertEqual(texts, [tokenizer.decode(row).encode() for row in rows_of(*new)])
        after = graph.decode_after(*context, *new).numpy().tolist()
        for before, row, found in zip(rows_of(*context), rows_of(*new), after, strict=True):
            stream = TextStream(tokenizer.decode, before)
            self.assertEqual(found.decode(), stream.add(row) + stream.finish(), (before, row))

    @parameterized.parameters(*((kind, rows[-1]) for kind, rows in GRID.items()))
    def test_any_number_of_rows_in_a_function(self, kind, options):
        _, graph = example(kind, **options)
        ids_spec = tf.TensorSpec([None, None], tf.int32)
        lengths_spec = tf.TensorSpec([None], tf.int32)
        encode = tf.function(graph.encode, input_signature=[tf.TensorSpec([None], tf.string)])
        decode = tf.function(graph.decode, input_signature=[ids_spec, lengths_spec])
        after = tf.function(graph.decode_after, input_signature=[ids_spec, lengths_spec] * 2)
        for data in ([], [""], ["", ""], ["a b\n", "a"]):
            data = tf.constant(data, tf.string, [len(data)])
            encoded = encode(data)
            self.assertEqual(encoded[0].shape[0], len(data))
            eager = graph.encode(data)
            np.testing.assert_array_equal(encoded[0], eager[0])
            np.testing.assert_array_equal(decode(*encoded), graph.decode(*eager))
            expected = graph.decode_after(*eager, *eager)
            np.testing.assert_array_equal(after(*encoded, *encoded), expected)

    @parameterized.parameters(*((kind, rows[-1]) for kind, rows in GRID.items() if kind != "byte"))
    def test_long_texts(self, kind, options):
        """Up to a megabyte: what takes the square of the time would not end."""
        options = {name: "unk" if name == "unknown" else options[name] for name in options}
        tokenizer, graph = example(kind, **options)
        for content in ("a", "a ", " ", " \n", "a \u3000\t", "\u2581", "AΣ\u0301", "<S> "):
            data = (content * 200_000).encode()
            ids, _ = graph.encode([data])
            np.testing.assert_array_equal(ids[0], tokenizer.encode_bytes(data))

    def test_every_byte(self):
        _, graph = example("byte", drop_newlines=True)
        data = [bytes(range(256)), b"\xff\n\xfe", b"\xef\xbb\xbfa"]
        expected = [[*range(10), *range(11, 256)], [255, 254], [0xEF, 0xBB, 0xBF, 97]]
        self.assertEqual(rows_of(*graph.encode(data)), expected)

    def test_every_code_point(self):
        points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
        content = "".join(points)
        char = learn("char", content[:5000])
        found = rows_of(*text_graph.from_tokenizer(char).encode([content]))
        self.assertEqual(found, [char.encode(content).tolist()])
        content = "".join(f"a{point}b c " for point in points[:0x10000])
        for white_space in text.WHITE_SPACES:
            word = learn("word", "a b c\n", end_of_line="none", white_space=white_space)
            found = rows_of(*text_graph.from_tokenizer(word).encode([content]))
            self.assertEqual(found, [word.encode(content).tolist()])

    def test_smallest_vocabularies(self):
        for kind, end_of_line, symbols in (
            ("char", "none", ["<unk>"]),
            ("char", "none", ["<UNK>"]),
            ("word", "eos", ["<eos>", "<unk>"]),
        ):
            tokenizer = tokenizers.kind(kind)(
                vocabulary=Vocabulary(symbols), end_of_line=end_of_line
            )
            graph = text_graph.from_tokenizer(tokenizer)
            ids, lengths = graph.encode(["a\nb", ""])
            self.assertEqual(rows_of(ids, lengths), [tokenizer.encode("a\nb").tolist(), []])
            expected = [tokenizer.decode(row).encode() for row in rows_of(ids, lengths)]
            self.assertEqual(graph.decode(ids, lengths).numpy().tolist(), expected)

    def test_words_and_spaces(self):
        """A hand-made table, as a check of the checks above."""
        word = learn("word", "a b\n")
        graph = text_graph.from_tokenizer(word)  # <eos> a b
        for context, new, expected in (
            ([1], [2], " b"),
            ([1, 0], [2], "b"),
            ([], [1, 2], "a b"),
            ([1], [0, 1], "\na"),
            ([1, 2], [], ""),
        ):
            sizes = [len(context)], [len(new)]
            context, new = (np.array(ids, np.int32)[None] for ids in (context, new))
            found = graph.decode_after(context, sizes[0], new, sizes[1])
            self.assertEqual(found.numpy().tolist(), [expected.encode()])
        ids, lengths = graph.encode(["a b\n\nq", "b"])
        self.assertEqual(ids.numpy().tolist(), [[1, 2, 0, 0, 3, 0], [2, 0, 0, 0, 0, 0]])
        self.assertEqual(lengths.numpy().tolist(), [6, 2])


class LowerCaseTest(absltest.TestCase):
    def assert_lower(self, contents):
        lowered = lower_case.LowerCase()([content.encode() for content in contents])
        for content, found in zip(contents, lowered.numpy().tolist(), strict=True):
            self.assertEqual(found, content.lower().encode(), ascii(content))

    def test_every_code_point(self):
        points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
        self.assert_lower(["".join(points), *points[::1000]])
        for form in ("A{}Σ", "AΣ{}"):
            words = [form.format(point) for point in points]
            # A space ends a word, so that many stand in one text.
            self.assert_lower([" ".join(words[i : i + 1000]) for i in range(0, len(words), 1000)])

    def test_sigma_in_random_texts(self):
        draw = random.Random(0)
        letters = "AaΣΣσς.' \n\u0301İ\u00adʰ\x00日:1"
        self.assert_lower(
            ["".join(draw.choices(letters, k=draw.randrange(12))) for _ in range(5000)]
        )

    def test_tensorflow_does_not_do(self):
        """Why it is not `tf.strings.lower`: should this fail, it could be."""
        for content in ("a\x00B", "\u2c2f"):
            lowered = tf.strings.lower(content, "utf-8").numpy()
            self.assertNotEqual(lowered, content.lower().encode())


class PlacesTest(absltest.TestCase):
    def test_equals_a_plain_loop(self):
        draw = np.random.default_rng(0)
        for size in (0, 1, 2, 7):
            for facts in (draw.random((20, size)) < 0.4).tolist():
                true = [i for i in range(size) if facts[i]]
                before = [max([i for i in true if i < k], default=-1) for k in range(size)]
                after = [min([i for i in true if i > k], default=size) for k in range(size)]
                tensor = tf.constant(facts, tf.bool, [size])
                self.assertEqual(positions.last_before(tensor).numpy().tolist(), before)
                self.assertEqual(positions.first_after(tensor).numpy().tolist(), after)


class RefusalTest(parameterized.TestCase):
    def refused(self, function, *arguments):
        """The message, from a graph, as a server would give it."""
        with self.assertRaises(tf.errors.InvalidArgumentError) as caught:
            tf.function(function)(*(tf.constant(argument) for argument in arguments))
        return str(caught.exception)

    @parameterized.product(
        kind=("char", "word", "sentencepiece"),
        case=(
            ([b"a \xff b\n"], "0xff at offset 2 of row 0"),
            ([b"a", b"\xc3\xa9\xe2\x82"], "0xe2 at offset 2 of row 1"),
            ([b"\x00\xed\xa0\x80", b"\xff"], "0xed at offset 1 of row 0"),
            ([b"\xef\xbb\xbf\xc0\x80"], "0xc0 at offset 3 of row 0"),
            ([b"\xe2\xe2\x82\xac"], "0xe2 at offset 0 of row 0"),
            ([b"", "\ufffd\U0010ffff".encode() + b"\xf4\x90\x80\x80"], "0xf4 at offset 7 of row 1"),
        ),
    )
    def test_text_that_is_not_utf8(self, kind, case):
        _, graph = example(kind, **GRID[kind][0])
        data, expected = case
        self.assertIn(
            f"[text must be UTF-8, got byte {expected}]", self.refused(graph.encode, data)
        )
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, expected):
            graph.encode(data)

    def test_unknown_symbol(self):
        rule = "text must hold only symbols of the vocabulary, got"
        char = text_graph.from_tokenizer(learn("char", "ab", unknown="error"))
        word = text_graph.from_tokenizer(learn("word", "ab\n", unknown="error"))
        for graph, contents, expected in (
            (char, ["ab", "", "aq", "z"], "`q` in row 2"),
            (char, ["日"], "`日` in row 0"),
            (char, ["a\n"], r"`\n` in row 0"),
            (word, ["ab", "ab q\n", "z"], "`q` in row 1"),
            (word, ["", "ab", "é" * 1000], f"`{'é' * 40}` in row 2"),
        ):
            self.assertIn(f"[{rule} {expected}]", self.refused(graph.encode, contents))

    @parameterized.parameters(*((kind, rows[0]) for kind, rows in GRID.items()))
    def test_ids_outside_the_vocabulary(self, kind, options):
        tokenizer, graph = example(kind, **options)
        size = tokenizer.vocab_size
        for wrong in (size, -1):
            expected = f"[ids must lie in 0..{size - 1} (vocabulary of {size}), got {wrong}]"
            bad, good = [[0, wrong]], [[0, 0]]
            self.assertIn(expected, self.refused(graph.decode, bad, [2]))
            self.assertIn(expected, self.refused(graph.decode_after, good, [2], bad, [2]))
            self.assertIn(expected, self.refused(graph.decode_after, bad, [2], good, [2]))
            graph.decode(bad, [1])  # padding may be anything

    def test_a_function_whose_result_is_not_used(self):
        _, graph = example("char", **GRID["char"][0])

        @tf.function
        def count_rows(data):
            graph.encode(data)
            return tf.size(data)

        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "must be UTF-8"):
            count_rows(tf.constant([b"\xff"]))


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


class SavedModelTest(parameterized.TestCase):
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
            example("byte", drop_newlines=True)[1],
            example("char", end_of_line="eos", unknown="unk", **dropping)[1],
            example("word", end_of_line="boundary", unknown="error", **dropping)[1],
            example("sentencepiece")[1],  # last: no other may need its library
        ]
        libraries = ["", "", "", "tensorflow_text"]
        data = [content.encode() for content in AWKWARD]
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
