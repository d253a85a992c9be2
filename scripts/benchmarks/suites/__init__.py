"""What the benchmark program measures, one module a suite."""
