"""Reads PyTorch files without PyTorch, and without running what is in them."""
