"""Document starts do not depend on how the file is cut into pieces."""

import io

from absl.testing import absltest, parameterized

from txl_tf.data import documents, text


def starts(data, boundary, size=text.PIECE_BYTES):
    """Offsets in the file where a document begins; checks that nothing is lost."""
    source = text.Source("a", len(data), lambda: io.BytesIO(data))
    found, read = [], b""
    with text.Reader(source) as reader:
        for piece in reader.pieces(size):
            for part, begins in documents.parts(piece, boundary):
                if part.offset != len(read):
                    raise AssertionError(f"part at {part.offset}, expected {len(read)}")
                found += [part.offset] * (begins and len(part.data) > 0)
                read += part.data
    if read != data:
        raise AssertionError(f"got {read} of {data}")
    return found


class DocumentsTest(parameterized.TestCase):
    TEXT = b"one\ntwo\n\n \t\nthree\n\xe3\x80\x80\nfour\nfive\n\n"

    @parameterized.parameters(
        ("file", [0]),
        ("line", [0, 4, 8, 9, 12, 18, 22, 27, 32]),
        ("blank_line", [0, 12, 22]),
        ("none", []),
    )
    def test_boundaries(self, boundary, expected):
        self.assertEqual(starts(self.TEXT, boundary), expected)
        for size in range(8, len(self.TEXT) + 2):  # from where no line is cut
            self.assertEqual(starts(self.TEXT, boundary, size), expected, size)

    @parameterized.parameters(*documents.BOUNDARIES)
    def test_a_cut_within_a_line_begins_nothing(self, boundary):
        data = b"some words of a long line\nand one more\n"
        self.assertEqual(starts(data, boundary, 9), starts(data, boundary))

    def test_blank_lines_at_the_start(self):
        self.assertEqual(starts(b"\n\none\n", "blank_line"), [0, 2])

    @parameterized.parameters(*documents.BOUNDARIES)
    def test_empty_file(self, boundary):
        self.assertEqual(starts(b"", boundary), [])

    def test_parts_know_their_place(self):
        piece = text.Piece(b"a b\nc", "x", 10, starts_line=False, after_blank=False, complete=True)
        first, second = documents.parts(piece, "line")
        self.assertEqual(first, (piece._replace(data=b"a b\n", complete=False), False))
        self.assertEqual(second, (piece._replace(data=b"c", offset=14, starts_line=True), True))


if __name__ == "__main__":
    absltest.main()
