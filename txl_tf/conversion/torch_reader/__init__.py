"""Reading of PyTorch files without PyTorch, and without executing their contents."""
