"""The viewer's selection, and its one form in a link: `?run=…&cohort=…&window=…` and so on. Pure.

The page's widgets read and write a selection, a link carries it, and the store receives it as a question. None means
any.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self, get_args
from urllib.parse import urlencode

from telemetry.model.formatting import NS_PER_MS, NS_PER_S
from telemetry.model.metrics import HEADLINE
from telemetry.model.semconv import LENGTH_CLASSES, ROUTES
from telemetry.model.turns import DIMENSIONS
from telemetry.objectives.objective import Objective
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import FunnelPoint, LoggedVerdict, RolloutProgress
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.questions.pages import NEWEST, PageQuestion, ViewQuestion, window_of
from telemetry.store.questions.turns import MOST_CHARS, MOST_PAGED, ORDERS, PAGE_SIZES, TurnSearch, TurnsQuestion
from telemetry.store.run_folders.entries import EntryState, RunEntry, RunFilter

# The names of times in a link with their lengths in s, and their labels; a page offers some of them.
_TIMES: Final = (
    *(("1m", 60, "last minute"), ("5m", 300, "last 5 min"), ("15m", 900, "last 15 min"), ("1h", 3600, "last hour")),
    *(("1d", 86_400, "last day"), ("7d", 604_800, "last 7 days"), ("28d", 2_419_200, "last 28 days")),
    ("90d", 7_776_000, "last 90 days"),
)
TIMES_S: Final = {name: seconds for name, seconds, _ in _TIMES}
WHOLE: Final = "whole"
TIME_LABELS: Final = {name: label for name, _, label in _TIMES} | {NEWEST: "last hour", WHOLE: "whole run"}
WINDOWS: Final = ("1m", "5m", "15m", "1h")
LOOKS: Final = ("1h", "1d", "7d")
BEGAN: Final = ("1d", "7d", "28d", "90d")
# The dimension of the turns, among those of the store, that each choice of a value is about.
DIMENSION_OF: Final[dict[str, str]] = {
    dimension.name: dimension.field
    for dimension in DIMENSIONS
    if "choice" in dimension.uses and dimension.field is not None
}
_NUMBERS: Final = ("from_ms", "below_ms", "since_s", "until_s", "at_page", "rows")
_LARGEST: Final = 10**12
_STATES: Final[tuple[str, ...]] = get_args(EntryState)
_CALLERS: Final = re.compile("0|[1-9][0-9]{0,8}")
# The values of a parameter that has a fixed list of them.
_ALLOWED: Final[dict[str, Sequence[str]]] = {
    "length": LENGTH_CLASSES,
    "route": ROUTES,
    "window": (*WINDOWS, NEWEST, WHOLE),
    "order": tuple(ORDERS),
    "began": BEGAN,
    "state": _STATES,
    "looks": LOOKS,
    "decision": get_args(Decision),
}


class LinkChoice:
    """A choice as parameters of a link, one for each field of the dataclass that derives from it."""

    __slots__ = ()

    @classmethod
    def of(cls, link: Mapping[str, str]) -> tuple[Self, list[str]]:
        """Read a selection from a link. An invalid value is left out and reported in a sentence."""
        faults: list[str] = []
        chosen: dict[str, Any] = {}
        for name in cls.names():
            if not (value := link.get(name)):
                continue
            values = _ALLOWED.get(name)
            fault = _fault_of(name, value) if values is None or value in values else f"not one of {', '.join(values)}"
            if fault is None:
                chosen[name] = int(value) if name in _NUMBERS else value[:MOST_CHARS] if name == "find" else value
            else:
                faults.append(f"the link asks for {name} {value!r:.60}, {fault}: left out")
        return cls(**chosen), faults

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The parameters in a link."""
        kind: Any = cls
        return tuple(field.name for field in fields(kind))

    def query(self, names: Iterable[str] = ()) -> dict[str, str]:
        """The parameters of a link that select something, all or those with the given names."""
        values = {name: getattr(self, name) for name in names or self.names()}
        return {name: str(value) for name, value in values.items() if value is not None}


def _fault_of(name: str, value: str) -> str | None:
    """Return the fault of a value of a parameter that is not chosen from a fixed list; None if it is valid."""
    if name == "callers" and not _CALLERS.fullmatch(value):
        return "which is not a number of callers"
    if name not in _NUMBERS:
        return None
    digits = value.removeprefix("-") if name == "from_ms" else value
    if not (digits.isascii() and digits.isdigit() and len(digits) < 13 and int(digits) <= _LARGEST):
        return "not a whole number"
    if name == "rows" and int(value) not in PAGE_SIZES:
        return f"not one of {', '.join(map(str, PAGE_SIZES))}"
    return "too large" if name == "at_page" and int(value) > MOST_PAGED else None


