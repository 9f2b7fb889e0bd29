"""One turn from both sides: as the client heard it and as the service reported it."""

# ruff: noqa: S608 - the identifiers in these statements are our own, every value is bound

from collections.abc import Sequence

from telemetry.model.turns import Turn
from telemetry.store.connection import SIDES_APART_NS, StoreConnection, rows, rows_of_trace
from telemetry.store.heard_traces import with_heard_trace
from telemetry.store.schema import turn_from_row
from telemetry.store.turn_rows import TURN_COLUMNS


def both_sides(connection: StoreConnection, trace_id: str, turn_index: int) -> tuple[Turn | None, Turn | None]:
    """The turn of a place in the call of a trace, heard and reported; None for a side that is not in the store."""
    found = _of_trace(connection, trace_id)
    client = _heard(found, turn_index)
    services = [turn for turn in found if turn.source == "service"]
    if client is not None and not services:
        services = _of_another_trace(connection, client)
    elif client is None and (reported := _counterpart(None, services, turn_index)) is not None:
        heard_trace = _heard_trace(connection, reported)
        client = _heard(_of_trace(connection, heard_trace), turn_index) if heard_trace is not None else None
    return client, _counterpart(client, services, turn_index)


def _of_trace(connection: StoreConnection, trace_id: str) -> list[Turn]:
    found = rows_of_trace(connection, "turns", trace_id, columns=TURN_COLUMNS, order="started_unix_ns, span_id")
    return [turn_from_row(row) for row in found]


def _heard(turns: Sequence[Turn], turn_index: int) -> Turn | None:
    return next((turn for turn in turns if turn.source == "client" and turn.turn_index == turn_index), None)


def _counterpart(client: Turn | None, services: Sequence[Turn], turn_index: int) -> Turn | None:
    response_id = client.response_id if client is not None else None
    by_response = (t for t in services if response_id is not None and t.response_id == response_id)
    by_place = (t for t in services if t.turn_index == turn_index and (response_id is None or t.response_id is None))
    return next(by_response, None) or next(by_place, None)


def _heard_trace(connection: StoreConnection, service: Turn) -> str | None:
    """The trace of the caller's call that a turn of a service belongs to, where it is not the service's own."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE of_service AS SELECT ?::VARCHAR AS trace_id, ?::VARCHAR AS call_id",
        [service.trace_id, service.call_id],
    )
    connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE seen_clients AS SELECT trace_id, call_id FROM turns
        WHERE source = 'client' AND started_unix_ns BETWEEN ? AND ?
        """,
        _about_then(service),
    )
    (row,) = rows(connection, with_heard_trace("of_service", "seen_clients"))
    return row["heard_trace"]


def _about_then(turn: Turn) -> tuple[int, int]:
    """From when to when the other side of a turn may have begun."""
    return turn.started_unix_ns - SIDES_APART_NS, turn.started_unix_ns + SIDES_APART_NS


def _of_another_trace(connection: StoreConnection, client: Turn) -> list[Turn]:
    """What a service to which the caller's trace did not come reported of the call."""
    names = _names_of_call(connection, client)
    if not names:
        return []
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE of_call AS SELECT ?::VARCHAR AS trace_id, ?::VARCHAR AS call_id",
        [client.trace_id, client.call_id],
    )
    connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE seen_services AS SELECT trace_id, span_id, call_id FROM turns
        WHERE started_unix_ns BETWEEN ? AND ? AND source = 'service' AND trace_id <> ?
        AND list_contains(?::VARCHAR[], call_id)
        """,
        [*_about_then(client), client.trace_id, names],
    )
    services = with_heard_trace("seen_services", "of_call")
    meant = f"SELECT trace_id, span_id FROM ({services}) WHERE heard_trace IS NOT NULL"
    if not rows(connection, f"SELECT 1 AS found FROM ({meant}) LIMIT 1"):
        return []
    statement = f"""
        SELECT {TURN_COLUMNS} FROM turns
        WHERE started_unix_ns BETWEEN ? AND ? AND source = 'service' AND (trace_id, span_id) IN ({meant})
        ORDER BY started_unix_ns, span_id
        """
    return [turn_from_row(row) for row in rows(connection, statement, _about_then(client))]


def _names_of_call(connection: StoreConnection, client: Turn) -> list[str]:
    """The names that a service may have given the caller's call. Most often there is none, and millions of turns are
    looked through: no other column of them is read, and few names are taken apart."""
    first, last = _about_then(client)
    found = rows(
        connection,
        """
        SELECT DISTINCT call_id FROM turns
        WHERE started_unix_ns BETWEEN $first AND $last AND source = 'service' AND (
            call_id = $call
            OR (
                (ends_with(call_id, right($trace, 1)) OR ends_with(call_id, upper(right($trace, 1)))
                 OR ends_with(call_id, '-'))
                AND ends_with(lower(replace(call_id, '-', '')), $trace)
            )
        )
        """,
        {"call": client.call_id, "trace": client.trace_id.lower(), "first": first, "last": last},
    )
    return [row["call_id"] for row in found]
