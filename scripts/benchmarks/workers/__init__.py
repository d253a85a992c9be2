"""Processes that the suites ask for work."""
