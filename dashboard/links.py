"""What a viewer chose to see, and its one form in a link: `?run=…&cohort=…&phase=…&noise=…&length=…&route=…&window=…`,
and `&store=…` where there are several.

Pure: the page's widgets read and write a `Choice`, a link carries it, and the store gets it as a `Filter`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, get_args
from urllib.parse import urlencode

from telemetry.model.formatting import NS_PER_MS, NS_PER_S
from telemetry.model.metrics import HEADLINE
from telemetry.model.semconv import LENGTH_CLASSES, ROUTES
from telemetry.objectives.objective import Objective
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import FunnelPoint, LoggedVerdict, RolloutProgress
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.questions.pages import PageQuestion, ViewQuestion
from telemetry.store.questions.runs import newest_run
from telemetry.store.questions.turns import MOST_CHARS, MOST_PAGED, ORDERS, PAGE_SIZES, TurnSearch, TurnsQuestion
from telemetry.store.run_folders.entries import EntryState, RunEntry, RunFilter

WINDOWS_S: Final[dict[str, int]] = {"1m": 60, "5m": 300, "15m": 900, "1h": 3600, "newest": 3600}
WINDOW_LABELS: Final[dict[str, str]] = {
    "1m": "last minute",
    "5m": "last 5 min",
    "15m": "last 15 min",
    "1h": "last hour",
    "newest": "last hour",
    "whole": "whole run",
}
# What a page shows of a run unless something else is chosen: of a longer one its newest hour, else all of it.
NEWEST: Final = "newest"
NEWEST_NS: Final = 3600 * NS_PER_S
WHOLE: Final = "whole"


@dataclass(frozen=True, slots=True)
class Choice:
    """None means any (of phases: any but ramps); a run of None is the newest one, whichever that is at the time, and a
    window of None is `window_of`."""

    run: str | None = None
    cohort: str | None = None
    phase: str | None = None
    noise: str | None = None
    length: str | None = None
    route: str | None = None
    window: str | None = None
    store: str | None = None  # of several that are shown; None: the one that was named, or the newest run's

    def question(self, objectives: Sequence[Objective], metric: str = HEADLINE) -> PageQuestion:
        """What the Now page asks of the store, with the metric that it draws over time."""
        asked = self.view(objectives)
        return PageQuestion(
            filter=asked.filter,
            window_ns=asked.window_ns,
            metric=metric,
            objectives=asked.objectives,
            with_timeline=False,
            with_cause=True,
        )

    def view(self, objectives: Sequence[Objective] = ()) -> ViewQuestion:
        """Which turns a page is about; a window ends with the run's newest turn, not with the clock."""
        return ViewQuestion(
            filter=Filter(
                run_id=self.run,
                cohort=self.cohort,
                phase=self.phase,
                noise_profile=self.noise,
                length_class=self.length,
                route=self.route,
            ),
            window_ns=WINDOWS_S[self.window] * NS_PER_S if self.window in WINDOWS_S else None,
            objectives=tuple(objectives),
        )

    def query(self) -> dict[str, str]:
        """The parameters of a link to this view."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}

    def link(self, page: str = "", **more: str) -> str:
        """A link relative to the dashboard's root."""
        query = urlencode({**self.query(), **more})
        return f"{page}?{query}" if query else page or "./"

    @property
    def narrows(self) -> bool:
        """Whether it leaves out turns of the run."""
        return any((self.cohort, self.phase, self.noise, self.length, self.route, self.window in WINDOWS_S))


# The dimension of the turns, among those of the store, that each choice of a value is about.
DIMENSION_OF: Final[dict[str, str]] = {
    "cohort": "cohort",
    "phase": "phase",
    "noise": "noise_profile",
    "length": "length_class",
    "route": "route",
}
ALLOWED: Final[dict[str, tuple[str, ...]]] = {"length": LENGTH_CLASSES, "route": ROUTES, "window": (*WINDOWS_S, WHOLE)}


def window_of(choice: Choice, run: RunRecord | None) -> str | None:
    """Which of its windows a page shows of a run, by name, None for all of it: the one that was chosen, else the newest
    hour of a run that is longer."""
    if choice.window not in (None, NEWEST):
        return choice.window if choice.window in WINDOWS_S else None
    is_longer = run is not None and run.reached_unix_ns - run.first_unix_ns > NEWEST_NS
    return NEWEST if is_longer else None


def with_default_window(link: Mapping[str, str], runs: Callable[[], Sequence[RunRecord]]) -> Mapping[str, str]:
    """The link with the window that it leaves open, by the runs of the store, which are asked for only then."""
    choice, _ = choice_of(link)
    if choice.window is not None:
        return link
    known = runs()
    run = newest_run(known) if choice.run is None else next((each for each in known if each.run_id == choice.run), None)
    window = window_of(choice, run)
    return link if window is None else {**link, "window": window}


def choice_of(query: Mapping[str, str]) -> tuple[Choice, list[str]]:
    """Read a link. A value that cannot be meant is left out, with a sentence that says so."""
    chosen, faults = read_link(query, [each.name for each in fields(Choice)], ALLOWED)
    return Choice(**chosen), faults


def read_link(
    query: Mapping[str, str],
    names: Iterable[str],
    allowed: Mapping[str, Sequence[str]] | None = None,
    fault_of: Callable[[str, str], str | None] = lambda _name, _value: None,
) -> tuple[dict[str, str], list[str]]:
    """The values that a link gives for parameters, without those that are not allowed, and a sentence on each of
    these."""
    faults: list[str] = []
    chosen: dict[str, str] = {}
    for name in names:
        if not (value := query.get(name)):
            continue
        values = (allowed or {}).get(name)
        fault = fault_of(name, value) if values is None or value in values else f"not one of {', '.join(values)}"
        if fault is None:
            chosen[name] = value
        else:
            faults.append(f"the link asks for {name} {value!r:.60}, {fault}: left out")
    return chosen, faults


