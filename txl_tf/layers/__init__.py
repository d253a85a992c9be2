"""What surrounds the attention cores: embedding, blocks, softmax."""
