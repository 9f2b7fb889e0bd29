"""What a viewer chose to see, and its one form in a link: `?run=…&cohort=…&phase=…&noise=…&length=…&route=…&window=…`,
and `&store=…` where there are several.

Pure: the page's widgets read and write a `Choice`, a link carries it, and the store gets it as a `Filter`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final
from urllib.parse import urlencode

from telemetry.model.formatting import NS_PER_S
from telemetry.model.metrics import HEADLINE
from telemetry.model.semconv import LENGTH_CLASSES, ROUTES
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.questions.pages import PageQuestion, ViewQuestion
from telemetry.store.questions.runs import newest_run

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
ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "length": LENGTH_CLASSES,
    "route": ROUTES,
    "window": (*WINDOWS_S, WHOLE),
}


def window_of(choice: Choice, run: RunRecord | None) -> str | None:
    """Which of its windows a page shows of a run, by name, None for all of it: the one that was chosen, else the newest
    hour of a run that is longer."""
    if choice.window is not None:
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
    query: Mapping[str, str], names: Sequence[str], allowed: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], list[str]]:
    """The values that a link gives for parameters, without those that are not allowed, and a sentence on each of
    these."""
    faults: list[str] = []
    chosen: dict[str, str] = {}
    for name in names:
        value = query.get(name)
        if not value:
            continue
        if name in allowed and value not in allowed[name]:
            faults.append(f"the link asks for {name} {value!r:.60}, not one of {', '.join(allowed[name])}: left out")
            continue
        chosen[name] = value
    return chosen, faults
