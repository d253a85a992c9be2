"""Inference: evaluation, scoring and generation."""
