"""The flags of `python -m tests.benchmarks.bench store` are checked as a whole."""

from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from tests.benchmarks.bench.store.options import StoreBenchOptions, checked

DEFAULTS: dict[str, Any] = {
    "turns": None,
    "window": None,
    "spans_per_s": 10_000,
    "short": False,
    "folder": None,
    "json_file": None,
    "markdown": False,
}


def options(**given: object) -> StoreBenchOptions:
    return checked(**{**DEFAULTS, **given})


def test_sizes_have_units_and_stand_in_order() -> None:
    assert options().turns == (10_000, 1_000_000)
    assert options(turns="10M, 500,10k,500").turns == (500, 10_000, 10_000_000)
    assert options(short=True).turns == (3_000,)
    assert options(short=True, turns="1M").turns == (1_000_000,)
    assert options(short=True).window_s < options().window_s


@pytest.mark.parametrize("turns", ["", "x", "-1", "299", "1.5M", "10m", "101M", "10k,", "१k"])
def test_a_size_that_is_none_is_a_fault(turns: str) -> None:
    with pytest.raises(UsageError, match="--turns"):
        options(turns=turns)


def test_faults_are_found_together(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as found:
        options(
            turns="x", window="1h", spans_per_s=0, folder=tmp_path / "missing", json_file=tmp_path / "file" / "a.json"
        )
    lines = str(found.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["--turns", "--window", "--spans-per-s", "--folder", "--json"]
