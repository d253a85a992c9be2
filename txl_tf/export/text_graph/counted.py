"""What tokenizers with a counted vocabulary do to text in a graph, before they take it apart."""

import tensorflow as tf

from txl_tf.data.tokenizers import counted
from txl_tf.export.text_graph import graph, lower_case

_OPEN_END = r"([^\n])\z"


class CountedGraph(graph.TextGraph):
    """`CountedTokenizer` in a graph: text is normalised, then each symbol looked up in a table."""

    def __init__(self, tokenizer: counted.CountedTokenizer):
        super().__init__(tokenizer)
        self.marks = tokenizer.marks
        self.drop_blank_lines = tokenizer.blank_lines == "drop"
        self.refuses_unknown = tokenizer.unknown == "error"
        self.fallback = -1 if self.refuses_unknown else tokenizer.unknown_id
        self.spaces = "".join(rf"\x{{{ord(c):x}}}" for c in tokenizer.spaces)  # RE2's \s is ASCII
        self.lower_case = lower_case.LowerCase() if tokenizer.lower_case else tf.identity

    def normalise(self, text, complete: bool):
        """[B] -> [B]: `text.decode`, then `CountedTokenizer.normalise` for a start of line."""
        text = self.lower_case(graph.read(text))
        if self.drop_blank_lines:
            end = r"(?:\n|\z)" if complete else r"\n"
            within = self.spaces.replace(r"\x{a}", "")
            text = tf.strings.regex_replace(text, f"(?m)^[{within}]*{end}", "")
        return text

    def ended(self, text, complete: bool):
        """[B] -> [B]: `CountedTokenizer.ended` for a start of line."""
        if not (self.marks and complete):
            return text
        return tf.strings.regex_replace(text, _OPEN_END, "\\1\n")

    def table(self, symbols, ids) -> tf.lookup.StaticHashTable:
        """Looks up ids, `fallback` where there is none."""
        contents = tf.lookup.KeyValueTensorInitializer(symbols, tf.constant(ids, tf.int32))
        return tf.lookup.StaticHashTable(contents, self.fallback)
