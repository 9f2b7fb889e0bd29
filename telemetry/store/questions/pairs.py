"""Client turns beside what the service reported of them: how far the two agree, where the time of a turn goes.

A response is known by its id within the call; where the wire shows no id, by the turn's place in it.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Mapping, Sequence
from typing import Final

from telemetry.model.semconv import RAMP
from telemetry.model.stats import enough
from telemetry.model.turns import Turn
from telemetry.store.answers import REPORTED_STAGES, ClientServiceDelta, Filter, StageStats
from telemetry.store.connection import SIDES_APART_NS, Row, StoreConnection, rows, rows_of_trace
from telemetry.store.questions.filters import ANY, TURN_COLUMNS, Condition, Natural, source_of, turns_of, viewed
from telemetry.store.questions.percentiles import CALL, ONE_IN, GroupedValues, Groups, Values, percentiles, stated
from telemetry.store.schema import turn_from_row

_NAMED: Final = "regexp_extract(lower(replace(s.call_id, '-', '')), '([0-9a-f]{32})$', 1)"


def with_heard_trace(services: str, clients: str) -> str:
    """A statement that gives the rows of `services` with a column `heard_trace`: the trace of the call among those of
    `clients`, NULL where none of them is meant. Both are tables, or are named WITH their statements, and have
    `trace_id` and `call_id`. Most services continue the caller's trace: only of the others names are compared."""
    return f"""
        WITH marked AS (
            SELECT s.*, c.trace_id AS continued FROM {services} s
            LEFT JOIN (SELECT DISTINCT trace_id FROM {clients} WHERE trace_id <> '') c ON c.trace_id = s.trace_id),
        others AS (SELECT DISTINCT call_id, {_NAMED} AS named FROM marked s WHERE continued IS NULL),
        traces AS (SELECT DISTINCT trace_id FROM {clients}
                   WHERE trace_id <> '' AND trace_id IN (SELECT named FROM others)),
        calls AS (SELECT call_id, min(trace_id) AS trace_id FROM {clients}
                  WHERE call_id <> '' AND trace_id <> '' AND call_id IN (SELECT call_id FROM others)
                  GROUP BY call_id HAVING min(trace_id) = max(trace_id))
        SELECT * EXCLUDE (continued), continued AS heard_trace FROM marked WHERE continued IS NOT NULL UNION ALL
        SELECT m.* EXCLUDE (continued), coalesce(t.trace_id, c.trace_id) AS heard_trace FROM marked m
        LEFT JOIN others o ON o.call_id = m.call_id
        LEFT JOIN traces t ON t.trace_id = o.named
        LEFT JOIN calls c ON c.call_id = m.call_id
        WHERE m.continued IS NULL
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
_KEYS: Final = ("trace_id", "response_id", "turn_index")
_ASKED: Final = (
    *("trace_id", "voice_to_voice_ns", "speech_end_audio_ns", *_POINTS),
    *("outcome", "phase_kind", "leading_silence_ns"),
)


class PairedTurns:
    """Each client turn of a filter beside the service's turn, where there is one, and what either side has alone.

    The table `services`, which belongs to the question, has the service's turns that belong to the filter's run or
    calls. Of the other side's turns only those are looked at which the filter's calls or its run can have. In a view by
    service and day the clients are all callers of about that time, and only the service's turns are paired.
    """

    def __init__(self, connection: StoreConnection, f: Filter) -> None:
        self._connection = connection
        self._filter = f
        is_service_view = source_of(f) == "service"
        then, mine = _about_then(connection, f), turns_of(f) & viewed(f)
        run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
        clients, services = mine, Condition(f"({run.sql}) OR ({then.sql})", (*run.values, *then.values))
        services &= Condition("source = 'service'")
        if is_service_view:
            clients, services = then & Condition("source = 'client'"), mine
        columns = ", ".join(
            dict.fromkeys([*_ASKED, *_KEYS, "call_id", "started_unix_ns", "span_id", "run_id", f"{CALL} AS call"])
        )
        # What is reported of one response more than once is there once. All rows are not sorted for the few of these.
        response = "coalesce(heard_trace, trace_id), coalesce(response_id, turn_index::VARCHAR)"
        connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE services AS
            WITH clients AS (SELECT trace_id, call_id FROM turns WHERE {clients.sql}),
            seen AS (SELECT {columns} FROM turns WHERE {services.sql}),
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
        heard = ", ".join(dict.fromkeys([*_ASKED, *_KEYS, f"{CALL} AS call"]))
        sides = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "cs" for name in (*_ASKED, "call"))
        same = """c.trace_id = s.heard_trace AND c.trace_id <> '' AND (
                c.response_id = s.response_id
                OR (c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL)))"""

        def joined(sampled: str, join: str) -> str:
            of_clients, of_services = (sampled, "true") if not is_service_view else ("true", sampled)
            return f"""(
                SELECT {sides} FROM (SELECT {heard} FROM turns WHERE {clients.sql} AND {of_clients}) c
                {join} JOIN (SELECT * FROM services WHERE {of_services}) s ON {same})"""

        # Whose turns the figures are taken over: what callers heard, in a view by service and day what that reported.
        self._whole = "s" if is_service_view else "c"
        self._values = clients.values
        self._pairs = joined("true", "RIGHT" if is_service_view else "FULL")
        # Of the side whose turns figures are taken over, those of the sampled calls, with what the other has of them.
        self._sampled = joined(f"call % {ONE_IN} = 0", "RIGHT" if is_service_view else "LEFT")

    def delta(self, *, is_many: bool = False) -> ClientServiceDelta:
        """Client-heard minus service-reported voice-to-voice over the turns that figures are taken over, none of a
        ramp, and what found no counterpart.

        Where a service does not say where it believes that speech ended, the difference is `uncorrected` for it.
        """
        steady = _steady(self._filter, "c")
        table = f"""(SELECT *, {self._whole}_call AS call, c_trace_id IS NOT NULL AND s_trace_id IS NOT NULL AS is_pair,
                       c_outcome <> 'invalid' AND c_voice_to_voice_ns IS NOT NULL AND {steady.sql} AS is_counted,
                       s_speech_end_audio_ns IS NULL OR c_speech_end_audio_ns IS NULL AS is_uncorrected,
                       CASE WHEN is_pair AND is_counted THEN c_voice_to_voice_ns - s_voice_to_voice_ns
                            - coalesce(s_speech_end_audio_ns - c_speech_end_audio_ns, 0) END AS difference_ns
                FROM {{pairs}})"""
        counts = (
            "max(abs(difference_ns)) AS abs_max",
            "count(*) FILTER (WHERE difference_ns IS NOT NULL AND is_uncorrected) AS uncorrected",
            "count(*) FILTER (WHERE s_trace_id IS NULL AND is_counted) AS client_only",
            "count(*) FILTER (WHERE c_trace_id IS NULL AND s_voice_to_voice_ns IS NOT NULL) AS service_only",
        )
        values = (*steady.values, *self._values)
        row = self._percentiles(Condition(table, values), {"difference": "difference_ns"}, counts, is_many=is_many)
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

    def _percentiles(
        self, table: Condition, columns: Mapping[str, str], counts: tuple[str, ...] = (), *, is_many: bool
    ) -> Row:
        """Those of columns of a table that is made of `{pairs}`, by name, and counts of its rows."""
        asked = GroupedValues(
            groups=Groups(),
            values=[Values(name, column) for name, column in columns.items()],
            table=table.sql.format(pairs=self._pairs),
            where=Condition("true", table.values),
            call="call",
            sampled=table.sql.format(pairs=self._sampled),
            counts=counts,
        )
        (row,) = percentiles(self._connection, asked, 1, is_many=is_many)
        return row

    def stage_budget(self, *, is_many: bool = False) -> dict[str, StageStats]:
        """Median and p95 of each stage over every valid turn with a voice-to-voice, ramps left out.

        The service's own points where it reported them, else the points as the client saw them. A transcript that came
        after the first token was not on the way to it: there the model's stage begins at the endpoint.
        """
        whole = self._whole
        steady = _steady(self._filter, whole)
        by_service = "s_voice_to_voice_ns IS NOT NULL"
        later = "0" if whole == "s" else "coalesce(s_speech_end_audio_ns - c_speech_end_audio_ns, 0)"
        points = ", ".join(f"CASE WHEN {by_service} THEN s_{name} ELSE c_{name} END AS {name}" for name in _POINTS)
        stages = Condition(
            f"""(
            WITH chosen AS (
                SELECT {by_service} AS by_service, {points}, {whole}_call AS call,
                       {whole}_voice_to_voice_ns AS total_ns, {whole}_leading_silence_ns AS leading_silence,
                       CASE WHEN {by_service} THEN {later} ELSE 0 END AS later_ns
                FROM {{pairs}} WHERE {whole}_outcome <> 'invalid' AND {whole}_voice_to_voice_ns > 0 AND {steady.sql}
            ),
            points AS (
                SELECT by_service, call, total_ns, leading_silence, speech_end_perf_ns - later_ns AS speech_end,
                       endpoint_perf_ns AS endpoint, llm_first_token_perf_ns AS token, tts_first_chunk_perf_ns AS chunk,
                       CASE WHEN asr_final_perf_ns <= llm_first_token_perf_ns
                             AND asr_final_perf_ns >= coalesce(endpoint_perf_ns, speech_end_perf_ns)
                            THEN asr_final_perf_ns END AS final
                FROM chosen
            ),
            stages AS (
                SELECT by_service, call, total_ns,
                       endpoint - speech_end AS endpointing,
                       final - coalesce(endpoint, speech_end) AS asr,
                       token - coalesce(final, endpoint, speech_end) AS llm,
                       chunk - token AS tts,
                       leading_silence
                FROM points
            )
            SELECT *, total_ns - coalesce(endpointing, 0) - coalesce(asr, 0) - coalesce(llm, 0) - coalesce(tts, 0)
                      - coalesce(leading_silence, 0) AS unexplained FROM stages)""",
            (*self._values, *steady.values),
        )
        row = self._percentiles(
            stages,
            {each: each for each in _STAGES} | {"by_service": "CASE WHEN by_service THEN 1 END"},
            is_many=is_many,
        )
        by_service = whole == "c" and row["n_by_service"] > 0
        return {stage: _stage(stage, row, by_service=by_service) for stage in _STAGES if row[f"n_{stage}"]}


def stage_budget(connection: StoreConnection, f: Filter = ANY) -> dict[str, StageStats]:
    """Where voice-to-voice goes: endpointing, asr, llm, tts, leading_silence, and what none of them explains
    (`unexplained`: network, playout). Stages that no turn shows are left out."""
    return PairedTurns(connection, f).stage_budget()


def _about_then(connection: StoreConnection, f: Filter) -> Condition:
    """When the other side of the filter's calls may have begun, which need not be of the same run."""
    if f.run_id is None:
        return Condition("false")
    where = turns_of(f) & viewed(f)
    statement = f"SELECT min(started_unix_ns) AS first, max(started_unix_ns) AS last FROM turns WHERE {where.sql}"
    (row,) = rows(connection, statement, list(where.values))
    if row["first"] is None:
        return Condition("false")
    return Condition("started_unix_ns BETWEEN ? AND ?", (row["first"] - SIDES_APART_NS, row["last"] + SIDES_APART_NS))


def _steady(f: Filter, side: str) -> Condition:
    """The pairs of which this side is of no ramp, unless the filter asks for a phase by its name."""
    return Condition("true") if f.phase is not None else Condition(f"{side}_phase_kind IS DISTINCT FROM ?", (RAMP,))


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
