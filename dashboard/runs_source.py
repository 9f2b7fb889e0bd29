"""Which runs there are, over all stores that were named, and their comparisons."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashboard.objectives_in_force import given_objectives
from dashboard.source_names import ENV_RUNS, ENV_STORE
from telemetry.client_tls import sidecar_token
from telemetry.comparison.verdict import RegressionMargin, RunComparison
from telemetry.model.errors import StoreError
from telemetry.objectives.objective import Objective
from telemetry.store.comparisons import compare_entries, compared_by
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.remote import open_store
from telemetry.store.run_folders.catalog import RunCatalog, RunListing
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import StorePlace, folder_around
from telemetry.store.run_folders.summaries import BadSummaryError, read_summary

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


def run_listing() -> RunListing:
    """Every run, the newest first. Raises ConfigError for bad objectives, and for a place that is not a folder."""
    given = given_objectives()
    return RunCatalog(places(), None if given is None else given.objectives, token=sidecar_token()).listing()


@dataclass(slots=True)
class _Offered:
    """Runs that pages offer to go to: of which places they are, and until when they are not asked for again."""

    places: tuple[str, ...] = ()
    listing: RunListing | None = None
    until_s: float = 0.0


_offered: Final = _Offered()


def _offered_listing() -> RunListing:
    """As `run_listing`, for what a page shows beside its figures: not asked for at each refresh."""
    if _offered.listing is None or _offered.places != places() or time.monotonic() >= _offered.until_s:
        began_s = time.monotonic()
        _offered.listing, _offered.places = run_listing(), places()
        ended_s = time.monotonic()
        _offered.until_s = ended_s + max(_AS_OLD_AS_S, _TIMES_AS_LONG * (ended_s - began_s))
    return _offered.listing


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
    return compare_entries(tuple(entries), margin, by, lambda store: open_store(store, sidecar_token()))


def details(entry: RunEntry) -> RunDetails:
    """How a run went under its own conditions. Raises StoreError."""
    return open_store(entry.store, sidecar_token()).run_details(entry.run_id)
