"""Word tokenizer in a graph."""

import tensorflow as tf

from txl_tf.data import tokenizers
from txl_tf.data.tokenizers import counted as counted_tokenizer
from txl_tf.export.text_graph import checks, counted, graph, positions

_END, _BOUNDARY = counted_tokenizer.END_OF_LINE, counted_tokenizer.BOUNDARY
_MARKING = {  # `WordTokenizer._marked` as patterns and replacements
    "none": (),
    "eos": (("\n", f" {_END} "),),
    "boundary": (
        ("\n", f" {_BOUNDARY}\n{_BOUNDARY} "),
        (rf"\n{_BOUNDARY} \z", "\n"),
        (r"\A(?s:.)", rf"{_BOUNDARY} \0"),
    ),
}


class WordGraph(counted.CountedGraph):
    """`WordTokenizer` in a graph."""

    def __init__(self, tokenizer: tokenizers.WordTokenizer):
        super().__init__(tokenizer)
        self.marking = _MARKING[tokenizer.end_of_line]
        self.mark_id = -1 if tokenizer.end_id is None else tokenizer.end_id
        self.opens_lines = _BOUNDARY in tokenizer.marks
        self.symbols = tf.constant([s.encode("utf-8") for s in tokenizer.vocabulary.symbols])
        self.ids = self.table(self.symbols, range(self.vocab_size))

    def encode(self, text, complete: bool = True):
        text = self.ended(self.normalise(text, complete), complete)
        for pattern, replacement in self.marking:
            text = tf.strings.regex_replace(text, pattern, replacement)
        words = tf.strings.split(tf.strings.regex_replace(text, f"[{self.spaces}]+", " "))
        ids = tf.ragged.map_flat_values(self.ids.lookup, words)  # [B, N]
        if self.refuses_unknown:
            ids = checks.known(ids, lambda index: words.flat_values[index])
        return graph.padded(ids)

    def _text(self, rows):
        flat = rows.flat_values
        is_word = flat != self.mark_id
        row_start = tf.gather(rows.row_starts(), positions.row_ids(rows))
        word_before = positions.last_before(is_word)
        is_first = word_before < row_start  # no word before in this row
        marks = tf.range(tf.size(flat, tf.int64)) - tf.maximum(word_before + 1, row_start)
        space = tf.where(is_first | (marks > 0), "", " ")
        # In a run of marks every other one opens a line: from the first at the start of a text,
        # from the second after a word, whose line the first one ends.
        opens = self.opens_lines & ((marks + tf.cast(is_first, tf.int64)) % 2 == 1)
        word = tf.strings.join([space, tf.gather(self.symbols, flat)])
        return graph.joined(rows, tf.where(is_word, word, tf.where(opens, "", "\n")))
