"""Text to batches: tokenizers, preparation, shards and the reader. Knows nothing of models.

Public modules: `prepare` (with `recipe` and `text.find`), `tokenizers`, `vocabulary`, `metadata`,
`batches`, `builtin_corpus`. What prepares text is imported without TensorFlow, which worker
processes do not need.
"""
