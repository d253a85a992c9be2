"""Texts whose label stands in one sentence far before their end, among real text.

Each text is a stretch of a source. Near its beginning stands the sentence that tells, which names
one of two words; in the rest, where it tells nothing, both words stand in other forms. So that a
reader of the end alone can only guess.
"""

import numpy as np

from txl_tf.data import builtin_corpus

LABELS = ("amber", "cobalt")
_TELLS = " THE SEAL IS {}. "
_DECOYS = (" The seal is {}. ", " Who says {}? ")


def builtin_text():
    """The documentation that comes with Python, as one text."""
    sources = builtin_corpus.sources()["train"]
    return "".join(source.open().read().decode() for source in sources)


def texts(source, count, *, seed, length=3000, earliest=100, latest=700):
    """(label, text) pairs of ASCII text, as many of each label.

    Args:
      source: any text, longer than a few lengths.
      count: of texts.
      seed: of the draw.
      length: characters of a stretch of source; the sentences come on top.
      earliest, latest: where the sentence that tells may begin.
    """
    draw = np.random.default_rng(seed)
    source = source.encode("ascii", "ignore").decode().replace("\r", "")
    found = []
    for number in range(count):
        label = LABELS[number % 2]
        start = draw.integers(len(source) - length)
        stretch = source[start : start + length]
        inserts = [(int(draw.integers(earliest, latest)), _TELLS.format(label.upper()))]
        for word in LABELS:
            for decoy in _DECOYS:
                inserts.append((int(draw.integers(latest, length)), decoy.format(word)))
        for place, sentence in sorted(inserts, reverse=True):
            stretch = stretch[:place] + sentence + stretch[place:]
        found.append((label, stretch))
    draw.shuffle(found)
    return found


def tokens_after_the_answer(label, content):
    """How many characters stand behind the sentence that tells."""
    sentence = _TELLS.format(label.upper())
    return len(content) - content.index(sentence) - len(sentence)


def write(path, pairs):
    """Writes them as `train_classifier` reads them; returns the path."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"})
    lines = [f"{label}\t{content.translate(escapes)}\n" for label, content in pairs]
    path.write_text("".join(lines))
    return str(path)


def write_splits(folder, source=None, train=400, valid=100, test=200, **options):
    """train.tsv, valid.tsv and test.tsv in a folder, from parts of the source that do not meet."""
    source = builtin_text() if source is None else source
    cuts = [0, int(0.7 * len(source)), int(0.85 * len(source)), len(source)]
    paths = {}
    for index, (split, count) in enumerate({"train": train, "valid": valid, "test": test}.items()):
        part = source[cuts[index] : cuts[index + 1]]
        pairs = texts(part, count, seed=index, **options)
        paths[split] = write(folder / f"{split}.tsv", pairs)
    return paths
