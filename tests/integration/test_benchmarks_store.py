"""Tests that the benchmarks of known items and of compaction print plausible figures for a small store."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _printed(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", *arguments]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    print(completed.stdout)
    return json.loads(completed.stdout)


@pytest.mark.slow
def test_known_items_are_found() -> None:
    figures = _printed("tests.benchmarks.known_items", "--commits", "20", "--rows", "200")
    assert [case["late_s"] for case in figures["cases"]] == [1.0, 10.0, 60.0]
    for case in figures["cases"]:
        assert min(case["new_us"], case["again_from_memory_us"], case["again_from_segments_us"]) > 0
        assert case["segments"] == 1 + 20 % 16


@pytest.mark.slow
def test_segments_are_merged() -> None:
    figures = _printed("tests.benchmarks.compaction", "--commits", "17", "--turns", "20")
    spans_of_a_turn = 3
    assert figures["rows"] == 17 * 20 * (1 + spans_of_a_turn)
    assert figures["segments"] == {"turns": 2, "spans": 2, "points": 0}
    assert figures["merged_per_row"] == round(16 / 17, 2)
    assert 0 < figures["store_bytes_per_row"] < figures["committed_bytes_per_row"]
