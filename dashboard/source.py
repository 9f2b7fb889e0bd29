"""Where the pages get their answers: the store's reader and the objectives. Nothing here computes a figure, or keeps
an answer."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from dashboard.components.objectives import ObjectiveStatus, statuses, statuses_of
from dashboard.links import Choice
from telemetry.client_tls import sidecar_token
from telemetry.comparison.verdict import RegressionMargin, RunComparison
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import HEADLINE
from telemetry.model.turns import Turn
from telemetry.objectives.observable import observed
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.objectives.slo import Objective, load_objectives
from telemetry.store.answers import Filter, RunRecord, StageStats, Summary
from telemetry.store.compared_entries import compare_entries, compared_by
from telemetry.store.questions.explanation import Explanation
from telemetry.store.questions.objectives import ObjectiveCounts
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.questions.timelines import CohortLines
from telemetry.store.questions.verdicts import judged_turns, measured_s
from telemetry.store.reader import StoreReader
from telemetry.store.remote import open_store
from telemetry.store.run_folders.catalog import RunCatalog, RunListing
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import StorePlace, folder_around, objectives_kept_beside
from telemetry.store.run_folders.summaries import BadSummaryError, read_summary

ENV_STORE: Final = "VOICEPROBE_DASHBOARD_STORE"
ENV_SLO: Final = "VOICEPROBE_DASHBOARD_SLO"
# A JSON list of places with runs; without it the one store is the place.
ENV_RUNS: Final = "VOICEPROBE_DASHBOARD_RUNS"
# The address of Locust's page, where there is one to start callers on.
ENV_LOCUST: Final = "VOICEPROBE_DASHBOARD_LOCUST"


_FAULT: Final = "The changed file cannot be used, and every page judges by the version before it: {}"


@dataclass(frozen=True, slots=True)
class ObjectivesInForce:
    """Objectives. `fault` says why a newer version of their file is not in force; None where there is none."""

    objectives: tuple[Objective, ...]
    fault: str | None = None


_usable: Final[dict[Path | None, tuple[Objective, ...]]] = {}


@lru_cache(maxsize=16)
def _parsed(path: Path | None, _stamp: tuple[int, ...]) -> tuple[Objective, ...]:
    return tuple(load_objectives(path))


def _in_force(path: Path | None) -> ObjectivesInForce:
    """The newest version of a file of objectives, or the one before it where that cannot be used; of no file, the
    default set. Raises ConfigError as long as no version can be used."""
    try:
        found = _usable[path] = _parsed(path, _stamp_of(path))
    except ConfigError as error:
        if path not in _usable:
            raise
        return ObjectivesInForce(_usable[path], _FAULT.format(one_line(str(error))))
    return ObjectivesInForce(found)


def _stamp_of(path: Path | None) -> tuple[int, ...]:
    """What changes with the file, with who may read it, or with its place; empty where nothing is there."""
    if path is None:
        return ()
    try:
        stat = path.stat()
    except OSError:
        return ()
    return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size)


def given_objectives() -> ObjectivesInForce | None:
    """What is in force of the file that the launcher was given, for every run; None where it was given none. Raises
    ConfigError as long as no version of the file can be used."""
    given = os.environ.get(ENV_SLO)
    return _in_force(Path(given)) if given else None


def objectives_in_force(store: str) -> ObjectivesInForce:
    """What the runs of a store are judged by: the file that the launcher was given, else the objectives that the run
    around the store was judged by, else the default set. Raises ConfigError as long as no version can be used."""
    given = given_objectives()
    return _in_force(objectives_kept_beside(store)) if given is None else given


def reader_of(store: str) -> StoreReader:
    """The reader of a folder, or of the sidecar at an address. Raises StoreError for a bad address."""
    return open_store(store, sidecar_token())


# A selector of more is no help; the page Runs has all of them.
MOST_ELSEWHERE: Final = 50
# What a page offers beside its figures may be as old as this, and five times as old as it took to find out.
_AS_OLD_AS_S: Final = 2.0
_TIMES_AS_LONG: Final = 5


class NoRunsError(StoreError):
    """There is no run yet in any place that is shown."""


def places() -> tuple[str, ...]:
    """Where runs are, as the launcher was told: places with runs, or the one store."""
    named = os.environ.get(ENV_RUNS)
    return tuple(json.loads(named)) if named else (os.environ[ENV_STORE],)


@dataclass(slots=True)
class _Offered:
    """The runs as they were listed last: of which places they are, and until when pages offer these to go to."""

    places: tuple[str, ...] = ()
    listing: RunListing | None = None
    until_s: float = 0.0


_offered: Final = _Offered()


def run_listing() -> RunListing:
    """Every run, the newest first. Raises ConfigError for bad objectives, and for a place that is not a folder."""
    given, began_s = given_objectives(), time.monotonic()
    found = RunCatalog(places(), None if given is None else given.objectives, token=sidecar_token()).listing()
    ended_s = time.monotonic()
    _offered.places, _offered.listing = places(), found
    _offered.until_s = ended_s + max(_AS_OLD_AS_S, _TIMES_AS_LONG * (ended_s - began_s))
    return found


def _offered_listing() -> RunListing:
    """As `run_listing`, for what a page shows beside its figures: not asked for at each refresh, but for the first
    run."""
    listing = _offered.listing
    is_out_of_date = _offered.places != places() or time.monotonic() >= _offered.until_s
    return run_listing() if listing is None or not listing.entries or is_out_of_date else listing


def chosen_store(wanted: str | None) -> str:
    """The store that a link asks for, if it is one of those that are shown; without a link the one that was named, or
    that of the newest run of which anything is stored. Raises StoreError, NoRunsError where there is no run yet."""
    own = os.environ.get(ENV_STORE)
    if wanted is None and own:
        return own
    return _chosen(wanted, _offered_listing())


def _chosen(wanted: str | None, listing: RunListing) -> str:
    known = [each for each in listing.entries if each.state != "damaged" or each.turns]
    if wanted is None:
        if not known:
            raise NoRunsError(f"{', '.join(places())}: no run is here")
        return next((each for each in known if not each.is_empty), known[0]).store
    if wanted != os.environ.get(ENV_STORE) and wanted not in {each.store for each in known}:
        raise StoreError(f"the link asks for the store {wanted!r:.200}, which is not among those that are shown")
    return wanted


def runs_elsewhere(wanted: str | None) -> list[RunEntry]:
    """The newest runs of the other stores that are shown; none where there is one store only."""
    if not os.environ.get(ENV_RUNS):
        return []
    listing, own = _offered_listing(), os.environ.get(ENV_STORE)
    shown = own if wanted is None and own else _chosen(wanted, listing)
    return [each for each in listing.entries if each.store != shown and each.state != "damaged"][:MOST_ELSEWHERE]


def ended_without_turn(store: str, run_id: str | None) -> RunEntry | None:
    """The run whose folder is around a store, as its command left it, if it ended without a turn; with `run_id` only
    that run. None also where no folder says so: for a store of its own, and for a sidecar's."""
    folder = folder_around(store)
    if folder is None:
        return None
    try:
        found = read_summary(StorePlace(store, folder))
    except (BadSummaryError, OSError):
        return None  # the list of runs says what is wrong with it
    if found is None or found.turns or run_id not in (None, found.run_id):
        return None
    return found


