"""Which runs a viewer chose to see on the Runs page, and its form in a link: `runs?began=…&cohort=…&target=…&state=…`.

Pure. `cohort` means the same as on the other pages. When a run began has a name of its own: their `window` ends with
the newest turn of one run, this time with the clock.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final, get_args

from dashboard.filters import read_link
from telemetry.model.formatting import NS_PER_S
from telemetry.store.run_folders.entries import EntryState, RunEntry, RunFilter

_DAY_NS: Final = 24 * 3_600 * NS_PER_S
BEGAN_NS: Final[dict[str, int]] = {"1d": _DAY_NS, "7d": 7 * _DAY_NS, "28d": 28 * _DAY_NS, "90d": 90 * _DAY_NS}
BEGAN_LABELS: Final[dict[str, str]] = {
    "1d": "last day",
    "7d": "last 7 days",
    "28d": "last 28 days",
    "90d": "last 90 days",
}
STATES: Final[tuple[str, ...]] = get_args(EntryState)


@dataclass(frozen=True, slots=True)
class RunsChoice:
    """None means any."""

    began: str | None = None
    cohort: str | None = None
    target: str | None = None
    state: str | None = None
    profile: str | None = None
    scenario: str | None = None
    callers: str | None = None
    protocol: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether it can leave out runs."""
        return any(getattr(self, each.name) is not None for each in fields(self))

    def filter(self, now_unix_ns: int) -> RunFilter:
        """The runs that are meant at this moment."""
        return RunFilter(
            since_unix_ns=None if self.began is None else now_unix_ns - BEGAN_NS[self.began],
            cohort=self.cohort,
            target=self.target,
            state=self.state,
            profile=self.profile,
            scenario=self.scenario,
            protocol=self.protocol,
            users=None if self.callers is None else int(self.callers),
        )


_ALLOWED: Final[dict[str, tuple[str, ...]]] = {"began": tuple(BEGAN_NS), "state": STATES}
_CALLERS: Final = re.compile("0|[1-9][0-9]{0,8}")
NAMES: Final = tuple(each.name for each in fields(RunsChoice))


def runs_choice_of(query: Mapping[str, str]) -> tuple[RunsChoice, list[str]]:
    """Read a link. A value that cannot be meant is left out, with a sentence that says so."""
    chosen, faults = read_link(query, NAMES, _ALLOWED)
    if (callers := chosen.get("callers")) is not None and not _CALLERS.fullmatch(callers):
        del chosen["callers"]
        faults.append(f"the link asks for callers {callers!r:.60}, which is not a number of callers: left out")
    return RunsChoice(**chosen), faults


def values_of(runs: Iterable[RunEntry]) -> dict[str, tuple[str, ...]]:
    """What there is to choose from, by the name in a link."""
    runs = list(runs)

    def texts(value: Callable[[RunEntry], str | None]) -> tuple[str, ...]:
        return tuple(sorted({found for each in runs if (found := value(each))}))

    states = {each.state for each in runs}
    return {
        "began": tuple(BEGAN_NS),
        "cohort": tuple(sorted({cohort for each in runs for cohort in each.cohorts or () if cohort})),
        "target": texts(lambda each: each.target),
        "state": tuple(state for state in STATES if state in states),
        "profile": texts(lambda each: each.profile),
        "scenario": texts(lambda each: each.scenario),
        "callers": tuple(map(str, sorted({each.users for each in runs if each.users is not None}))),
        "protocol": texts(lambda each: each.protocol),
    }
