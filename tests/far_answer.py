"""Texts whose label is given by one sentence far from their end, within real text.

Each text is an excerpt of a source. The answer, a sentence near its beginning, names one of two
words; decoy sentences in the rest contain both words, independent of the label. A model that reads
only the end can only guess.
"""

import numpy as np

from txl_tf.data import builtin_corpus

LABELS = ("amber", "cobalt")
_ANSWER = " THE SEAL IS {}. "
_DECOYS = (" The seal is {}. ", " Who says {}? ")


def builtin_text():
    """Returns the documentation that comes with Python, as one text."""
    sources = builtin_corpus.sources()["train"]
    return "".join(source.open().read().decode() for source in sources)


def texts(source, count, *, seed, length=3000, earliest=100, latest=700):
    """Returns (label, text) pairs of ASCII text, with equally many of each label.

    Args:
      source: any text, several times longer than `length`.
      count: number of texts.
      seed: seed of the random draws.
      length: characters of an excerpt, without the inserted sentences.
      earliest, latest: range of the answer's position.
    """
    draw = np.random.default_rng(seed)
    source = source.encode("ascii", "ignore").decode().replace("\r", "")
    found = []
    for number in range(count):
        label = LABELS[number % 2]
        start = draw.integers(len(source) - length)
        excerpt = source[start : start + length]
        inserts = [(int(draw.integers(earliest, latest)), _ANSWER.format(label.upper()))]
        for word in LABELS:
            for decoy in _DECOYS:
                inserts.append((int(draw.integers(latest, length)), decoy.format(word)))
        for position, sentence in sorted(inserts, reverse=True):
            excerpt = excerpt[:position] + sentence + excerpt[position:]
        found.append((label, excerpt))
    draw.shuffle(found)
    return found


def characters_after_answer(label, content):
    """Returns the number of characters after the answer."""
    sentence = _ANSWER.format(label.upper())
    return len(content) - content.index(sentence) - len(sentence)


def write(path, pairs):
    """Writes pairs in the format of `train_classifier`; returns the path."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"})
    lines = [f"{label}\t{content.translate(escapes)}\n" for label, content in pairs]
    path.write_text("".join(lines))
    return str(path)


def write_splits(folder, source=None, train=400, valid=100, test=200, **options):
    """Writes train.tsv, valid.tsv and test.tsv from disjoint parts of the source; returns paths."""
    source = builtin_text() if source is None else source
    cuts = [0, int(0.7 * len(source)), int(0.85 * len(source)), len(source)]
    paths = {}
    for index, (split, count) in enumerate({"train": train, "valid": valid, "test": test}.items()):
        part = source[cuts[index] : cuts[index + 1]]
        pairs = texts(part, count, seed=index, **options)
        paths[split] = write(folder / f"{split}.tsv", pairs)
    return paths
