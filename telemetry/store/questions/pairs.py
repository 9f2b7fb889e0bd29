"""Client turns beside what the service reported of them: how far the two agree, where the time of a turn goes.

A response is known by its id within the call; where the wire shows no id, by the turn's place in it.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from telemetry.model.semconv import RAMP
from telemetry.model.stats import enough
from telemetry.model.turns import Turn
from telemetry.store.answers import REPORTED_STAGES, ClientServiceDelta, Filter, StageStats
from telemetry.store.connection import SIDES_APART_NS, Row, StoreConnection, rows, rows_of_trace
from telemetry.store.questions.filters import ANY, TURN_COLUMNS, Condition, Natural, source_of, turns_of, viewed
from telemetry.store.questions.percentiles import (
    CALL,
    ONE_IN,
    Groups,
    SampledCalls,
    Values,
    add_percentiles,
    sampled_turns,
    stated,
)
from telemetry.store.schema import turn_from_row

_NAMED: Final = "regexp_extract(lower(replace(s.call_id, '-', '')), '([0-9a-f]{32})$', 1)"


def with_heard_trace(services: str, clients: str) -> str:
    """A statement that gives the rows of `services` with a column `heard_trace`: the trace of the call among those of
    `clients`, NULL where none of them is meant. Both are tables, or are named WITH their statements, and have
    `trace_id` and `call_id`. Most services continue the caller's trace: only of the others names are compared."""
    return f"""
        WITH marked AS (
            SELECT *, CASE WHEN trace_id <> '' AND trace_id IN (SELECT trace_id FROM {clients}) THEN trace_id END
                AS continued FROM {services}),
        others AS (SELECT DISTINCT call_id AS of_call, {_NAMED} AS named FROM marked s WHERE continued IS NULL),
        traces AS (SELECT DISTINCT trace_id FROM {clients}
                   WHERE trace_id <> '' AND trace_id IN (SELECT named FROM others)),
        calls AS (SELECT call_id, min(trace_id) AS trace_id FROM {clients}
                  WHERE call_id <> '' AND trace_id <> '' AND call_id IN (SELECT of_call FROM others)
                  GROUP BY call_id HAVING min(trace_id) = max(trace_id)),
        named AS (SELECT of_call, coalesce(t.trace_id, c.trace_id) AS named_trace FROM others
                  LEFT JOIN traces t ON t.trace_id = named LEFT JOIN calls c ON c.call_id = of_call)
        SELECT marked.* EXCLUDE (continued), coalesce(continued, named_trace) AS heard_trace FROM marked
        LEFT JOIN named ON CASE WHEN continued IS NULL THEN call_id END = of_call
        """


_STAGES: Final = ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained")
_POINTS: Final = (
    "speech_end_perf_ns",
    "endpoint_perf_ns",
    "asr_final_perf_ns",
    "llm_first_token_perf_ns",
    "tts_first_chunk_perf_ns",
)
# What tells which turns are the same, and what is asked of both sides.
_ASKED: Final = (
    *("trace_id", "response_id", "turn_index", "voice_to_voice_ns", "speech_end_audio_ns", *_POINTS),
    *("outcome", "phase_kind", "leading_silence_ns"),
)
_VALUES: Final = [Values(name, f"{name}_ns") for name in ("difference", *_STAGES)]
_BY_SERVICE: Final = "s_voice_to_voice_ns IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Paired:
    """Agreement of both sides of the turns, and the time of a turn by stage."""

    delta: ClientServiceDelta
    budget: dict[str, StageStats]


def paired(connection: StoreConnection, f: Filter, *, is_many: bool = False) -> Paired:
    """Each client turn of a filter beside the service's turn, where there is one, and what either side has alone.

    The difference is client-heard minus service-reported voice-to-voice over the turns that figures are taken over,
    none of a ramp; where a service does not say where it believes that speech ended, it is `uncorrected` for it. The
    stages are of every valid turn with a voice-to-voice, ramps left out.

    Of the other side's turns only those are looked at which the filter's calls or its run can have. In a view by
    service and day the clients are all callers of about that time, and only the service's turns are paired.
    """
    whole = "s" if source_of(f) == "service" else "c"
    sides = _sides(connection, f)
    every, sampled = (_compared(f, whole, sides.sql.format(**each)) for each in _JOINS[whole])
    (row,) = rows(
        connection,
        f"""
        SELECT {", ".join(f"count({each.value}) AS n_{each.name}" for each in _VALUES)},
               max(abs(difference_ns)) AS abs_max,
               count(*) FILTER (difference_ns IS NOT NULL AND is_uncorrected) AS uncorrected,
               count(*) FILTER (s_trace_id IS NULL AND is_counted) AS client_only,
               count(*) FILTER (c_trace_id IS NULL AND {_BY_SERVICE}) AS service_only,
               count(total_ns) FILTER ({_BY_SERVICE}) AS by_service FROM {every}
        """,
        sides.values,
    )
    sample = None
    if is_many:
        found = sampled_turns(connection, _VALUES, Condition("true", sides.values), sampled, call="call")
        sample = SampledCalls.of(found, _VALUES, {None: np.ones(found.num_rows, np.bool_)})
    add_percentiles(connection, Groups({None: row}, Condition("true", sides.values), table=every), _VALUES, sample)
    stated_by = whole == "c" and row["by_service"] > 0
    return Paired(_delta(row), {each: _stage(each, row, by_service=stated_by) for each in _STAGES if row[f"n_{each}"]})


