"""Every layout equals its definition, on all small streams."""

import itertools

from absl.testing import absltest, parameterized

from txl_tf.data import layouts

SMALL = [(n, b) for n, b in itertools.product(range(2, 15), range(1, 6)) if n > b]


def pairs_of_rows(block, segment_len):
    """The pairs of each row, joined over the steps."""
    rows = []
    for row in range(block.rows):
        spans = [
            block.span(row, step * segment_len, segment_len)
            for step in range(block.steps(segment_len))
        ]
        rows.append([p for first, count in spans for p in range(first, first + count)])
    return rows


class ContiguousTest(parameterized.TestCase):
    @parameterized.parameters(1, 2, 3, 20)
    def test_training_rows_are_equal_and_follow_each_other(self, segment_len):
        for tokens, rows in SMALL:
            (block,) = layouts.blocks("contiguous", "train", [tokens], rows)
            length = (tokens - 1) // rows
            expected = [list(range(b * length, (b + 1) * length)) for b in range(rows)]
            self.assertEqual(pairs_of_rows(block, segment_len), expected)
            self.assertEqual(block.scored, rows * length)

    @parameterized.parameters(1, 2, 3, 20)
    def test_evaluation_has_every_pair_once(self, segment_len):
        for tokens, rows in SMALL:
            (block,) = layouts.blocks("contiguous", "eval", [tokens], rows)
            found = pairs_of_rows(block, segment_len)
            self.assertEqual(sum(found, []), list(range(tokens - 1)))
            longest = -(-(tokens - 1) // rows)
            self.assertTrue(all(row[:1] in ([], [b * longest]) for b, row in enumerate(found)))
            self.assertEqual(block.scored, tokens - 1)

    def test_evaluation_rows_may_be_empty(self):
        (block,) = layouts.blocks("contiguous", "eval", [7], 5)
        self.assertEqual(pairs_of_rows(block, 2), [[0, 1], [2, 3], [4, 5], [], []])

    def test_streams_are_one(self):
        for mode in ("train", "eval"):
            whole = layouts.blocks("contiguous", mode, [11], 2)
            self.assertEqual(layouts.blocks("contiguous", mode, [5, 2, 4], 2), whole)


class ReferenceTest(parameterized.TestCase):
    def test_folds_the_stream_and_cuts_the_tail(self):
        for tokens, rows in SMALL:
            if tokens < 2 * rows:
                continue
            (block,) = layouts.blocks("reference", "train", [tokens], rows)
            length = tokens // rows
            kept = list(range(length * rows))
            folded = [kept[b * length : (b + 1) * length] for b in range(rows)]
            self.assertEqual(pairs_of_rows(block, 2), [row[:-1] for row in folded])

    def test_streams_are_folded_one_by_one(self):
        first, short, last = layouts.blocks("reference", "eval", [5, 1, 6], 2)
        self.assertEqual(pairs_of_rows(first, 2), [[0], [2]])
        self.assertEqual(pairs_of_rows(short, 2), [[], []])
        self.assertEqual(pairs_of_rows(last, 2), [[6, 7], [9, 10]])
        self.assertEqual((first.scored, short.scored, last.scored), (2, 0, 4))


class ErrorTest(parameterized.TestCase):
    @parameterized.product(mode=("train", "eval"))
    def test_too_short(self, mode):
        with self.assertRaisesRegex(
            ValueError, r"at least 6 tokens for batch_size 5, got 5 tokens"
        ):
            layouts.blocks("contiguous", mode, [5], 5)
        with self.assertRaisesRegex(ValueError, r"\(4 pairs of input and target for 5 rows\)"):
            layouts.blocks("contiguous", mode, [5], 5)
        with self.assertRaisesRegex(ValueError, r"at least 10 tokens for batch_size 5, got 9"):
            layouts.blocks("reference", mode, [9], 5)
        self.assertLen(layouts.blocks("contiguous", mode, [6], 5), 1)
        self.assertLen(layouts.blocks("reference", mode, [10], 5), 1)

    def test_nothing(self):
        with self.assertRaisesRegex(ValueError, r"got 0 tokens \(0 pairs"):
            layouts.blocks("contiguous", "eval", [0], 1)

    @parameterized.parameters(
        (dict(layout="rows"), "layout must be one of contiguous, reference, got 'rows'"),
        (dict(mode="test"), "mode must be one of train, eval, got 'test'"),
        (dict(rows=0), "batch_size must be at least 1, got 0"),
    )
    def test_arguments(self, wrong, message):
        right = dict(layout="contiguous", mode="train", streams=[9], rows=2)
        with self.assertRaisesRegex(ValueError, message):
            layouts.blocks(**(right | wrong))


class WorkerRowsTest(absltest.TestCase):
    def test_shares_are_equal(self):
        shares = [layouts.worker_rows(6, worker, 3) for worker in range(3)]
        self.assertEqual(shares, [(0, 2), (2, 4), (4, 6)])

    def test_rows_must_divide(self):
        with self.assertRaisesRegex(
            ValueError, "batch_size must be a multiple of 4 workers, got 6"
        ):
            layouts.worker_rows(6, 0, 4)


if __name__ == "__main__":
    absltest.main()