@dataclass(frozen=True, slots=True)
class Choice(LinkChoice):
    """The selection of turns: None means any (of phases: any but ramps). A run of None is the newest one, a window of
    None the newest hour of a longer run, and a store of None the named one, or that of the newest run."""

    run: str | None = None
    cohort: str | None = None
    phase: str | None = None
    noise: str | None = None
    length: str | None = None
    route: str | None = None
    window: str | None = None
    store: str | None = None

    def question(self, objectives: Sequence[Objective], metric: str = HEADLINE) -> PageQuestion:
        """The question of the Now page to the store, with the metric that it draws over time."""
        asked = self.view(objectives)
        return PageQuestion(asked.filter, asked.window_ns, asked.objectives, metric, with_cause=True)

    def view(self, objectives: Sequence[Objective] = ()) -> ViewQuestion:
        """The turns that a page shows; a window ends at the run's newest turn, not at the current time."""
        dimensions = {dimension: getattr(self, name) for name, dimension in DIMENSION_OF.items()}
        seconds = TIMES_S.get(self.window or "")
        window = None if self.window == WHOLE else NEWEST if seconds is None else seconds * NS_PER_S
        return ViewQuestion(Filter(run_id=self.run, **dimensions), window, tuple(objectives))

    def link(self, page: str = "", **more: str) -> str:
        """A link relative to the dashboard's root."""
        query = urlencode({**self.query(), **more})
        return f"{page}?{query}" if query else page or "./"

    @property
    def narrows(self) -> bool:
        """Whether it leaves out turns of the run."""
        return bool(self.query(DIMENSION_OF)) or self.window in (*WINDOWS, NEWEST)

    def window_shown(self, run: RunRecord | None) -> str | None:
        """The name of the window that a page shows of a run, None for all of it."""
        if self.window not in (None, NEWEST):
            return None if self.window == WHOLE else self.window
        return None if run is None or window_of(run, NEWEST) is None else NEWEST


@dataclass(frozen=True, slots=True)
class TurnsChoice(LinkChoice):
    """Latencies in ms; `since_s` and `until_s` bound when turns began, in Unix seconds. `at_page` counts from 0."""

    find: str | None = None
    outcome: str | None = None
    model: str | None = None
    from_ms: int | None = None
    below_ms: int | None = None
    since_s: int | None = None
    until_s: int | None = None
    order: str | None = None
    at_page: int | None = None
    rows: int | None = None

    def question(self, choice: Choice) -> TurnsQuestion:
        """The question of the page to the store."""

        def in_ns(value: int | None, unit_ns: int) -> int | None:
            return None if value is None else value * unit_ns

        latencies, moments = (self.from_ms, self.below_ms), (self.since_s, self.until_s)
        limits = [
            *(in_ns(latency, NS_PER_MS) for latency in latencies),
            *(in_ns(moment, NS_PER_S) for moment in moments),
        ]
        asked = choice.view()
        return TurnsQuestion(
            filter=asked.filter,
            window_ns=asked.window_ns if self.since_s is None else None,
            search=TurnSearch(self.find or "", self.outcome, self.model, *limits),
            order=self.order or next(iter(ORDERS)),
            page=self.at_page or 0,
            page_size=self.rows or PAGE_SIZES[0],
        )


@dataclass(frozen=True, slots=True)
class RunsChoice(LinkChoice):
    """The filter of the list of runs."""

    began: str | None = None
    cohort: str | None = None
    target: str | None = None
    state: str | None = None
    profile: str | None = None
    scenario: str | None = None
    callers: str | None = None
    protocol: str | None = None

    def filter(self, now_unix_ns: int) -> RunFilter:
        """The filter at the current time."""
        same = {name: getattr(self, name) for name in self.names() if name not in ("began", "callers")}
        since_unix_ns = None if self.began is None else now_unix_ns - TIMES_S[self.began] * NS_PER_S
        return RunFilter(since_unix_ns, users=None if self.callers is None else int(self.callers), **same)


def values_of(runs: Iterable[RunEntry]) -> dict[str, tuple[str, ...]]:
    """The values to choose from, by the name in a link."""
    runs = list(runs)
    states, users = {run.state for run in runs}, {run.users for run in runs if run.users is not None}
    texts = {
        name: tuple(sorted({value for run in runs if (value := getattr(run, name))}))
        for name in ("target", "profile", "scenario", "protocol")
    }
    return {
        **texts,
        "began": BEGAN,
        "cohort": tuple(sorted({cohort for run in runs for cohort in run.cohorts or () if cohort})),
        "state": tuple(state for state in _STATES if state in states),
        "callers": tuple(map(str, sorted(users))),
    }


@dataclass(frozen=True, slots=True)
class RolloutChoice(LinkChoice):
    """The selection of looks of a rollout: a rollout of None is the one with the newest entry. The period `looks` ends
    at the newest look."""

    rollout: str | None = None
    looks: str | None = None
    at_stage: str | None = None
    decision: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether it leaves out looks of the rollout."""
        return any((self.looks, self.at_stage, self.decision))

    def narrowed(self, progress: RolloutProgress) -> RolloutProgress:
        """The progress with only the selected looks."""
        since_unix_ns = 0 if self.looks is None else progress.newest.at_unix_ns - TIMES_S[self.looks] * NS_PER_S

        def is_meant(look: FunnelPoint | LoggedVerdict) -> bool:
            is_of = self.at_stage in (None, look.stage) and self.decision in (None, look.decision)
            return is_of and look.at_unix_ns >= since_unix_ns

        funnel = replace(progress.funnel, points=tuple(filter(is_meant, progress.funnel.points)))
        return replace(progress, funnel=funnel, changes=tuple(filter(is_meant, progress.changes)))
