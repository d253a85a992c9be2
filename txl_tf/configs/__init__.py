"""Configurations and what is valid in them: no TensorFlow."""
