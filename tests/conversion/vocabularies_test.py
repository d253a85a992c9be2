"""Converted vocabularies have the originals' symbols and ids."""

import collections
import json
import pickle
import re

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import pickled
from pickled import Bytes2, call, dumps, made, vector
from txl_tf.conversion import vocabularies
from txl_tf.data import text, tokenizers
from txl_tf.data.vocabulary import Vocabulary
from txl_tf.export import text_graph

SYMBOLS = ["<eos>", "the", "café", "<unk>", "<formula>", "\\n"]


def fields(symbols=SYMBOLS, **changes):
    """The attributes of the originals' Vocab."""
    return dict(
        counter={s: 1 for s in symbols},
        special=["<eos>"],
        min_freq=0,
        max_size=None,
        lower_case=False,
        delimiter=None,
        vocab_file=None,
        idx2sym=list(symbols),
        sym2idx={s: i for i, s in enumerate(symbols)},
    ) | dict(changes)


class VocabulariesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = helpers.temp_dir(self)

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    def check(self, found, symbols=SYMBOLS, **options):
        """Asserts what was read; and that it is the same saved and loaded."""
        self.assertEqual(list(found.vocabulary.symbols), list(symbols))
        self.assertEqual(found.options, found.options | options)
        found.save(str(self.folder))
        self.assertEqual(tokenizers.load(str(self.folder)), found)
        (self.folder / "tokenizer.json").unlink()

    def refuse(self, path, message, kind=None):
        with self.assertRaisesRegex(ValueError, message) as caught:
            vocabularies.read(path, kind)
        self.assertStartsWith(str(caught.exception), path)
        self.assertNotIn("\n", str(caught.exception))


