"""Tests of data.sliding: windows cover each target once, with the context that they promise."""

import numpy as np
from absl.testing import absltest, parameterized

import helpers
import stream_data
from txl_tf.data.sliding import SlidingBatches

LENGTH = 60


class SlidingBatchesTest(parameterized.TestCase):
    def open(self, **options):
        """Windows of the stream 0..59, whose second document begins at 20."""
        folder = stream_data.write(
            helpers.temp_dir(self), range(LENGTH), document_start=(0, 20), vocab_size=LENGTH
        )
        return SlidingBatches(folder, "train", **options)

    @parameterized.product(window=(1, 2, 7, 16, 80), stride=(1, 2, 7), batch_size=(1, 2, 3, 50))
    def test_windows(self, window, stride, batch_size):
        if stride > window:
            return
        batches = self.open(batch_size=batch_size, window=window, stride=stride)
        found = list(batches.arrays())
        self.assertLen(found, batches.steps_per_epoch)
        scored = []
        for step, batch in enumerate(found):
            self.assertEqual(batch.ids.shape, (batch_size, window))
            self.assertTrue(batch.restart)
            for row, (ids, targets) in enumerate(zip(batch.ids, batch.targets, strict=True)):
                start = (step * batch_size + row) * stride
                for place in np.flatnonzero(targets >= 0):
                    position = start + place
                    scored.append(position)
                    self.assertEqual(targets[place], position + 1)
                    self.assertEqual(ids[: place + 1].tolist(), list(range(start, position + 1)))
                    self.assertGreaterEqual(place, min(position, window - stride))
        self.assertEqual(scored, list(range(LENGTH - 1)))
        self.assertEqual(batches.scored, len(scored))

    def test_documents(self):
        batches = self.open(batch_size=2, window=8, stride=3)
        for step, batch in enumerate(batches.arrays()):
            for row, starts in enumerate(batch.document_start):
                first = (step * 2 + row) * 3
                expected = [position for position in (0, 20) if first <= position < first + 8]
                self.assertEqual((np.flatnonzero(starts) + first).tolist(), expected)

    @parameterized.parameters(0, 9)
    def test_a_stride_must_fit_its_window(self, stride):
        message = f"^stride must be between 1 and the window of 8, got {stride}$"
        with self.assertRaisesRegex(ValueError, message):
            self.open(batch_size=1, window=8, stride=stride)


if __name__ == "__main__":
    absltest.main()
