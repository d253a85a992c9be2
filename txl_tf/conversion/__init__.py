"""Weights of other implementations, by name and shape."""
