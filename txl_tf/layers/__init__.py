"""Layers around the attention cores: embedding, blocks, softmax."""
