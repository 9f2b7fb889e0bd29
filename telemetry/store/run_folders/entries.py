"""A run in the list of runs, the filter of the list, and trends over several runs. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from telemetry.model.foreign_text import one_line

# met, missed, undecided: by its objectives. not judged: the load generator was the limit. damaged: nothing of it can be
# read, the fault says why.
EntryState = Literal[
    "under way", "met", "missed", "undecided", "not judged", "unreachable", "interrupted", "failed", "damaged"
]
SERVICE_SOURCE: Final = "service"
# By the objectives alone; what else a command says of how its run ended, objectives do not change.
_BY_OBJECTIVES: Final = ("met", "missed", "undecided", "not judged")


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `store` is the folder of its store or the address of a sidecar, `folder` the run's own folder with its
    `name`, None where it shares a store with others. Percentiles are of voice-to-voice, in ns, over the answered turns.

    `is_generator_limited` says that its figures claim nothing about the service, which "not judged" may be for other
    reasons. `cohorts` are those that occur in its turns, `missing_turns` how many of its turns did not arrive, and
    `calibrated_to_ms` the bound of the instrument's own error; each is None where that is not known. `stored_unix_ns`
    is by the store's clock, `began_unix_ns` by that of the sender. `fault` says what of it cannot be read.
    """

    run_id: str
    store: str
    state: EntryState
    folder: str | None = None
    name: str = ""
    began_unix_ns: int | None = None
    target: str | None = None
    protocol: str | None = None
    source: str = "client"
    users: int | None = None
    scenario: str | None = None
    profile: str | None = None
    turns: int = 0
    invalid: int = 0
    p50_ns: float | None = None
    p95_ns: float | None = None
    p99_ns: float | None = None
    wer: float | None = None
    sentence: str = ""
    note: str | None = None
    fault: str | None = None
    is_generator_limited: bool = False
    cohorts: tuple[str, ...] | None = None
    missing_turns: int | None = None
    calibrated_to_ms: float | None = None
    stored_unix_ns: int | None = None

    @property
    def listed_unix_ns(self) -> int:
        """The time that orders the list: the start, but at most the time at which its newest turn was stored."""
        began = self.began_unix_ns or 0
        return began if self.stored_unix_ns is None else min(began, self.stored_unix_ns)

    @property
    def title(self) -> str:
        """The title: the name of its folder, and the run if that is another name."""
        return self.run_id if self.name in ("", self.run_id) else f"{self.name} ({self.run_id})"

    @property
    def is_empty(self) -> bool:
        """Whether its target could not be reached before the first call, so that nothing is stored."""
        return self.state == "unreachable" and not self.turns

    @property
    def reference(self) -> str:
        """The name for a command line, from any folder: `STORE#RUN`."""
        return f"{self.store}#{self.run_id}"


def missing_turns(emitted: int | None, missing: int) -> int | None:
    """Return how many turns did not arrive; None if no gap is seen and no process reported how many it sent."""
    return missing if missing or emitted is not None else None


def rejudged(summed: RunEntry, stored: RunEntry | None) -> RunEntry:
    """The run of a summary with the verdict on its stored turns by other objectives than its own; a missing `stored` is
    a fault."""
    if summed.state not in _BY_OBJECTIVES:
        return summed
    if stored is None:
        return msgspec.structs.replace(summed, fault="judged by its own objectives: its turns are not in this store")
    if stored.state not in _BY_OBJECTIVES:
        return summed
    return msgspec.structs.replace(summed, state=stored.state, sentence=stored.sentence, fault=None)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """A filter of runs; None means any. A run with an unknown value does not match a filter on it."""

    since_unix_ns: int | None = None  # inclusive, of the moment when a run began
    cohort: str | None = None  # that occurs in the run, next to others or not
    target: str | None = None
    state: str | None = None
    profile: str | None = None
    scenario: str | None = None
    protocol: str | None = None
    users: int | None = None

    def matches(self, run: RunEntry) -> bool:
        """Return whether a run matches."""
        if self.since_unix_ns is not None and (run.began_unix_ns is None or run.began_unix_ns < self.since_unix_ns):
            return False
        if self.cohort is not None and self.cohort not in (run.cohorts or ()):
            return False
        names = ("target", "state", "profile", "scenario", "protocol", "users")
        return all(getattr(self, name) in (None, getattr(run, name)) for name in names)


def narrowed(runs: Iterable[RunEntry], f: RunFilter) -> list[RunEntry]:
    """The runs that match, in their order."""
    return [run for run in runs if f.matches(run)]


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
    they have no verdict or too few turns for a p95."""

    shown: tuple[RunTrend, ...]
    left_out: int = 0
    unfit: int = 0


def run_trends(entries: Sequence[RunEntry]) -> RunTrends:
    """The trends of at least two runs."""
    fit = [entry for entry in entries if entry.state not in _UNFIT and entry.p95_ns is not None and entry.began_unix_ns]
    groups: defaultdict[str, list[RunEntry]] = defaultdict(list)
    for entry in sorted(fit, key=lambda entry: entry.began_unix_ns or 0):
        groups[_label(entry)].append(entry)
    several = sorted(
        (RunTrend(label, tuple(runs)) for label, runs in groups.items() if len(runs) > 1),
        key=lambda trend: (-len(trend.runs), trend.label),
    )
    return RunTrends(tuple(several[:MOST_TRENDS]), len(several[MOST_TRENDS:]), len(entries) - len(fit))


def _label(entry: RunEntry) -> str:
    parts = (
        entry.target,
        entry.scenario,
        entry.profile,
        None if entry.users is None else f"{entry.users} callers",
    )
    return " · ".join(one_line(part, 60) for part in parts if part) or "not said"
