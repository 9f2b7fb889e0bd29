"""Client turns beside what the service reported of them: how far the two agree, and where the time of a turn goes.

A response is known by its id within the call; where the wire shows no id, by the turn's place in it.
"""

# ruff: noqa: S608 - the identifiers in these statements are our own, every value is bound

from typing import Any, Final

from telemetry.model.semconv import RAMP
from telemetry.model.stats import enough
from telemetry.store.answers import REPORTED_STAGES, Filter, StageStats
from telemetry.store.client_service_delta import ClientServiceDelta
from telemetry.store.connection import SIDES_APART_NS, StoreConnection, rows
from telemetry.store.heard_traces import with_heard_trace
from telemetry.store.queries import Condition, source_of, turns_of, viewed

_STAGES: Final = ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained")
_POINTS: Final = (
    "speech_end_perf_ns",
    "endpoint_perf_ns",
    "asr_final_perf_ns",
    "llm_first_token_perf_ns",
    "tts_first_chunk_perf_ns",
)
# All that is asked of both sides.
_BOTH: Final = (
    "trace_id",
    "call_id",
    "response_id",
    "turn_index",
    "voice_to_voice_ns",
    "speech_end_audio_ns",
    *_POINTS,
)


def join_services(connection: StoreConnection, f: Filter) -> None:
    """Make the table `pairs`, for `client_service_delta` and `stage_budget` of the same filter: each client turn of the
    filter (columns `c_NAME`) beside the service's turn (`s_NAME`), where there is one; and the table `services`, of the
    service's turns that belong to the filter's run or calls.

    Of the other side's turns only those are looked at which the filter's calls or its run can have. In a view by
    service and day the clients are all callers of about that time.
    """
    is_service_view = source_of(f) == "service"
    then = _about_then(connection, f)
    where = turns_of(f) & viewed(f)
    run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    of_clients = f"{', '.join(_BOTH)}, outcome, phase_kind, leading_silence_ns, started_unix_ns"
    of_services = f"{of_clients}, span_id, run_id"
    clients = Condition(f"SELECT {of_clients} FROM turns WHERE {where.sql}", where.values)
    services = Condition(
        f"""
        SELECT {of_services} FROM turns WHERE source = 'service' AND ({run.sql} OR {then.sql})
        """,
        (*run.values, *then.values),
    )
    if is_service_view:
        clients = Condition(f"SELECT {of_clients} FROM turns WHERE source = 'client' AND {then.sql}", then.values)
        services = Condition(f"SELECT {of_services} FROM turns WHERE {where.sql}", where.values)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE clients AS {clients.sql}", list(clients.values))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE seen_services AS {services.sql}", list(services.values))
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE services AS
        SELECT * FROM ({with_heard_trace("seen_services", "clients")}) WHERE {run.sql} OR heard_trace IS NOT NULL
        QUALIFY row_number() OVER (
            PARTITION BY coalesce(heard_trace, trace_id), coalesce(response_id, turn_index::VARCHAR)
            ORDER BY started_unix_ns, span_id) = 1
        """,
        list(run.values),
    )
    columns = ", ".join(
        [f"c.{name} AS c_{name}" for name in (*_BOTH, "outcome", "phase_kind", "leading_silence_ns")]
        + [f"s.{name} AS s_{name}" for name in (*_BOTH, "outcome", "phase_kind", "leading_silence_ns", "span_id")]
    )
    joined = "RIGHT" if is_service_view else "LEFT"
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE pairs AS
        SELECT {columns} FROM clients c {joined} JOIN services s
        ON c.trace_id = s.heard_trace AND c.trace_id <> '' AND (
            c.response_id = s.response_id
            OR (c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL)))
        """
    )


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


