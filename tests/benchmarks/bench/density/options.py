"""What a comparison of wires is asked for, checked as a whole: all faults at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from telemetry.model.durations import Duration
from tests.benchmarks.bench.density.windows import Sizes
from tests.benchmarks.bench.density.wires import WIRES
from tests.benchmarks.bench.window_option import read_window

CALLERS_MAX: Final = 2000
ROUNDS_MAX: Final = 1000
SHORTEST_WINDOW: Final = Duration.parse("50ms")
LONGEST_WINDOW: Final = Duration.parse("1m")
DEFAULT_ROUNDS: Final = 9


@dataclass(frozen=True, slots=True)
class DensityOptions:
    """A comparison to run."""

    wires: tuple[str, ...]
    sizes: Sizes
    rounds: int
    json_file: Path | None
    markdown: bool


def checked(
    *,
    wires: str | None,
    callers: int | None,
    rounds: int | None,
    window: str | None,
    short: bool,
    json_file: Path | None,
    markdown: bool,
) -> DensityOptions:
    """The options as a whole. Raises UsageError with one sentence for each fault."""
    faults: list[str] = []
    callers = callers if callers is not None else (20 if short else 100)
    rounds = rounds if rounds is not None else (1 if short else DEFAULT_ROUNDS)
    if not 1 <= callers <= CALLERS_MAX:
        faults.append(f"--callers {callers}: give a number from 1 to {CALLERS_MAX:,}")
    if not 1 <= rounds <= ROUNDS_MAX:
        faults.append(f"--rounds {rounds}: give a number from 1 to {ROUNDS_MAX:,}")
    names = _named(wires, faults)
    window_s = read_window(
        window if window is not None else ("100ms" if short else "300ms"), SHORTEST_WINDOW, LONGEST_WINDOW, faults
    ).seconds
    if json_file is not None and (fault := unwritable(json_file)):
        faults.append(f"--json {fault}")
    if faults:
        raise UsageError("\n".join(faults))
    return DensityOptions(names, Sizes(callers, 0.05 if short else 0.15, window_s), rounds, json_file, markdown)


def _named(text: str | None, faults: list[str]) -> tuple[str, ...]:
    known = tuple(wire.name for wire in WIRES)
    if text is None:
        return known
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        what = f"{', '.join(unknown)} is unknown" if unknown else "it names nothing"
        faults.append(f"--wires {text}: {what}; give one or more of {','.join(known)}")
    return tuple(name for name in known if name in wanted)
