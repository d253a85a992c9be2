"""Python's `str.lower` in a graph."""

import functools
import itertools
import sys

import tensorflow as tf

from txl_tf.export.text_graph import positions

_SIGMA, _LAST_SIGMA = "\u03a3", "\u03c2"
_OTHER, _CASED, _IGNORABLE = range(3)  # classes of letters beside a sigma
_CLASSES = {  # whether "A" + letter + sigma, and "A" + sigma + letter, end in the last sigma
    (False, True): _OTHER,
    (True, False): _CASED,
    (True, True): _IGNORABLE,
}


class LowerCase(tf.Module):
    """`str.lower` for strings of valid UTF-8: [B] -> [B].

    The rules are tables from the Python that builds the graph. `tf.strings.lower` uses its own ICU:
    it leaves 40 capitals of Unicode 14 unchanged (U+2C2F, U+A7C0, U+A7D0, U+A7D6, U+A7D8 and
    U+10570 to U+10595), and truncates text at a NUL.

    Two rules need more than a table of code points: U+0130 becomes two code points; and a capital
    sigma at the end of a word (after a cased letter and not before one, ignoring marks and the
    like in between) becomes U+03C2.
    """

    def __init__(self):
        super().__init__(name="lower_case")
        self.longer = {c: low for c, low in _changed().items() if len(low) > 1}
        single = {ord(c): ord(low) for c, low in _changed().items() if len(low) == 1}
        contents = tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(single), tf.int32), tf.constant(list(single.values()), tf.int32)
        )
        self.lowered = tf.lookup.StaticHashTable(contents, -1)
        starts, classes = zip(*_class_runs(), strict=True)
        self.run_starts = tf.constant(starts, tf.int32)
        self.run_classes = tf.constant(classes, tf.int32)

    def __call__(self, text):
        for letter, low in self.longer.items():
            text = tf.strings.regex_replace(text, letter, low)
        codes = tf.strings.unicode_decode(text, "UTF-8")  # [B, N]
        flat = codes.flat_values
        mapped = self.lowered.lookup(flat)
        lowered = tf.where(mapped < 0, flat, mapped)
        is_sigma = flat == ord(_SIGMA)
        lowered = tf.cond(
            tf.reduce_any(is_sigma),
            lambda: tf.where(is_sigma & self._ends_word(codes), ord(_LAST_SIGMA), lowered),
            lambda: lowered,
        )
        return tf.strings.unicode_encode(codes.with_flat_values(lowered), "UTF-8")

    def _ends_word(self, codes):
        """Whether the letter before is cased and the one after is not: ragged [B, N] -> [n]."""
        flat, rows = codes.flat_values, positions.row_ids(codes)
        runs = tf.searchsorted(self.run_starts, flat, side="right") - 1
        classes = tf.gather(self.run_classes, runs)
        counts = classes != _IGNORABLE
        bounds = tf.concat([classes, [_OTHER]], axis=0)  # so that index n is valid
        before, after = positions.last_before(counts), positions.first_after(counts)
        follows_cased = (before >= tf.gather(codes.row_starts(), rows)) & (
            tf.gather(bounds, tf.maximum(before, 0)) == _CASED
        )
        precedes_cased = (after < tf.gather(codes.row_limits(), rows)) & (
            tf.gather(bounds, after) == _CASED
        )
        return follows_cased & ~precedes_cased


@functools.cache
def _changed() -> dict[str, str]:
    """Returns the lower case of each character that has one."""
    return {c: low for c in map(chr, range(sys.maxunicode + 1)) if (low := c.lower()) != c}


@functools.cache
def _class_runs() -> list[tuple[int, int]]:
    """Returns first code point and class of each run of equal class, in order."""

    def letter_class(code):
        before = f"A{chr(code)}{_SIGMA}".lower().endswith(_LAST_SIGMA)
        after = f"A{_SIGMA}{chr(code)}".lower().startswith(f"a{_LAST_SIGMA}")
        return _CLASSES[before, after]

    codes = range(sys.maxunicode + 1)
    return [(next(run), kind) for kind, run in itertools.groupby(codes, letter_class)]
