"""Tokenizers of every kind and option, their graphs, and texts and ids that are hard for both."""

import itertools
import random

import numpy as np

import learnt
from txl_tf.data import text
from txl_tf.export import text_graph

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


def example(kind, **options):
    """A tokenizer that knows some of the texts, or all where it has to, and its graph.

    Not kept from file to file: a new global seed, as tests of other files set, ends the model that
    a graph of sentencepiece has outside of functions.
    """
    known = {
        "unk": AWKWARD[::2],
        "error": [*AWKWARD, *random_texts(), "x".join(sorted(set("".join(LETTERS + AWKWARD))))],
    }.get(options.get("unknown"), [])
    tokenizer = learnt.tokenizer(kind, *known, **options)
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
