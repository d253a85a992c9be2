"""Tokenizers that have learnt from texts."""

import prepared
from txl_tf.data import text, tokenizers


def tokenizer(kind, *contents, vocab_size=None, min_count=0, **options):
    """Returns one of any kind; sentencepiece learns from enough text to be of use."""
    if kind == "sentencepiece":
        vocab_size = vocab_size or 400
        contents = [*contents, prepared.text(20_000)]
    start = tokenizers.kind(kind).start(vocab_size=vocab_size, min_count=min_count, **options)
    if not isinstance(start, tokenizers.Learner):
        return start
    for content in contents:
        start.add(start.observe(text.Piece(content.encode())))
    return start.finish()
