"""Runs the benchmark: `python -m tests.benchmarks.bench`."""

import sys

from loadtest.cli.guard import guarded
from tests.benchmarks.bench.command import bench

if __name__ == "__main__":
    sys.exit(guarded(bench))