def client_service_delta(connection: StoreConnection, f: Filter) -> ClientServiceDelta:
    """Client-heard minus service-reported voice-to-voice over the turns that figures are taken over, none of a ramp,
    and what found no counterpart.

    Where a service does not say where it believes that speech ended, the difference is `uncorrected` for it.
    """
    steady = _steady(f, "c")
    (row,) = rows(
        connection,
        f"""
        WITH differences AS (
            SELECT c_voice_to_voice_ns - s_voice_to_voice_ns
                   - coalesce(s_speech_end_audio_ns - c_speech_end_audio_ns, 0) AS difference_ns,
                   s_speech_end_audio_ns IS NULL OR c_speech_end_audio_ns IS NULL AS is_uncorrected
            FROM pairs
            WHERE s_trace_id IS NOT NULL AND c_outcome <> 'invalid' AND {steady.sql}
              AND c_voice_to_voice_ns IS NOT NULL AND s_voice_to_voice_ns IS NOT NULL
        )
        SELECT
            (SELECT count(*) FROM differences) AS joined,
            (SELECT count(*) FILTER (WHERE is_uncorrected) FROM differences) AS uncorrected,
            (SELECT quantile_cont(difference_ns, [0.5, 0.99]) FROM differences) AS q,
            (SELECT max(abs(difference_ns)) FROM differences) AS abs_max,
            (SELECT count(*) FROM pairs WHERE s_trace_id IS NULL AND c_outcome <> 'invalid' AND {steady.sql}
                AND c_voice_to_voice_ns IS NOT NULL) AS client_only,
            (SELECT count(*) FROM services s
             WHERE s.voice_to_voice_ns IS NOT NULL
               AND (s.trace_id, s.span_id) NOT IN (
                   SELECT (s_trace_id, s_span_id) FROM pairs WHERE s_trace_id IS NOT NULL AND c_trace_id IS NOT NULL)
            ) AS service_only
        """,
        [*steady.values, *steady.values],
    )
    p50, p99 = row["q"] if row["q"] is not None else (None, None)
    return ClientServiceDelta(
        joined=row["joined"],
        client_only=row["client_only"],
        service_only=row["service_only"],
        difference_p50_ns=p50,
        difference_p99_ns=enough("p99", row["joined"], p99),
        difference_abs_max_ns=None if row["abs_max"] is None else float(row["abs_max"]),
        uncorrected=row["uncorrected"],
    )


def _steady(f: Filter, side: str) -> Condition:
    """The pairs of which this side is of no ramp, unless the filter asks for a phase by its name."""
    return Condition("true") if f.phase is not None else Condition(f"{side}_phase_kind IS DISTINCT FROM ?", (RAMP,))


def stage_budget(connection: StoreConnection, f: Filter) -> dict[str, StageStats]:
    """Median and p95 of each stage over every valid turn with a voice-to-voice, ramps left out.

    The service's own points where it reported them, else the points as the client saw them. A transcript that came
    after the first token was not on the way to it: there the model's stage begins at the endpoint.
    """
    # What the turn waited in all: as the caller heard it, in a view by service and day as the service reported it.
    whole = "s" if source_of(f) == "service" else "c"
    steady = _steady(f, whole)
    by_service = "s_voice_to_voice_ns IS NOT NULL"
    later = "0" if whole == "s" else "coalesce(s_speech_end_audio_ns - c_speech_end_audio_ns, 0)"
    points = ", ".join(f"CASE WHEN {by_service} THEN s_{name} ELSE c_{name} END AS {name}" for name in _POINTS)
    quantiles = ", ".join(
        f"count({stage}) AS n_{stage}, quantile_cont({stage}, [0.5, 0.95]) AS q_{stage}" for stage in _STAGES
    )
    (row,) = rows(
        connection,
        f"""
        WITH chosen AS (
            SELECT {by_service} AS by_service, {points},
                   {whole}_voice_to_voice_ns AS total_ns, {whole}_leading_silence_ns AS leading_silence,
                   CASE WHEN {by_service} THEN {later} ELSE 0 END AS later_ns
            FROM pairs WHERE {whole}_outcome <> 'invalid' AND {whole}_voice_to_voice_ns > 0 AND {steady.sql}
        ),
        points AS (
            SELECT by_service, total_ns, leading_silence, speech_end_perf_ns - later_ns AS speech_end,
                   endpoint_perf_ns AS endpoint, llm_first_token_perf_ns AS token, tts_first_chunk_perf_ns AS chunk,
                   CASE WHEN asr_final_perf_ns <= llm_first_token_perf_ns
                         AND asr_final_perf_ns >= coalesce(endpoint_perf_ns, speech_end_perf_ns)
                        THEN asr_final_perf_ns END AS final
            FROM chosen
        ),
        stages AS (
            SELECT by_service, total_ns,
                   endpoint - speech_end AS endpointing,
                   final - coalesce(endpoint, speech_end) AS asr,
                   token - coalesce(final, endpoint, speech_end) AS llm,
                   chunk - token AS tts,
                   leading_silence
            FROM points
        ),
        whole AS (
            SELECT *, total_ns - coalesce(endpointing, 0) - coalesce(asr, 0) - coalesce(llm, 0) - coalesce(tts, 0)
                      - coalesce(leading_silence, 0) AS unexplained FROM stages
        )
        SELECT {quantiles}, coalesce(bool_or(by_service), false) AS by_service FROM whole
        """,
        list(steady.values),
    )
    row["by_service"] &= whole == "c"
    return {stage: _stage(stage, row) for stage in _STAGES if row[f"n_{stage}"]}


def _stage(stage: str, row: dict[str, Any]) -> StageStats:
    n, (p50, p95) = row[f"n_{stage}"], row[f"q_{stage}"]
    by_service = stage in REPORTED_STAGES and row["by_service"]
    return StageStats(name=stage, n=n, p50_ns=p50, p95_ns=enough("p95", n, p95), by_service=by_service)
