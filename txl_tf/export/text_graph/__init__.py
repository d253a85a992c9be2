"""Tokenizers inside TensorFlow graphs, by kind: they go with an export and need no Python there."""

from txl_tf.data import tokenizers
from txl_tf.export.text_graph.byte import ByteGraph
from txl_tf.export.text_graph.char import CharGraph
from txl_tf.export.text_graph.graph import TextGraph
from txl_tf.export.text_graph.sentencepiece import SentencePieceGraph
from txl_tf.export.text_graph.word import WordGraph

__all__ = [
    "GRAPHS",
    "ByteGraph",
    "CharGraph",
    "SentencePieceGraph",
    "TextGraph",
    "WordGraph",
    "of",
]

GRAPHS: dict[str, type[TextGraph]] = {
    "byte": ByteGraph,
    "char": CharGraph,
    "word": WordGraph,
    "sentencepiece": SentencePieceGraph,
}


def of(tokenizer: tokenizers.Tokenizer) -> TextGraph:
    """The same tokenizer, for graphs."""
    return GRAPHS[tokenizer.kind](tokenizer)