class ReadTest(VocabulariesTest):
    @parameterized.parameters("data_utils.Corpus", "__main__.Corpus")
    def test_corpus_of_the_original(self, name):
        vocab = made("vocabulary.Vocab", **fields())
        corpus = made(name, vocab=vocab, dataset="wt103", train=vector_record(), cutoffs=[])
        path = self.write("cache.pkl", dumps(corpus))
        word = dict(end_of_line="eos", lower_case=False, unknown="unk")
        self.check(vocabularies.read(path), **word)
        self.check(vocabularies.read(str(self.folder)), **word)

    def test_symbols_of_python_2(self):
        names = [Bytes2(s.encode()) for s in SYMBOLS]
        ids = call("collections.OrderedDict", [[n, i] for i, n in enumerate(names)])
        given = {k: v for k, v in fields().items() if k != "counter"} | dict(idx2sym=names)
        path = self.write("cache.pkl", dumps(made("vocabulary.Vocab", **given | dict(sym2idx=ids))))
        self.check(vocabularies.read(path))

    def test_white_space_by_who_wrote_a_file(self):
        ascii_only = ["<eos>", "the", "<unk>"]

        def of_python_2(value):
            if isinstance(value, dict):
                return {of_python_2(k): of_python_2(v) for k, v in value.items()}
            if isinstance(value, list):
                return [of_python_2(v) for v in value]
            return Bytes2(value.encode()) if isinstance(value, str) else value

        for name, symbols, expected in (
            ("python 3", ascii_only, "unicode"),
            ("python 3", SYMBOLS, "unicode"),
            ("python 3", [*SYMBOLS, "no\u3000plain"], "ascii"),
            ("python 3", [*SYMBOLS, "\xa0"], "ascii"),
            ("latin-1", SYMBOLS, "ascii"),
            ("latin-1", [*SYMBOLS, "no\u3000plain"], "ascii"),
        ):
            stored = [s.encode().decode(name) if name == "latin-1" else s for s in symbols]
            for protocol in range(5):
                path = self.write("vocab.pkl", pickle.dumps(fields(stored), protocol))
                self.check(vocabularies.read(path), symbols, white_space=expected)
        plain = {k: v for k, v in fields(ascii_only).items() if k in ("idx2sym", "special")}
        for write, expected in ((lambda x: x, "unicode"), (of_python_2, "ascii")):
            path = self.write("cache.pkl", dumps(write(plain)))
            self.check(vocabularies.read(path), ascii_only, white_space=expected)
            self.check(vocabularies.read(f"file://{path}"), ascii_only, white_space=expected)
        for symbols, expected in ((ascii_only, "unicode"), ([*ascii_only, "a\xa0b"], "ascii")):
            listed = self.write("vocab.txt", "\n".join(symbols))
            self.check(vocabularies.read(listed), symbols, white_space=expected)
            tree = self.write("vocab.json", json.dumps(symbols))
            self.check(vocabularies.read(tree), symbols, white_space=expected)
            pickled.write_zip(self.folder / "vocab.bin", fields(symbols), {})
            found = vocabularies.read(str(self.folder / "vocab.bin"))
            self.check(found, symbols, white_space=expected)

    def test_symbols_read_as_latin_1_are_set_right(self):
        wrong = [s.encode().decode("latin-1") for s in SYMBOLS]
        path = self.write("vocab.pkl", pickle.dumps(fields(wrong)))
        self.check(vocabularies.read(path))
        mixed = ["<eos>", "Ã©", "é"]  # the last cannot have been read so: neither was the second
        self.check(vocabularies.read(self.write("vocab.pkl", pickle.dumps(fields(mixed)))), mixed)

    @parameterized.parameters(0, 2, 4)
    def test_hugging_face_pickle(self, protocol):
        extra = dict(punctuation=re.compile("[.,]"), unk_idx=3, never_split=set())
        data = collections.OrderedDict(fields(**extra))
        self.check(vocabularies.read(self.write("vocab.pkl", pickle.dumps(data, protocol))))
        moses = made("sacremoses.tokenize.MosesTokenizer", lang="en")
        path = self.write("vocab.pkl", dumps(fields(moses_tokenizer=moses)))
        self.check(vocabularies.read(path), end_of_line="eos")

    @parameterized.parameters(pickled.write_zip, pickled.write_legacy)
    def test_torch_files(self, write):
        numbers = {"0": bytes(400)}
        vocab = made("utils.vocabulary.Vocab", **fields())
        for value in (
            fields(),
            made("data_utils.Corpus", vocab=vocab, train=vector("0", 100), dataset="wt103"),
            {"vocab": vocab, "model_state": {"a": vector("0", 100)}, "epoch": 3},
        ):
            for name in ("vocab.bin", "cache.pt"):
                write(self.folder / name, value, numbers)
                self.check(vocabularies.read(str(self.folder / name)), end_of_line="eos")

    def test_json(self):
        for tree in ({s: i for i, s in enumerate(SYMBOLS)}, SYMBOLS, fields()):
            self.check(vocabularies.read(self.write("vocab.json", json.dumps(tree))))
        shuffled = json.dumps({"b": 1, "c": 2, "a": 0})
        path = self.write("words", shuffled)
        self.check(vocabularies.read(path, "json"), "abc", end_of_line="none", unknown="error")

    def test_text(self):
        found = vocabularies.read(self.write("vocab.txt", "<S>\t9\nthe 8\r\n\u00e9\n<UNK>"))
        self.check(found, ["<S>", "the", "é", "<UNK>"], end_of_line="boundary", unknown="unk")
        found = vocabularies.read(self.write("words", "\ufeff<eos>\na\n"), "text")
        self.check(found, ["<eos>", "a"], end_of_line="eos", unknown="error")

    def test_our_own_is_read_as_it_is(self):
        own = vocabularies.read(self.write("list.txt", "a\\b\n<unk>\n"))
        own.save(str(self.folder))
        for path in (self.folder, self.folder / "vocab.txt"):
            self.assertEqual(vocabularies.read(str(path)), own)

    @parameterized.parameters(
        (dict(special=["<eos>"]), "eos"),
        (dict(special=[]), "boundary"),
        (dict(special=[], dataset="lm1b"), "boundary"),
        (dict(special=[], dataset="enwik8"), "none"),
        (dict(special=None), "boundary"),
    )
    def test_line_ends(self, changes, expected):
        given = fields(["<eos>", "<S>", "<UNK>"], **changes)
        found = vocabularies.read(self.write("vocab.pkl", pickle.dumps(given)))
        self.check(found, given["idx2sym"], end_of_line=expected)

    def test_the_data_set_may_be_told_beside_the_file(self):
        given = fields(["<S>", "<UNK>"], special=[])
        path = self.write("cache.pkl", pickle.dumps(given))
        for dataset, expected in (("text8", "none"), ("lm1b", "boundary")):
            self.write("corpus-info.json", json.dumps(dict(dataset=dataset, cutoffs=[])))
            self.assertEqual(vocabularies.read(path).end_of_line, expected)

    def test_bytes_as_numbers(self):
        """As in enwik8: prepared text has the number of each byte, and loses line ends."""
        given = fields(["32", "101", "116"], special=[], lower_case=True)
        found = vocabularies.read(self.write("cache.pkl", pickle.dumps(given)))
        self.check(found, ["32", "101", "116"], end_of_line="none", lower_case=True)
        self.assertEqual(found.encode("101 32\n116 116\n").tolist(), [1, 0, 2, 2])

    def test_characters_without_delimiter(self):
        given = fields(["a", " ", "é"], special=[], delimiter="")
        found = vocabularies.read(self.write("vocab.pkl", pickle.dumps(given)))
        self.check(found, ["a", " ", "é"], drop_newlines=True, unknown="error")
        self.assertEqual(found.kind, "char")

    def test_other_file_systems(self):
        path = self.write("vocab.pkl", pickle.dumps(fields()))
        self.check(vocabularies.read(f"file://{path}"))
        self.check(vocabularies.read(f"file://{self.folder}"))


