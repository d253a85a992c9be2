"""Conversion of other implementations' weights, by name and shape."""