def compared(
    entries: Sequence[RunEntry], margin: RegressionMargin, given: Sequence[Objective] | None
) -> tuple[RunComparison, ...]:
    """Each run after the first beside the first, with good turns counted by the objectives that were `given` for all
    runs, else by those of the first. Raises StoreError, ConfigError."""
    by = compared_by(entries, given)
    return compare_entries(tuple(entries), margin, by, reader_of)


def details(entry: RunEntry) -> RunDetails:
    """How a run went under its own conditions. Raises StoreError."""
    return reader_of(entry.store).run_details(entry.run_id)


# The parameter of a link that names the store.
STORE: Final = "store"


@dataclass(frozen=True, slots=True)
class NowView:
    """All that the Now page shows, from one state of the store."""

    runs: Sequence[RunRecord]
    run: RunRecord | None
    filter: Filter
    summary: Summary | None
    verdict: RunVerdict | None = None
    lines: CohortLines | None = None
    explained: ObjectiveStatus | None = None
    explanation: Explanation | None = None
    budget: dict[str, StageStats] | None = None
    slowest: Sequence[Turn] = ()
    statuses: Sequence[ObjectiveStatus] = ()
    cohort_statuses: Mapping[str, ObjectiveStatus | None] = field(default_factory=dict[str, ObjectiveStatus | None])
    faults: Sequence[str] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class Source:
    """A store and one version of the objectives."""

    reader: StoreReader
    objectives: tuple[Objective, ...]

    def now(self, choice: Choice, metric: str = HEADLINE) -> NowView:
        """The Now page's answers, with a metric over time. Raises StoreError when the store cannot be read."""
        answer = self.reader.page(choice.question(self.objectives, metric))
        if answer.run is None or answer.summary is None:
            return NowView(answer.runs, None, Filter(), None)
        objectives = observed(self.objectives, answer.counts.is_withheld)
        lasted_s = measured_s(answer.summary, answer.run)
        found = judged_turns(objectives, answer.counts, answer.summary, answer.cause, measured_s=lasted_s)
        judged = statuses_of(objectives, found.verdicts)
        return NowView(
            verdict=found.verdict,
            lines=answer.lines,
            explained=next((each for each in judged if each.objective == answer.explained), None),
            explanation=answer.explanation,
            runs=answer.runs,
            run=answer.run,
            filter=answer.filter,
            summary=answer.summary,
            budget=answer.budget,
            slowest=answer.slowest,
            statuses=judged,
            cohort_statuses={
                each.cohort: self._headline(answer.counts, each.cohort, found.unjudged)
                for each in answer.summary.cohorts
            },
            choices=answer.choices,
        )

    def _headline(self, counts: ObjectiveCounts, cohort: str, unjudged: str | None) -> ObjectiveStatus | None:
        """How a cohort stands on the first objective for voice-to-voice that is about every turn."""
        objective = next((o for o in self.objectives if o.metric == HEADLINE and o.cohort is None), None)
        if objective is None:
            return None
        of_cohort = counts.of_cohort(cohort)
        return statuses([objective], of_cohort.count, unjudged=unjudged)[0]


# Each holds its own DuckDB; those of runs that nobody looks at any more are closed.
@lru_cache(maxsize=16)
def open_source(store: str, objectives: tuple[Objective, ...]) -> Source:
    """The one source of a folder, or of the sidecar at an address, by these objectives, in this process, shared by
    every viewer. Raises StoreError for a bad address."""
    return Source(reader_of(store), objectives)


def store_of(link: Mapping[str, str]) -> str:
    """The store that a link asks for, or that the launcher named. Raises ConfigError for a place that is not a folder,
    StoreError for a store that is not shown, KeyError when nothing was named."""
    return chosen_store(link.get(STORE))


def source_of(link: Mapping[str, str]) -> Source:
    """The source of the store that a link asks for, by the objectives that are in force now: to be asked for at each
    look. Raises ConfigError for bad objectives, StoreError for a bad address, and as `store_of`."""
    store = store_of(link)
    return open_source(store, objectives_in_force(store).objectives)
