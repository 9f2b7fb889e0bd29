"""The calls of a run by what became of them, and what is said of a run of which none reached a session."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from typing import Final

from telemetry.model.metrics import CONNECT
from telemetry.model.service_runs import service_day
from telemetry.store import queries
from telemetry.store.answers import CallCounts, Filter, Summary
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import viewed

# Why no objective is judged then.
UNREACHED: Final = "no call reached a session"


def call_counts(connection: StoreConnection, f: Filter) -> CallCounts:
    """How many calls the client began and how many reached a session: their first turn carries the connect time."""
    where = queries.turns_of(f) & viewed(f)
    statement = f"""
        SELECT count(DISTINCT call_id) AS started,
               count(DISTINCT call_id) FILTER (WHERE turn_index = 0 AND connect_ns IS NOT NULL) AS connected,
               arg_max(outcome_reason, started_unix_ns)
                   FILTER (WHERE turn_index = 0 AND connect_ns IS NULL AND outcome <> 'invalid') AS failure,
               count(DISTINCT call_id)
                   FILTER (WHERE turn_index = 0 AND connect_ns IS NULL AND outcome = 'invalid') AS prevented,
               arg_max(target, started_unix_ns) AS target
        FROM turns WHERE {where.sql}
        """
    (row,) = rows(connection, statement, list(where.values))
    return CallCounts(row["started"], row["connected"], row["failure"], row["target"], row["prevented"])


def unreached_reason(calls: int, target: str, failure: str | None) -> str:
    """What is said of a run none of whose calls reached a session, as half a sentence."""
    return f"none of {calls} calls reached a session at {target}{f': {failure}' if failure else ''}"


def unreached(connection: StoreConnection, summary: Summary) -> str | None:
    """As `unreached_run`; None also where a filter narrows the run."""
    run_id, turns = summary.filter.run_id, summary.turns
    if run_id is None or summary.filter != Filter(run_id=run_id) or not turns.total or summary.metrics[CONNECT].n:
        return None
    return unreached_run(connection, run_id, answered=turns.ok)


def unreached_run(connection: StoreConnection, run_id: str, answered: int) -> str | None:
    """That no call of the run reached a session, and why, as half a sentence; None where one did, where the generator
    itself prevented all of them, and of what services report of themselves. `answered` is in how many turns the caller
    was answered."""
    # Who was answered reached one, though nobody timed how it connected. The calls of a large run are not counted one
    # by one where that is known already.
    if answered or service_day(run_id) is not None:
        return None
    calls = call_counts(connection, Filter(run_id=run_id))
    if not calls.none_reached:
        return None
    return unreached_reason(calls.started, calls.target or "an unknown target", calls.connect_failure)
