"""Records and Examples equal those of TensorFlow."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import helpers
from txl_tf.data import tfrecord


class TfrecordTest(parameterized.TestCase):
    LENGTHS = (0, 1, 3, 1024, 70_000)

    def records(self):
        draw = np.random.default_rng(0)
        return [draw.bytes(length) for length in self.LENGTHS]

    def test_file_is_tensorflows(self):
        ours, theirs = (str(helpers.temp_dir(self) / name) for name in ("ours", "theirs"))
        with tfrecord.RecordWriter(ours) as writer, tf.io.TFRecordWriter(theirs) as reference:
            for record in self.records():
                writer.write(record)
                reference.write(record)
        with open(ours, "rb") as one, open(theirs, "rb") as other:
            self.assertEqual(one.read(), other.read())
        self.assertEqual(list(tf.data.TFRecordDataset(ours).as_numpy_iterator()), self.records())

    @parameterized.parameters(0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28, 2**31 - 1)
    def test_example_is_tensorflows(self, largest):
        lists = {"tokens": [0, 127, 128, largest, 5, largest], "none": [], "b": [largest] * 200}
        features = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            for name, values in lists.items()
        }
        reference = tf.train.Example(features=tf.train.Features(feature=features))
        ours = tfrecord.example({name: np.array(v, np.int64) for name, v in lists.items()})
        self.assertEqual(ours, reference.SerializeToString(deterministic=True))


if __name__ == "__main__":
    absltest.main()
