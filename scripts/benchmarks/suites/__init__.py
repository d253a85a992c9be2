"""Suites of the benchmark program, one module each."""