# How the sides are joined, by the side whose turns figures are taken over: of all turns, and of the sampled calls of
# that side with what the other has of them.
_JOINS: Final = {
    "c": (
        {"join": "FULL", "clients": "true", "services": "true"},
        {"join": "LEFT", "clients": f"{CALL} % {ONE_IN} = 0", "services": "true"},
    ),
    "s": (
        {"join": "RIGHT", "clients": "true", "services": "true"},
        {"join": "RIGHT", "clients": "true", "services": f"call % {ONE_IN} = 0"},
    ),
}


def _sides(connection: StoreConnection, f: Filter) -> Condition:
    """Turns of both sides in one table, to be filled in from `_JOINS`, their columns after `c_` and `s_`. It reads the
    table `services`, which belongs to the question and has the service's turns of the filter's run or calls."""
    then, mine = _about_then(connection, f), turns_of(f) & viewed(f)
    run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    clients, services = mine, Condition(f"({run.sql}) OR ({then.sql})", (*run.values, *then.values))
    services &= Condition("source = 'service'")
    if source_of(f) == "service":
        clients, services = then & Condition("source = 'client'"), mine
    columns = ", ".join([*_ASKED, f"{CALL} AS call"])
    # What is reported of one response more than once is there once. All rows are not sorted for the few of these.
    response = "coalesce(heard_trace, trace_id), coalesce(response_id, turn_index::VARCHAR)"
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE services AS
        WITH clients AS (SELECT trace_id, call_id FROM turns WHERE {clients.sql}),
        seen AS (SELECT {columns}, call_id, started_unix_ns, span_id, run_id FROM turns WHERE {services.sql}),
        named AS (
            SELECT *, hash({response}) AS place
            FROM ({with_heard_trace("seen", "clients")}) WHERE {run.sql} OR heard_trace IS NOT NULL),
        repeated AS (SELECT place FROM named GROUP BY place HAVING count(*) > 1)
        SELECT * FROM named WHERE place NOT IN (SELECT place FROM repeated) UNION ALL
        SELECT * FROM named WHERE place IN (SELECT place FROM repeated)
        QUALIFY row_number() OVER (PARTITION BY {response} ORDER BY started_unix_ns, span_id) = 1
        """,
        [*clients.values, *services.values, *run.values],
    )
    both = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "cs" for name in (*_ASKED, "call"))
    return Condition(
        f"""(SELECT {both} FROM (SELECT {columns} FROM turns WHERE ({clients.sql}) AND {{clients}}) c
            {{join}} JOIN (SELECT * FROM services WHERE {{services}}) s
            ON c.trace_id = s.heard_trace AND c.trace_id <> '' AND (
                c.response_id = s.response_id
                OR (c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL))))""",
        clients.values,
    )


def _compared(f: Filter, whole: str, sides: str) -> str:
    """Turns of both sides as a table with their difference and the stages of the turns that are divided into them.

    The service's own points where it reported them, else the points as the client saw them. A transcript that came
    after the first token was not on the way to it: there the model's stage begins at the endpoint.
    """
    is_divided = f"{whole}_outcome <> 'invalid' AND {whole}_voice_to_voice_ns > 0 AND {_steady(f, whole)}"
    points = ", ".join(
        f"CASE WHEN is_divided THEN CASE WHEN {_BY_SERVICE} THEN s_{name} ELSE c_{name} END END AS {name}"
        for name in _POINTS
    )
    later = "0" if whole == "s" else "coalesce(s_speech_end_audio_ns - c_speech_end_audio_ns, 0)"
    explained = " - ".join(f"coalesce({stage}_ns, 0)" for stage in _STAGES[:-1])
    return f"""(
        WITH marked AS (
            SELECT *, {whole}_call AS call, {is_divided} AS is_divided,
                   c_outcome <> 'invalid' AND c_voice_to_voice_ns IS NOT NULL AND {_steady(f, "c")} AS is_counted,
                   s_speech_end_audio_ns IS NULL OR c_speech_end_audio_ns IS NULL AS is_uncorrected
            FROM {sides}),
        points AS (
            SELECT call, is_counted, is_uncorrected, c_trace_id, s_trace_id, s_voice_to_voice_ns, {points},
                   CASE WHEN is_counted AND s_trace_id IS NOT NULL THEN c_voice_to_voice_ns - s_voice_to_voice_ns
                        - coalesce(s_speech_end_audio_ns - c_speech_end_audio_ns, 0) END AS difference_ns,
                   CASE WHEN is_divided THEN {whole}_voice_to_voice_ns END AS total_ns,
                   CASE WHEN is_divided THEN {whole}_leading_silence_ns END AS leading_silence_ns,
                   CASE WHEN {_BY_SERVICE} THEN {later} ELSE 0 END AS later_ns FROM marked),
        stages AS (
            SELECT *, speech_end_perf_ns - later_ns AS speech_end_ns,
                   CASE WHEN asr_final_perf_ns <= llm_first_token_perf_ns
                         AND asr_final_perf_ns >= coalesce(endpoint_perf_ns, speech_end_perf_ns)
                        THEN asr_final_perf_ns END AS final,
                   endpoint_perf_ns - speech_end_ns AS endpointing_ns,
                   final - coalesce(endpoint_perf_ns, speech_end_ns) AS asr_ns,
                   llm_first_token_perf_ns - coalesce(final, endpoint_perf_ns, speech_end_ns) AS llm_ns,
                   tts_first_chunk_perf_ns - llm_first_token_perf_ns AS tts_ns FROM points)
        SELECT *, total_ns - {explained} AS unexplained_ns FROM stages)"""


def _delta(row: Row) -> ClientServiceDelta:
    joined, (p50, _, p99) = row["n_difference"], row.get("q_difference") or (None, None, None)
    within = stated(row.get("within_difference"))
    return ClientServiceDelta(
        joined=joined,
        client_only=row["client_only"],
        service_only=row["service_only"],
        difference_p50_ns=p50,
        difference_p99_ns=enough("p99", joined, p99),
        difference_abs_max_ns=None if row["abs_max"] is None else float(row["abs_max"]),
        approximate=bool(within),
        uncorrected=row["uncorrected"],
        estimated_within=within,
    )


def stage_budget(connection: StoreConnection, f: Filter = ANY) -> dict[str, StageStats]:
    """Return where voice-to-voice goes: endpointing, asr, llm, tts, leading_silence, and what none of them explains
    (`unexplained`: network, playout). Stages that no turn shows are left out."""
    return paired(connection, f).budget


def _about_then(connection: StoreConnection, f: Filter) -> Condition:
    """Return when the other side of the filter's calls may have begun, which need not be of the same run."""
    if f.run_id is None:
        return Condition("false")
    where = turns_of(f) & viewed(f)
    statement = f"SELECT min(started_unix_ns) AS first, max(started_unix_ns) AS last FROM turns WHERE {where.sql}"
    (row,) = rows(connection, statement, list(where.values))
    if row["first"] is None:
        return Condition("false")
    return Condition("started_unix_ns BETWEEN ? AND ?", (row["first"] - SIDES_APART_NS, row["last"] + SIDES_APART_NS))


