"""Words split by NumPy equal those of `str.split`."""

import collections
import random
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

import prepared
from txl_tf.data import fast_word_split, text


class WordsTest(parameterized.TestCase):
    def check(self, content):
        """Compares with plain Python."""
        data = content.encode("utf-8", "surrogatepass").split()
        ascii_words = [word.decode("utf-8", "surrogatepass") for word in data]
        for options, listed in (((), content.split()), (("ascii",), ascii_words)):
            found = fast_word_split.split(content, *options)
            counts = collections.Counter(listed)
            self.assertEqual(found.symbols, list(counts))
            self.assertEqual(found.counts.tolist(), list(counts.values()))
            self.assertEqual([found.symbols[i] for i in found.indices], listed)

    def odd(self, seed, letters, longest=30):
        """Text of words of all lengths between white space of all kinds; above `_SHORT`."""
        draw = random.Random(seed)
        parts = []
        for _ in range(3000):
            parts.append("".join(draw.choices(letters, k=draw.randrange(longest))))
            parts += draw.choices(text.WHITE_SPACE, k=draw.choice([1, 1, 1, 2, 3]))
        return "".join(parts)

    @parameterized.parameters("ab", "a\x00", "a\x00é日😀", "\U0010ffff\ud800a")
    def test_all_lengths_and_white_space(self, letters):
        for seed, longest in enumerate((2, 9, 20, 40)):
            self.check(self.odd(seed, letters, longest))

    @parameterized.parameters(0, 1, 50, 5000)
    def test_text_of_any_size(self, size):
        self.check(prepared.text(size))
        self.check(" \n\u3000" * size)
        self.check("x" * size)

    def test_edges(self):
        filler = "y " * fast_word_split._SHORT
        for content in (f"a {filler}b", f" a {filler}b ", f"a\u2028{filler}\u3000b"):
            self.check(content)

    def test_every_white_space_between_words(self):
        """Short and long; ASCII's alone splits in "ascii", and the two differ."""
        for space in text.WHITE_SPACE:
            for times in (1, fast_word_split._SHORT):
                content = f"a{space}b{space} c\n" * times
                self.check(content)
                same = (
                    fast_word_split.split(content).symbols
                    == fast_word_split.split(content, "ascii").symbols
                )
                self.assertEqual(same, space in " \t\n\r\v\f")
        self.assertEqual(fast_word_split.LISTED.keys(), text.WHITE_SPACES.keys())

    def test_collisions_are_rare(self):
        for seed, letters in enumerate(("ab", "ab", "abcdefghijklmnopqrstuvwxyz")):
            with mock.patch.object(fast_word_split, "_keys", wraps=fast_word_split._keys) as keys:
                self.check(self.odd(seed, letters, 17))
            self.assertEqual(keys.call_count, 2)  # once for each white space

    @parameterized.parameters(0, 1 << 56)
    def test_equal_numbers_of_unequal_words(self, factor):
        """A factor that cannot tell words apart, nor from short words."""
        content = self.odd(0, "ab")
        with mock.patch.object(fast_word_split, "_FACTOR", np.uint64(factor)):
            self.check(content)
            with mock.patch.object(fast_word_split, "_equal", lambda *_: True):
                self.assertLess(
                    len(fast_word_split.split(content).symbols), len(set(content.split()))
                )


if __name__ == "__main__":
    absltest.main()
