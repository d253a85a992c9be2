import re

import numpy as np
from absl.testing import absltest, parameterized

from txl_tf.ops import attention_mask


def drawing(text):
    return np.array([[cell == "#" for cell in line.split()] for line in text.strip().splitlines()])


class VisibilityTest(parameterized.TestCase):
    def test_matches_the_docstring_drawing(self):
        drawn = "\n".join(re.findall(r"query \d  (.*)", attention_mask.AttentionMask.__doc__))
        seen = attention_mask.AttentionMask(remembered=np.array([1]), attention_span=3).dense(3, 5)
        np.testing.assert_array_equal(seen[0, 0], drawing(drawn))

    def test_documents_hide_what_came_before(self):
        seen = attention_mask.AttentionMask(
            remembered=np.array([2, 2]), documents=np.array([[0, 1, 1], [1, 1, 2]])
        ).dense(3, 5)
        np.testing.assert_array_equal(seen[0, 0], drawing("# # # . .\n. . . # .\n. . . # #"))
        np.testing.assert_array_equal(seen[1, 0], drawing(". . # . .\n. . # # .\n. . . . #"))

    @parameterized.product(memory=(0, 2, 4), span=(None, 1, 3), remembered=(0, 1, 4))
    def test_matches_a_plain_loop(self, memory, span, remembered):
        queries = 3
        seen = attention_mask.AttentionMask(
            remembered=np.array([remembered], "int32"), attention_span=span
        ).dense(queries, memory + queries)
        for i in range(queries):
            for j in range(memory + queries):
                expected = j <= memory + i and j >= memory - remembered
                expected &= span is None or memory + i - j < span
                self.assertEqual(bool(seen[0, 0, i, j]), expected, (i, j))


if __name__ == "__main__":
    absltest.main()
