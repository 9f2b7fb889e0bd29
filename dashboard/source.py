"""Sources of the pages' answers: the places with runs, one of their stores, and the objectives. No figure is computed
here, and no answer is cached.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from telemetry.client_tls import sidecar_token
from telemetry.comparison.verdict import RegressionMargin, RunComparison
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.objectives.slo import Objective, load_objectives
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.reader import StoreReader, open_store
from telemetry.store.run_folders.catalog import RunCatalog, RunListing
from telemetry.store.run_folders.compared_entries import compare_entries, compared_by
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import StorePlace, folder_around, objectives_next_to
from telemetry.store.run_folders.summaries import BadSummaryError, read_summary

ENV_STORE: Final = "VOICEPROBE_DASHBOARD_STORE"
ENV_SLO: Final = "VOICEPROBE_DASHBOARD_SLO"
# A JSON list of places with runs; without it the one store is the place.
ENV_RUNS: Final = "VOICEPROBE_DASHBOARD_RUNS"
# The address of Locust's page, if there is one on which to start callers.
ENV_LOCUST: Final = "VOICEPROBE_DASHBOARD_LOCUST"
# The parameter of a link that names the store.
STORE: Final = "store"
# A longer selector would not help; the Runs page has all of them.
MOST_ELSEWHERE: Final = 50
_FAULT: Final = "The changed file cannot be used, and every page judges by the version before it: {}"


class NoRunsError(StoreError):
    """Raised if no place that is shown has a run yet."""


@dataclass(frozen=True, slots=True)
class ObjectivesInForce:
    """The objectives in force. `fault` says why a newer version of their file is not used; None if there is none."""

    objectives: tuple[Objective, ...]
    fault: str | None = None


# The newest version of each file that could be used, with the file's stamp; of no file, the default set.
_usable: Final[dict[Path | None, tuple[tuple[int, ...], tuple[Objective, ...]]]] = {}


def _in_force(path: Path | None) -> ObjectivesInForce:
    """The newest version of an objectives file, or the previous one if that is invalid; without a file, the default
    set. Raises ConfigError until a version is valid."""
    stamp, known = _stamp_of(path), _usable.get(path)
    if known is None or known[0] != stamp:
        try:
            known = _usable[path] = stamp, tuple(load_objectives(path))
        except ConfigError as error:
            if known is None:
                raise
            return ObjectivesInForce(known[1], _FAULT.format(one_line(str(error))))
    return ObjectivesInForce(known[1])


def _stamp_of(path: Path | None) -> tuple[int, ...]:
    """A stamp that changes with a file, its permissions or its place; empty if it does not exist."""
    try:
        stat = None if path is None else path.stat()
    except OSError:
        stat = None
    return () if stat is None else (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size)


def given_objectives() -> ObjectivesInForce | None:
    """The objectives of the launcher's file, in force for every run; None without such a file. Raises ConfigError until
    a version of the file is valid."""
    given = os.environ.get(ENV_SLO)
    return _in_force(Path(given)) if given else None


def objectives_in_force(store: str) -> ObjectivesInForce:
    """The objectives for the runs of a store: the launcher's file, else those by which the run around the store was
    judged, else the default set. Raises ConfigError until a version is valid."""
    given = given_objectives()
    return _in_force(objectives_next_to(store)) if given is None else given


@lru_cache(maxsize=16)
def reader_of(store: str) -> StoreReader:
    """The reader of a folder, or of the sidecar at an address. Raises StoreError for a bad address."""
    return open_store(store, sidecar_token())


def places() -> tuple[str, ...]:
    """The places with runs that the launcher was given, or its one store."""
    named = os.environ.get(ENV_RUNS)
    return tuple(json.loads(named)) if named else (os.environ[ENV_STORE],)


def run_listing() -> RunListing:
    """Every run, the newest first. Raises ConfigError for bad objectives, and for a place that is not a folder."""
    given = given_objectives()
    return RunCatalog(places(), None if given is None else given.objectives, token=sidecar_token()).listing()


@dataclass(frozen=True, slots=True)
class Source:
    """The store of a page, and the objectives in force. `elsewhere` are the newest runs of the other stores that are
    shown."""

    store: str
    reader: StoreReader
    in_force: ObjectivesInForce
    elsewhere: Sequence[RunEntry] = ()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives by which its runs are judged."""
        return self.in_force.objectives


def source_of(link: Mapping[str, str]) -> Source:
    """The store that a link names, if it is one of those shown; without a link the named one, or that of the newest run
    with stored turns. Raises ConfigError for invalid objectives and for a place that is not a folder, StoreError for a
    store that is not shown, NoRunsError if there is no run yet."""
    wanted, own = link.get(STORE), os.environ.get(ENV_STORE)
    elsewhere: list[RunEntry] = []
    if os.environ.get(ENV_RUNS) or wanted not in (None, own):
        entries = [entry for entry in run_listing().entries if entry.state != "damaged" or entry.turns]
        wanted = _shown(wanted or own, own, entries)
        elsewhere = [entry for entry in entries if entry.store != wanted and entry.state != "damaged"][:MOST_ELSEWHERE]
    store = wanted or os.environ[ENV_STORE]
    return Source(store, reader_of(store), objectives_in_force(store), elsewhere)


def _shown(wanted: str | None, own: str | None, known: Sequence[RunEntry]) -> str:
    if wanted is None:
        if not known:
            raise NoRunsError(f"{', '.join(places())}: no run is here")
        return next((entry for entry in known if not entry.is_empty), known[0]).store
    if wanted != own and wanted not in {entry.store for entry in known}:
        raise StoreError(f"the link asks for the store {wanted!r:.200}, which is not among those that are shown")
    return wanted


def ended_without_turn(store: str, run_id: str | None) -> RunEntry | None:
    """The summary of the run whose folder contains a store, if the run ended without a turn; with `run_id` only of that
    run. None also without such a folder: for a standalone store, and for a sidecar's."""
    folder = folder_around(store)
    if folder is None:
        return None
    try:
        summary = read_summary(StorePlace(store, folder))
    except (BadSummaryError, OSError):
        return None  # the list of runs says what is wrong with it
    return None if summary is None or summary.turns or run_id not in (None, summary.run_id) else summary


def compared(
    entries: Sequence[RunEntry], margin: RegressionMargin, given: Sequence[Objective] | None
) -> tuple[RunComparison, ...]:
    """Compare each run after the first with the first, with good turns counted by the objectives that were `given` for
    all runs, else by those of the first. Raises StoreError, ConfigError."""
    return compare_entries(tuple(entries), margin, compared_by(entries, given), reader_of)


def details(entry: RunEntry) -> RunDetails:
    """The figures of a run under its own conditions. Raises StoreError."""
    return reader_of(entry.store).run_details(entry.run_id)
