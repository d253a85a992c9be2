"""Lower case in a graph is that of Python."""

import random

import tensorflow as tf
from absl.testing import absltest

from txl_tf.export.text_graph import lower_case


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


if __name__ == "__main__":
    absltest.main()
