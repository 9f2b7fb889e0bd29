"""What a benchmark of the store is asked for, checked as a whole: all faults at once."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from telemetry.model.durations import Duration
from tests.benchmarks.bench.window_option import read_window

DEFAULT_TURNS: Final = "10k,1M"
TURNS_MIN: Final = 300
TURNS_MAX: Final = 100_000_000
SHORTEST_WINDOW: Final = Duration.parse("500ms")
LONGEST_WINDOW: Final = Duration.parse("10m")
SPANS_PER_S_MAX: Final = 1_000_000
_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>[kM]?)", re.ASCII)
_UNITS: Final = {"": 1, "k": 1_000, "M": 1_000_000}


@dataclass(frozen=True, slots=True)
class StoreBenchOptions:
    """A benchmark of stores to run. `times` is how often each question is asked, `spans_per_s` the paced rate."""

    turns: tuple[int, ...]
    window_s: float
    spans_per_s: int
    times: int
    folder: Path | None
    json_file: Path | None
    markdown: bool


def checked(
    *,
    turns: str | None,
    window: str | None,
    spans_per_s: int,
    short: bool,
    folder: Path | None,
    json_file: Path | None,
    markdown: bool,
) -> StoreBenchOptions:
    """The options as a whole. Raises UsageError with one sentence for each fault."""
    faults: list[str] = []
    sizes = _sizes(turns if turns is not None else ("3k" if short else DEFAULT_TURNS), faults)
    lasts = read_window(
        window if window is not None else ("1s" if short else "10s"), SHORTEST_WINDOW, LONGEST_WINDOW, faults
    ).seconds
    if not 1 <= spans_per_s <= SPANS_PER_S_MAX:
        faults.append(f"--spans-per-s {spans_per_s}: give a number from 1 to {SPANS_PER_S_MAX:,}")
    if folder is not None and not folder.is_dir():
        faults.append(f"--folder {folder}: there is no such folder; make it or name another one")
    if json_file is not None and (fault := unwritable(json_file)):
        faults.append(f"--json {fault}")
    if faults:
        raise UsageError("\n".join(faults))
    return StoreBenchOptions(sizes, lasts, spans_per_s, 2 if short else 5, folder, json_file, markdown)


def _sizes(text: str, faults: list[str]) -> tuple[int, ...]:
    sizes: list[int] = []
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        size = int(match["number"]) * _UNITS[match["unit"]] if match is not None else 0
        if not TURNS_MIN <= size <= TURNS_MAX:
            faults.append(f"--turns {text}: give numbers from {TURNS_MIN} to 100M, such as 10k,1M")
            return ()
        sizes.append(size)
    return tuple(sorted(set(sizes)))
