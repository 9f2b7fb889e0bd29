"""Which runs there are, over all stores that were named, and their comparisons."""

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Final

from dashboard.objectives_in_force import given_objectives
from dashboard.open_readers import reader_of
from dashboard.source_names import ENV_RUNS, ENV_STORE
from telemetry.comparison.verdict import RegressionMargin, RunComparison
from telemetry.model.errors import StoreError
from telemetry.objectives.objective import Objective
from telemetry.store.comparisons import compare_entries, compared_by
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.run_folders.catalog import RunCatalog, RunListing
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import StorePlace, folder_around
from telemetry.store.run_folders.summaries import BadSummaryError, read_summary

# A selector of more is no help; the page Runs has all of them.
MOST_ELSEWHERE: Final = 50
# How long a page waits for what is not known yet.
FIRST_LOOK_S: Final = 0.5
# Of the stores whose runs go on, so many are kept open between two looks, whether or not a page looks at them.
_OPEN_STORES: Final = 2


class NoRunsError(StoreError):
    """There is no run yet in any place that is shown."""


# One is enough: places stay what they are, and of changed objectives there is no way back.
@lru_cache(maxsize=1)
def _catalog(places: tuple[str, ...], objectives: tuple[Objective, ...] | None) -> RunCatalog:
    return RunCatalog(places, objectives, open_stores=_OPEN_STORES, shared=reader_of)


def places() -> tuple[str, ...]:
    """Where runs are, as the launcher was told: places with runs, or the one store."""
    named = os.environ.get(ENV_RUNS)
    return tuple(json.loads(named)) if named else (os.environ[ENV_STORE],)


def run_listing(within_s: float = FIRST_LOOK_S) -> RunListing:
    """Every run that is known, the newest first, and the stores and runs that have not been read yet: they are by the
    next listings, as a page does not wait for hundreds. Raises ConfigError for bad objectives, and for a place that is
    not a folder."""
    given = given_objectives()
    return _catalog(places(), None if given is None else given.objectives).listing(within_s=within_s)


def chosen_store(wanted: str | None) -> str:
    """The store that a link asks for, if it is one of those that are shown; without a link the one that was named, or
    that of the newest run of which anything is stored. Raises StoreError, NoRunsError where there is no run yet."""
    own = os.environ.get(ENV_STORE)
    if wanted is None and own:
        return own
    return _chosen(wanted, run_listing(within_s=0))


def _chosen(wanted: str | None, listing: RunListing) -> str:
    known = [each for each in listing.entries if each.state != "damaged" or each.turns]
    if wanted is None:
        if not known:
            raise NoRunsError(f"{', '.join(places())}: no run is here")
        return next((each for each in known if not each.is_empty), known[0]).store
    if wanted != os.environ.get(ENV_STORE) and wanted not in {*(each.store for each in known), *listing.unread}:
        raise StoreError(f"the link asks for the store {wanted!r:.200}, which is not among those that are shown")
    return wanted


def runs_elsewhere(wanted: str | None) -> list[RunEntry]:
    """The newest runs of the other stores that are shown; none where there is one store only."""
    if not os.environ.get(ENV_RUNS):
        return []
    listing, own = run_listing(within_s=0), os.environ.get(ENV_STORE)
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
    return compare_entries(tuple(entries), margin, by, lambda store: nullcontext(reader_of(store)))


def details(entry: RunEntry) -> RunDetails:
    """How a run went under its own conditions. Raises StoreError."""
    return reader_of(entry.store).run_details(entry.run_id)