_NUMBERS: Final = ("from_ms", "below_ms", "since_s", "until_s", "at_page", "rows")
_LARGEST: Final = 10**12


@dataclass(frozen=True, slots=True)
class TurnsChoice:
    """None means any. Latencies in ms; `since_s` and `until_s` bound when turns began, in Unix seconds.

    `at_page` counts from 0.
    """

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
        """What the page asks of the store."""
        search = TurnSearch(
            text=self.find or "",
            outcome=self.outcome,
            model=self.model,
            from_ns=None if self.from_ms is None else self.from_ms * NS_PER_MS,
            below_ns=None if self.below_ms is None else self.below_ms * NS_PER_MS,
            since_unix_ns=None if self.since_s is None else self.since_s * NS_PER_S,
            until_unix_ns=None if self.until_s is None else self.until_s * NS_PER_S,
        )
        asked = choice.view()
        return TurnsQuestion(
            filter=asked.filter,
            window_ns=asked.window_ns if self.since_s is None else None,
            search=search,
            order=self.order or next(iter(ORDERS)),
            page=self.at_page or 0,
            page_size=self.rows or PAGE_SIZES[0],
        )

    def query(self) -> dict[str, str]:
        """The parameters of a link to this list."""
        return {each.name: str(value) for each in fields(self) if (value := getattr(self, each.name)) is not None}

    @property
    def narrows(self) -> bool:
        """Whether it leaves out turns."""
        return any(
            value is not None
            for value in (self.find, self.outcome, self.model, self.from_ms, self.below_ms, self.since_s, self.until_s)
        )


def turns_choice_of(query: Mapping[str, str]) -> tuple[TurnsChoice, list[str]]:
    """Read a link. A value that cannot be meant is left out, with a sentence that says so."""
    given, faults = read_link(query, [each.name for each in fields(TurnsChoice)], fault_of=_fault_of)
    chosen = {name: int(value) if name in _NUMBERS else value[:MOST_CHARS] for name, value in given.items()}
    return TurnsChoice(**chosen), faults  # pyright: ignore[reportArgumentType] - numbers where numbers belong


def _fault_of(name: str, value: str) -> str | None:
    if name == "order":
        return None if value in ORDERS else f"not one of {', '.join(ORDERS)}"
    if name not in _NUMBERS:
        return None
    digits = value.removeprefix("-") if name == "from_ms" else value
    if not (digits.isascii() and digits.isdigit() and len(digits) < 13 and int(digits) <= _LARGEST):
        return "not a whole number"
    if name == "rows" and int(value) not in PAGE_SIZES:
        return f"not one of {', '.join(map(str, PAGE_SIZES))}"
    if name == "at_page" and int(value) > MOST_PAGED:
        return "too large"
    return None


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


_ALLOWED_RUNS: Final[dict[str, tuple[str, ...]]] = {"began": tuple(BEGAN_NS), "state": STATES}
_CALLERS: Final = re.compile("0|[1-9][0-9]{0,8}")
NAMES: Final = tuple(each.name for each in fields(RunsChoice))


def runs_choice_of(query: Mapping[str, str]) -> tuple[RunsChoice, list[str]]:
    """Read a link. A value that cannot be meant is left out, with a sentence that says so."""

    def fault_of(name: str, value: str) -> str | None:
        return "which is not a number of callers" if name == "callers" and not _CALLERS.fullmatch(value) else None

    chosen, faults = read_link(query, NAMES, _ALLOWED_RUNS, fault_of)
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


LOOKS_S: Final[dict[str, int]] = {"1h": 3600, "1d": 86_400, "7d": 7 * 86_400}
LOOKS_LABELS: Final[dict[str, str]] = {"1h": "last hour", "1d": "last day", "7d": "last 7 days"}
_ALLOWED_LOOKS: Final = {"looks": tuple(LOOKS_S), "decision": get_args(Decision)}


@dataclass(frozen=True, slots=True)
class RolloutChoice:
    """None means any; a rollout of None is the one with the newest entry. The time of `looks` ends with the newest."""

    rollout: str | None = None
    looks: str | None = None
    at_stage: str | None = None
    decision: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether it leaves out looks of the rollout."""
        return any((self.looks, self.at_stage, self.decision))

    def narrowed(self, progress: RolloutProgress) -> RolloutProgress:
        """The progress with the looks that are meant."""
        since_unix_ns = 0 if self.looks is None else progress.newest.at_unix_ns - LOOKS_S[self.looks] * NS_PER_S
        is_meant = self._meaning(since_unix_ns)
        return replace(
            progress,
            funnel=replace(progress.funnel, points=tuple(each for each in progress.funnel.points if is_meant(each))),
            changes=tuple(each for each in progress.changes if is_meant(each)),
        )

    def _meaning(self, since_unix_ns: int) -> Callable[[FunnelPoint | LoggedVerdict], bool]:
        def is_meant(look: FunnelPoint | LoggedVerdict) -> bool:
            return (
                look.at_unix_ns >= since_unix_ns
                and self.at_stage in (None, look.stage)
                and self.decision in (None, look.decision)
            )

        return is_meant


def rollout_choice_of(query: Mapping[str, str]) -> tuple[RolloutChoice, list[str]]:
    """Read a link. A value that cannot be meant is left out, with a sentence that says so."""
    chosen, faults = read_link(query, [each.name for each in fields(RolloutChoice)], _ALLOWED_LOOKS)
    return RolloutChoice(**chosen), faults
