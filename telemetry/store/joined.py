"""Client turns beside what the service reported of them: how far the two agree, and where the time of a turn goes.

A response is known by its id within the trace; where the wire shows no id, by the turn's place in the call.
"""

# ruff: noqa: S608 - the identifiers in these statements are our own, every value is bound

from typing import Any, Final

from telemetry.model.semconv import RAMP
from telemetry.store.answers import ClientServiceDelta, Filter, StageStats, enough
from telemetry.store.connection import StoreConnection, near, rows
from telemetry.store.queries import CLIENT, Condition, turns_of

_STAGES: Final = ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained")
_POINTS: Final = (
    "speech_end_perf_ns",
    "endpoint_perf_ns",
    "asr_final_perf_ns",
    "llm_first_token_perf_ns",
    "tts_first_chunk_perf_ns",
)
# All that is asked of both sides.
_BOTH: Final = ("trace_id", "response_id", "turn_index", "voice_to_voice_ns", "speech_end_audio_ns", *_POINTS)


def join_services(connection: StoreConnection, f: Filter) -> None:
    """Make the table `pairs`, for `client_service_delta` and `stage_budget` of the same filter: each client turn of the
    filter (columns `c_NAME`) beside the service's turn (`s_NAME`), where there is one; and the table `services`, of the
    service's turns that belong to the filter's run or calls.

    Of the service's turns only those are looked at which the filter's calls or its run can have.
    """
    where = turns_of(f) & Condition(CLIENT)
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE clients AS
        SELECT {", ".join(_BOTH)}, outcome, phase_kind, leading_silence_ns, started_unix_ns FROM turns WHERE {where.sql}
        """,
        list(where.values),
    )
    _look_at_services_of(connection, f)
    run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    columns = f"{', '.join(_BOTH)}, span_id, run_id, started_unix_ns"
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE services AS
        SELECT * FROM (
            SELECT {columns} FROM run_turns WHERE source = 'service' AND {run.sql}
            UNION ALL
            SELECT {columns} FROM strange_services
            WHERE source = 'service' AND NOT ({run.sql}) AND trace_id IN (SELECT trace_id FROM clients)
        )
        QUALIFY row_number() OVER (
            PARTITION BY trace_id, coalesce(response_id, turn_index::VARCHAR) ORDER BY started_unix_ns, span_id) = 1
        """,
        [*run.values, *run.values],
    )
    columns = ", ".join(
        [f"c.{name} AS c_{name}" for name in (*_BOTH, "outcome", "phase_kind", "leading_silence_ns")]
        + [f"s.{name} AS s_{name}" for name in (*_BOTH, "span_id")]
    )
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE pairs AS
        SELECT {columns} FROM clients c LEFT JOIN services s
        ON c.trace_id = s.trace_id AND c.trace_id <> '' AND (
            c.response_id = s.response_id
            OR (c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL)))
        """
    )


def _look_at_services_of(connection: StoreConnection, f: Filter) -> None:
    """Make the view `strange_services` of the turns of other runs among which services of the filter's calls may be:
    those of about the same time, as a service need not know the run of its caller."""
    segments = []
    if f.run_id is not None:
        statement = "SELECT min(started_unix_ns) AS first, max(started_unix_ns) AS last FROM clients"
        (row,) = rows(connection, statement)
        others = [each for each in connection.segments("turns") if each.run_ids != (f.run_id,)]
        segments = near(others, row["first"], row["last"])
    connection.view("strange_services", "turns", segments)


def client_service_delta(connection: StoreConnection, f: Filter) -> ClientServiceDelta:
    """Client-heard minus service-reported voice-to-voice, and what found no counterpart."""
    run = Condition("true") if f.run_id is None else Condition("s.run_id = ?", (f.run_id,))
    (row,) = rows(
        connection,
        f"""
        WITH differences AS (
            SELECT c_voice_to_voice_ns - s_voice_to_voice_ns
                   - (s_speech_end_audio_ns - c_speech_end_audio_ns) AS difference_ns
            FROM pairs
            WHERE s_trace_id IS NOT NULL AND c_outcome <> 'invalid'
              AND c_voice_to_voice_ns IS NOT NULL AND s_voice_to_voice_ns IS NOT NULL
        )
        SELECT
            (SELECT count(*) FROM differences) AS joined,
            (SELECT count(difference_ns) FROM differences) AS comparable,
            (SELECT quantile_cont(difference_ns, [0.5, 0.99]) FROM differences) AS q,
            (SELECT max(abs(difference_ns)) FROM differences) AS abs_max,
            (SELECT count(*) FROM pairs WHERE s_trace_id IS NULL AND c_outcome <> 'invalid'
                AND c_voice_to_voice_ns IS NOT NULL) AS client_only,
            -- A service that does not know the run is still one side of it when a call of the run has its trace.
            (SELECT count(*) FROM services s
             WHERE ({run.sql} OR s.trace_id IN (SELECT trace_id FROM clients)) AND s.voice_to_voice_ns IS NOT NULL
               AND (s.trace_id, s.span_id) NOT IN (
                   SELECT (s_trace_id, s_span_id) FROM pairs WHERE s_trace_id IS NOT NULL)) AS service_only
        """,
        list(run.values),
    )
    p50, p99 = row["q"] if row["q"] is not None else (None, None)
    return ClientServiceDelta(
        joined=row["joined"],
        client_only=row["client_only"],
        service_only=row["service_only"],
        difference_p50_ns=p50,
        difference_p99_ns=enough("p99", row["comparable"], p99),
        difference_abs_max_ns=None if row["abs_max"] is None else float(row["abs_max"]),
    )


def stage_budget(connection: StoreConnection, f: Filter) -> dict[str, StageStats]:
    """Median and p95 of each stage over every valid turn with a voice-to-voice, ramps left out.

    The service's own points where it reported them, else the points as the client saw them. A transcript that came
    after the first token was not on the way to it: there the model's stage begins at the endpoint.
    """
    steady = Condition("true") if f.phase is not None else Condition("c_phase_kind IS DISTINCT FROM ?", (RAMP,))
    by_service = "s_voice_to_voice_ns IS NOT NULL"
    points = ", ".join(f"CASE WHEN {by_service} THEN s_{name} ELSE c_{name} END AS {name}" for name in _POINTS)
    quantiles = ", ".join(
        f"count({stage}) AS n_{stage}, quantile_cont({stage}, [0.5, 0.95]) AS q_{stage}" for stage in _STAGES
    )
    (row,) = rows(
        connection,
        f"""
        WITH chosen AS (
            SELECT c_voice_to_voice_ns AS total_ns, c_leading_silence_ns AS leading_silence, {points},
                   CASE WHEN {by_service} THEN coalesce(s_speech_end_audio_ns - c_speech_end_audio_ns, 0)
                        ELSE 0 END AS later_ns
            FROM pairs WHERE c_outcome <> 'invalid' AND c_voice_to_voice_ns > 0 AND {steady.sql}
        ),
        points AS (
            SELECT total_ns, leading_silence, speech_end_perf_ns - later_ns AS speech_end,
                   endpoint_perf_ns AS endpoint, llm_first_token_perf_ns AS token, tts_first_chunk_perf_ns AS chunk,
                   CASE WHEN asr_final_perf_ns <= llm_first_token_perf_ns
                         AND asr_final_perf_ns >= coalesce(endpoint_perf_ns, speech_end_perf_ns)
                        THEN asr_final_perf_ns END AS final
            FROM chosen
        ),
        stages AS (
            SELECT total_ns,
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
        SELECT {quantiles} FROM whole
        """,
        list(steady.values),
    )
    return {stage: _stage(stage, row) for stage in _STAGES if row[f"n_{stage}"]}


def _stage(stage: str, row: dict[str, Any]) -> StageStats:
    n, (p50, p95) = row[f"n_{stage}"], row[f"q_{stage}"]
    return StageStats(name=stage, n=n, p50_ns=p50, p95_ns=enough("p95", n, p95))
