"""Taste and types are executable: ruff and pyright over the whole tree, with what they say when they object."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "--output-format", "concise", "--no-cache", "."],
        ["ruff", "format", "--check", "--diff", "--no-cache", "."],
        pytest.param(["pyright", "--pythonpath", sys.executable], marks=pytest.mark.slow),
    ],
    ids=["ruff check", "ruff format", "pyright"],
)
def test_the_tree_passes(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    if result.returncode:
        pytest.fail(f"{' '.join(command)}:\n{result.stdout[-8000:]}\n{result.stderr[-2000:]}", pytrace=False)
