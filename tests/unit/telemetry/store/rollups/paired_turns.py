"""Calls of which the service reports in every way and order, and what their turns count to, for tests of pairing.

The reference is one statement over the whole set of turns: no pile, no segment, no open turn.
"""

# ruff: noqa: S608 - the identifiers in the statement are our own

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from telemetry.model.turns import Turn
from telemetry.store.rollups.database import Database, fetched
from telemetry.store.rollups.partials import unpaired
from telemetry.store.rollups.rollup import Rollup
from telemetry.store.schema import ArrowTable, turns_table
from tests.fixtures_turns import MS, SECOND, exchange

_HEARD: Final = """
    clients AS (SELECT * FROM every_turn WHERE source = 'client'),
    reports AS (
        SELECT s.*, CASE
            WHEN s.trace_id IN (SELECT trace_id FROM clients) THEN s.trace_id
            WHEN lower(right(replace(s.call_id, '-', ''), 32)) IN (SELECT trace_id FROM clients)
                THEN lower(right(replace(s.call_id, '-', ''), 32))
            WHEN (SELECT count(DISTINCT trace_id) FROM clients c WHERE c.call_id = s.call_id) = 1
                THEN (SELECT min(trace_id) FROM clients c WHERE c.call_id = s.call_id)
            END AS heard
        FROM every_turn s WHERE s.source = 'service'
    ),
    services AS (
        SELECT * FROM reports s WHERE NOT EXISTS (
            SELECT 1 FROM reports o
            WHERE coalesce(o.heard, o.trace_id) = coalesce(s.heard, s.trace_id)
                  AND coalesce(o.response_id, o.turn_index::VARCHAR) = coalesce(s.response_id, s.turn_index::VARCHAR)
                  AND (o.started_unix_ns, o.span_id) < (s.started_unix_ns, s.span_id))
    ),
    services_heard AS (
        SELECT s.*, EXISTS (
            SELECT 1 FROM clients c WHERE c.trace_id = s.heard AND (c.response_id = s.response_id OR (
                c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL)))) AS is_met
        FROM services s
    )
    """
_SERVICES: Final = f"""
    WITH {_HEARD}
    SELECT run_id, CASE WHEN is_met THEN 'matched' ELSE 'unmatched' END AS how,
           CASE WHEN NOT is_met THEN (SELECT min(run_id) FROM clients c WHERE c.trace_id = s.heard) END AS of_run,
           count(*) AS n
    FROM services_heard s WHERE voice_to_voice_ns IS NOT NULL GROUP BY ALL
    """
_CLIENTS: Final = f"""
    WITH {_HEARD}
    SELECT run_id, count(*) FILTER (EXISTS (
               SELECT 1 FROM services_heard s WHERE s.heard = c.trace_id AND s.voice_to_voice_ns IS NOT NULL AND (
                   c.response_id = s.response_id OR (
                       c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL))))) AS joined,
           count(*) AS heard
    FROM clients c WHERE voice_to_voice_ns IS NOT NULL AND outcome <> 'invalid' GROUP BY ALL
    """

Counts = tuple[Counter[tuple[str, str, str | None]], Counter[tuple[str, str]]]


def reported_calls(seed: int, calls: int = 60, *, is_repeated: bool = True) -> list[Turn]:
    """Calls of three turns in the order in which they arrive: reports of the service come before, with or long after
    what the caller heard, under the caller's trace or another, of a run or of none, some twice if `is_repeated`."""
    dice = random.Random(seed)
    arrived: list[tuple[float, Turn]] = []
    for call in range(calls):
        run_id, how = dice.choice(("a", "b")), dice.choice(("trace", "digits", "call", "call", "none", "unknown"))
        own_trace, run_known = f"{dice.getrandbits(128):032x}", dice.random() < 0.4
        for place in range(3):
            index = call * 3 + place
            heard, report = exchange(index, run_id=run_id, network_ms=dice.uniform(4, 9))
            at = float(index)
            arrived.append((at + dice.choice((0, 0, 0, 40)), _maybe_unnamed(dice, heard)))
            if how == "none" or dice.random() < 0.1:
                continue
            report = msgspec.structs.replace(
                _maybe_unnamed(dice, report),
                run_id=run_id if run_known else "",
                trace_id=heard.trace_id if how == "trace" else own_trace,
                call_id={"digits": f"CA-{heard.trace_id.upper()}", "unknown": f"other-{call}"}.get(how, heard.call_id),
                started_unix_ns=heard.started_unix_ns + dice.randrange(SECOND),
            )
            late = dice.choice((-30, 0, 0, 0, 2, 60, 10**4))
            if dice.random() < 0.15:  # of a response that no caller heard
                report = msgspec.structs.replace(report, response_id=f"unheard-{index}", turn_index=7 + place)
            arrived.append((at + late, report))
            if is_repeated and dice.random() < 0.2:
                again = {"span_id": f"{dice.getrandbits(64):016x}", "started_unix_ns": report.started_unix_ns + 5 * MS}
                arrived.append((at + late + dice.choice((0, 3, 90)), msgspec.structs.replace(report, **again)))
    arrived.sort(key=lambda each: each[0])
    return [turn for _, turn in arrived]


def _maybe_unnamed(dice: random.Random, turn: Turn) -> Turn:
    return msgspec.structs.replace(turn, response_id=None) if dice.random() < 0.1 else turn


def counts_of_turns(database: Database, turns: Sequence[Turn]) -> Counts:
    """By statements over all turns: services by run, match and the run of their call; clients by run and match."""
    database.register("every_turn", turns_table(list(turns)))
    try:
        services = Counter(
            {(row["run_id"], row["how"], row["of_run"]): row["n"] for row in fetched(database, _SERVICES)}
        )
        clients = Counter[tuple[str, str]]()
        for row in fetched(database, _CLIENTS):
            clients[row["run_id"], "joined"] = row["joined"]
            clients[row["run_id"], "client_only"] = row["heard"] - row["joined"]
    finally:
        database.unregister("every_turn")
    return +services, +clients


def counts_of_rollup(rollup: Rollup) -> Counts:
    """The same, of a roll-up whose pairs are closed."""
    services, clients = Counter[tuple[str, str, str | None]](), Counter[tuple[str, str]]()
    for key, cell in rollup.of("service"):
        services[key.run_id or "", key.labels[0] or "", key.labels[1]] += cell.n
    for key, cell in rollup.of("pair"):
        if key.labels[0] in ("joined", "client_only"):
            clients[key.run_id or "", key.labels[0] or ""] += cell.n
    return +services, +clients


def open_turns_of(database: Database, turns: Sequence[Turn]) -> ArrowTable:
    """The open turns of the roll-up of some turns."""
    found = unpaired(database, turns_table(list(turns))).open_turns
    assert found is not None
    return found