def vector_record():
    """A NumPy array as the originals' corpora have it."""
    dtype = pickled.build(call("numpy.dtype", "i8", 0, 1), (3, "<", None, None, None, -1, -1, 0))
    array = call("numpy.core.multiarray._reconstruct", pickled.Global("numpy.ndarray"), (0,), b"b")
    return pickled.build(array, (1, (2,), dtype, False, Bytes2(bytes(16))))


class RefusalTest(VocabulariesTest):
    @parameterized.parameters(
        (dict(idx2sym=["a", "", "b"], sym2idx=None), "symbol 1 must not be empty, got ''"),
        (dict(idx2sym=["a", "b", "a"], sym2idx=None), "symbol 2 must be new, got 'a' of 0 again"),
        (dict(idx2sym=["a", "b"]), "symbol 0 'a' must have this id, got none"),
        (dict(idx2sym=["a", "b"], sym2idx=dict(a=1, b=0)), "symbol 0 'a' must .* this id, got 1"),
        (dict(idx2sym=["a"], sym2idx=dict(a=0, b=1)), "must hold 1 ids, one per symbol, got 2"),
        (dict(idx2sym=["a", 3], sym2idx=None), "symbol 1 must be text in UTF-8, got int"),
        (dict(idx2sym=[b"\xff"], sym2idx=None), r"symbol 0 must be text in UTF-8, got b'\\xff'"),
        (dict(idx2sym=["a b"], sym2idx=None), "symbol 0 'a b': .*without white space"),
        (dict(idx2sym=["a\nb"], sym2idx=None), r"symbol 0 'a\\nb': .*white space"),
        (dict(idx2sym=["\ud800"], sym2idx=None), r"symbol 0 '\\ud800': "),
        (dict(idx2sym=[], sym2idx=None), "must hold symbols by id, got none"),
        (dict(idx2sym=None, sym2idx=dict(a=0, b=2)), "number its symbols .* got none with 1"),
        (dict(idx2sym=None, sym2idx=dict(a=0, b=0)), "number its symbols .* got none with 1"),
        (dict(idx2sym=None, sym2idx=dict(a="x")), "number its symbols .* got none with 0"),
        (dict(delimiter=" "), "symbols between white space, got delimiter ' '"),
        (dict(delimiter="", idx2sym=["ab"], sym2idx=None), "symbol 0 'ab': "),
    )
    def test_symbols_that_cannot_be_ours(self, changes, message):
        self.refuse(self.write("vocab.pkl", pickle.dumps(fields(**changes))), message)

    @parameterized.parameters(
        ("vocab.txt", "a\n\nb\n", r":2 must hold a symbol, got a blank line"),
        ("vocab.txt", "a 1\nb 2\na 3\n", r":3 must hold a new symbol, got 'a' of line 1 again"),
        ("vocab.txt", b"a\n\xff\n", "must be UTF-8, got an invalid byte at 2"),
        ("vocab.txt", "", "must hold symbols by id, got none"),
        ("vocab.json", '{"a": 0, "a": 1}', "vocab.json must be JSON, got 'a' twice"),
        ("vocab.json", '{"a": 0', "vocab.json must be JSON, got Expecting"),
        ("vocab.json", "[" * 100_000, "vocab.json must be JSON, got maximum recursion depth"),
        ("vocab.json", "3", "must hold a vocabulary .* got int"),
        ("vocab.json", "{}", "must hold a vocabulary .* got dict"),
        ("vocab.json", '{"a": true}', "must hold a vocabulary .* got dict"),
        ("vocab.pkl", pickle.dumps([1]), "must hold a vocabulary .* got list"),
        ("vocab.pkl", dumps(made("vocabulary.OpenAIVocab", encoder=3)), "got vocabulary.OpenAIV"),
        ("vocab.pkl", dumps({"vocab": {"vocab": {"vocab": {}}}}), "must hold a vocabulary"),
        ("vocab.pkl", b"", "must be a whole file of a pickle, got damage"),
    )
    def test_files_that_hold_none(self, name, data, message):
        self.refuse(self.write(name, data), message)

    def test_kinds(self):
        with self.assertRaisesRegex(ValueError, "one of pickle, torch, json, text, got 'x'"):
            vocabularies.read(self.write("vocab.pkl", b""), "x")
        self.refuse(self.write("a.bin", pickle.dumps(fields())), "whole file of PyTorch", "torch")

    def test_missing_files_are_reported(self):
        self.refuse(str(self.folder), "must hold one of cache.pkl, .*vocab.txt, got none")
        for name in ("a.pkl", "a.json", "a.txt"):
            self.refuse(str(self.folder / name), "must be a file, got no such file")

    def test_code_is_refused_by_name_and_not_run(self):
        canary = self.folder / "canary"
        attack = call("posix.system", f"touch {canary}")
        name = r"tensors and plain data only, got posix\.system$"
        value = fields(unk_idx=attack)
        self.refuse(self.write("cache.pkl", dumps(made("data_utils.Corpus", vocab=value))), name)
        for write in (pickled.write_zip, pickled.write_legacy):
            write(self.folder / "vocab.bin", value, {})
            self.refuse(str(self.folder / "vocab.bin"), name)
        self.assertFalse(canary.exists())

    def test_every_cut_is_refused(self):
        data = dumps(made("data_utils.Corpus", vocab=made("vocabulary.Vocab", **fields())))
        for end in range(0, len(data), 7):
            self.refuse(self.write("cache.pkl", data[:end]), "a whole file of a pickle, got damage")


