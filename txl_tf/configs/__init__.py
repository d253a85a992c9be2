"""Configurations and their validation. No TensorFlow."""
