"""Normalisation and lookup of tokenizers with a counted vocabulary, in a graph."""

import tensorflow as tf

from txl_tf.data.tokenizers import counted
from txl_tf.export.text_graph import graph, lower_case

_OPEN_END = r"([^\n])\z"


class CountedGraph(graph.TextGraph):
    """`CountedTokenizer` in a graph: normalisation, then table lookup of each symbol."""

    def __init__(self, tokenizer: counted.CountedTokenizer):
        super().__init__(tokenizer)
        self.marks = tokenizer.marks
        self.drop_blank_lines = tokenizer.blank_lines == "drop"
        self.refuses_unknown = tokenizer.unknown == "error"
        self.fallback = -1 if self.refuses_unknown else tokenizer.unknown_id
        self.spaces = "".join(rf"\x{{{ord(c):x}}}" for c in tokenizer.spaces)  # RE2's \s is ASCII
        self.lower_case = lower_case.LowerCase() if tokenizer.lower_case else tf.identity

    def normalise(self, text, complete: bool):
        """[B] -> [B]: `text.decode` and `CountedTokenizer.normalise`, at the start of a line."""
        text = self.lower_case(graph.read(text))
        if self.drop_blank_lines:
            end = r"(?:\n|\z)" if complete else r"\n"
            within = self.spaces.replace(r"\x{a}", "")
            text = tf.strings.regex_replace(text, f"(?m)^[{within}]*{end}", "")
        return text

    def ended(self, text, complete: bool):
        """[B] -> [B]: `CountedTokenizer.ended`, at the start of a line."""
        if not (self.marks and complete):
            return text
        return tf.strings.regex_replace(text, _OPEN_END, "\\1\n")

    def table(self, symbols, ids) -> tf.lookup.StaticHashTable:
        """Returns a table of ids, with `fallback` for other symbols."""
        contents = tf.lookup.KeyValueTensorInitializer(symbols, tf.constant(ids, tf.int32))
        return tf.lookup.StaticHashTable(contents, self.fallback)
