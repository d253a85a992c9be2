"""Tokenizers as TensorFlow graphs, by kind: part of an export, without Python."""

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
    "from_tokenizer",
]

GRAPHS: dict[str, type[TextGraph]] = {
    "byte": ByteGraph,
    "char": CharGraph,
    "word": WordGraph,
    "sentencepiece": SentencePieceGraph,
}


def from_tokenizer(tokenizer: tokenizers.Tokenizer) -> TextGraph:
    """Returns the graph form of a tokenizer."""
    return GRAPHS[tokenizer.kind](tokenizer)
