"""What absltest's own runner does before the tests, for pytest."""

from absl import flags

flags.FLAGS.mark_as_parsed()  # else create_tempdir and every flag refuse to be read
