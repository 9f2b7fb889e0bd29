"""How voice-to-voice went from run to run: the runs that were asked the same, in the order in which they began."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model.foreign_text import one_line
from telemetry.store.run_folders.entries import RunEntry

MOST_TRENDS: Final = 6
# A run that says nothing about the service, or not yet, is no point of a trend.
_UNFIT: Final = ("not judged", "damaged", "failed", "unreachable", "under way")


@dataclass(frozen=True, slots=True)
class RunTrend:
    """Runs against one target that had the same scenario, profile and callers, the oldest first."""

    label: str
    runs: tuple[RunEntry, ...]


@dataclass(frozen=True, slots=True)
class RunTrends:
    """The trends with the most runs; `left_out` is how many others there are, `unfit` how many runs are in none because
    nothing is claimed of them or they have too few turns for a p95."""

    shown: tuple[RunTrend, ...]
    left_out: int = 0
    unfit: int = 0


def run_trends(entries: Sequence[RunEntry]) -> RunTrends:
    """The trends of at least two runs."""
    fit = [each for each in entries if each.state not in _UNFIT and each.p95_ns is not None and each.began_unix_ns]
    groups: defaultdict[str, list[RunEntry]] = defaultdict(list)
    for each in sorted(fit, key=lambda entry: entry.began_unix_ns or 0):
        groups[_label(each)].append(each)
    several = sorted(
        (RunTrend(label, tuple(runs)) for label, runs in groups.items() if len(runs) > 1),
        key=lambda trend: (-len(trend.runs), trend.label),
    )
    return RunTrends(tuple(several[:MOST_TRENDS]), len(several[MOST_TRENDS:]), len(entries) - len(fit))


def _label(each: RunEntry) -> str:
    parts = (
        each.target,
        each.scenario,
        each.profile,
        None if each.users is None else f"{each.users} callers",
    )
    return " · ".join(one_line(part, 60) for part in parts if part) or "not said"
