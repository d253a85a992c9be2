"""Tests of the built-in corpus: its size and disjoint splits."""

from absl.testing import absltest

from txl_tf.data import builtin_corpus, text


class BuiltinCorpusTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.splits = {}
        for split, sources in builtin_corpus.sources().items():
            self.splits[split] = {}
            for source in sources:
                with text.Reader(source) as reader:
                    self.splits[split][source.name] = reader.text(1 << 20).decode()

    def test_sizes(self):
        sizes = {split: sum(map(len, texts.values())) for split, texts in self.splits.items()}
        self.assertGreater(sizes["train"], 250_000)
        for split in ("valid", "test"):
            self.assertBetween(sizes[split] / sum(sizes.values()), 0.05, 0.15)

    def test_no_paragraph_comes_twice(self):
        paragraphs = [
            paragraph
            for texts in self.splits.values()
            for content in texts.values()
            for paragraph in content.split("\n\n")
            if paragraph
        ]
        self.assertGreater(len(paragraphs), 1000)
        self.assertLen(set(paragraphs), len(paragraphs))

    def test_held_out_text_comes_from_many_topics(self):
        for split in ("valid", "test"):
            self.assertGreater(len(self.splits[split]), 10)

    def test_each_split_names_its_own_sources(self):
        names = [name for texts in self.splits.values() for name in texts]
        self.assertLen(set(names), len(names))

    def test_it_is_the_same_each_time(self):
        first, second = (builtin_corpus.sources() for _ in range(2))
        self.assertEqual(
            [[text.sha256(s) for s in sources] for sources in first.values()],
            [[text.sha256(s) for s in sources] for sources in second.values()],
        )


if __name__ == "__main__":
    absltest.main()
