"""Starts benchmarks.run."""

from benchmarks import run

if __name__ == "__main__":
    run.run()
