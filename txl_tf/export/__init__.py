"""Trained models for servers and devices."""
