"""Text to batches: tokenizers, preparation, shards and the reader. Independent of models.

Public modules: `prepare` (with `recipe` and `text.find`), `tokenizers`, `vocabulary`, `metadata`,
`batches`, `builtin_corpus`. Preparation is imported without TensorFlow, as worker processes do not
need it.
"""