def _steady(f: Filter, side: str) -> str:
    """Which turns this side has of no ramp, unless the filter asks for a phase by its name."""
    return "true" if f.phase is not None else f"{side}_phase_kind IS DISTINCT FROM '{RAMP}'"


def _stage(stage: str, row: Row, *, by_service: bool) -> StageStats:
    n, (p50, p95, _), within = row[f"n_{stage}"], row[f"q_{stage}"], stated(row.get(f"within_{stage}"))
    return StageStats(
        name=stage,
        n=n,
        p50_ns=p50,
        p95_ns=enough("p95", n, p95),
        approximate=bool(within),
        by_service=by_service and stage in REPORTED_STAGES,
        estimated_within=within,
    )


def both_sides(connection: StoreConnection, trace_id: str, turn_index: Natural) -> tuple[Turn | None, Turn | None]:
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
        _about_turn(service),
    )
    (row,) = rows(connection, with_heard_trace("of_service", "seen_clients"))
    return row["heard_trace"]


def _about_turn(turn: Turn) -> tuple[int, int]:
    """Return from when to when the other side of a turn may have begun."""
    return turn.started_unix_ns - SIDES_APART_NS, turn.started_unix_ns + SIDES_APART_NS


def _of_another_trace(connection: StoreConnection, client: Turn) -> list[Turn]:
    """Return what a service to which the caller's trace did not come reported of the call."""
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
        [*_about_turn(client), client.trace_id, names],
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
    return [turn_from_row(row) for row in rows(connection, statement, _about_turn(client))]


def _names_of_call(connection: StoreConnection, client: Turn) -> list[str]:
    """The names that a service may have given the caller's call. Most often there is none, and millions of turns are
    looked through: no other column of them is read, and few names are taken apart."""
    first, last = _about_turn(client)
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