class GoldenTest(VocabulariesTest):
    def test_text8_of_python_2(self):
        folder = helpers.shared("golden/D2_cache_python2/text8")
        expected = json.loads((folder / "expected.json").read_text())
        for name in ("cache.pkl", "cache_main.pkl", ""):
            found = vocabularies.read(str(folder / name))
            options = dict(end_of_line="none", lower_case=True, unknown="error")
            self.check(found, expected["idx2sym"], white_space="ascii", **options)
            self.check_ids(found, folder)

    def test_wikitext_of_python_2(self):
        folder = helpers.shared("golden/D2_cache_python2/wt103")
        expected = json.loads((folder / "expected.json").read_text())
        self.assertIn("no\u3000plain", expected["idx2sym"])
        for name in ("cache.pkl", "cache_main.pkl", ""):
            found = vocabularies.read(str(folder / name))
            options = dict(end_of_line="eos", lower_case=False, unknown="unk")
            self.check(found, expected["idx2sym"], white_space="ascii", **options)
            self.check_ids(found, folder)
        ids = np.load(folder / "io.npz")["train"]
        self.assertLen(ids, 600)
        symbols = [s for s in expected["idx2sym"] if s.split() == [s]]
        other = tokenizers.WordTokenizer(vocabulary=Vocabulary(symbols))
        self.assertLen(other.encode_bytes((folder / "train.txt").read_bytes()), 603)

    def check_ids(self, found, folder):
        """Asserts that the original's text gets the original's ids, here and in a graph."""
        recorded = np.load(folder / "io.npz")
        graph = text_graph.from_tokenizer(found)
        for split in ("train", "valid", "test"):
            data = (folder / f"{split}.txt").read_bytes()
            np.testing.assert_array_equal(found.encode_bytes(data), recorded[split])
            np.testing.assert_array_equal(graph.encode([data])[0][0], recorded[split])

    @parameterized.parameters("wt103", "text8")
    def test_learning_as_python_2(self, corpus):
        """The same words and counts; between equal counts Python 2 had no order."""
        folder = helpers.shared(f"golden/D2_cache_python2/{corpus}")
        expected = json.loads((folder / "expected.json").read_text())
        splits, options = ["train"], dict(end_of_line="eos")
        if corpus == "text8":
            splits, options = ["train", "valid", "test"], dict(end_of_line="none", lower_case=True)
        start = tokenizers.WordTokenizer.start(
            vocab_size=None, min_count=0, unknown="error", white_space="ascii", **options
        )
        for split in splits:
            start.add(start.observe(text.Piece((folder / f"{split}.txt").read_bytes())))
        counts = dict(zip(expected["idx2sym"], expected["counts"], strict=True))
        self.assertEqual({"<eos>": 0} | start.counts, {"<eos>": 0} | counts)
        self.assertCountEqual(start.finish().symbols, expected["idx2sym"])


if __name__ == "__main__":
    absltest.main()
