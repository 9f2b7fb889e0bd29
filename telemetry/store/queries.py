"""The SQL of the store's questions: statements over the views `turns`, `spans` and `points`, values bound.

A metric's percentiles are `quantile_cont` over the raw values (linear between neighbors, as numpy's default).
"""

# ruff: noqa: S608 - the identifiers in these statements come from the metric table, every value is bound

from dataclasses import dataclass
from typing import Any, Final

from telemetry.model.metrics import CONNECT, ITL, METRICS, NOT_OF_AN_ANSWER, Metric, shown_in
from telemetry.model.semconv import RAMP, UNANSWERED
from telemetry.store.answers import Filter

# Client-heard and not blamed on the instrument: what every figure of the service is taken over.
VALID_CLIENT: Final = "source = 'client' AND outcome <> 'invalid'"
CLIENT: Final = "source = 'client'"
FRACTIONS: Final = "[0.5, 0.95, 0.99]"
ASKED: Final = "turn_kind IS DISTINCT FROM 'silence'"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a WHERE clause with its values."""

    sql: str
    values: tuple[Any, ...] = ()

    def __and__(self, other: "Condition") -> "Condition":
        return Condition(f"({self.sql}) AND ({other.sql})", (*self.values, *other.values))


def turns_of(f: Filter) -> Condition:
    """The turns a filter means, of either source."""
    parts: list[str] = ["true"]
    values: list[Any] = []
    for column in ("run_id", "cohort", "target", "noise_profile", "length_class", "channel_profile", "route", "phase"):
        wanted = getattr(f, column)
        if wanted is not None:
            parts.append(f"{column} = ?")
            values.append(wanted)
    return Condition(" AND ".join(parts), tuple(values)) & _within("started_unix_ns", f)


def points_of(f: Filter) -> Condition:
    """The metric points a filter means: they carry their run and their time only."""
    run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    return run & _within("unix_ns", f)


def is_by_turn(f: Filter) -> bool:
    """Whether the filter asks for something that only turns carry."""
    return f.phase is not None or asks_beyond_phases(f)


def asks_beyond_phases(f: Filter) -> bool:
    """Whether the filter asks for something of a turn that has nothing to do with when it began."""
    return any((f.cohort, f.target, f.noise_profile, f.length_class, f.channel_profile, f.route))


def _within(column: str, f: Filter) -> Condition:
    condition = Condition("true")
    if f.since_unix_ns is not None:
        condition &= Condition(f"{column} >= ?", (f.since_unix_ns,))
    if f.until_unix_ns is not None:
        condition &= Condition(f"{column} < ?", (f.until_unix_ns,))
    return condition


def metric_column(metric: str) -> str:
    """The column of a metric's value on a turn; for `itl` the turn's worst gap. Raises KeyError for another name."""
    return "list_max(llm_chunk_gaps_ns)" if metric == ITL else METRICS[metric].column


def judged(f: Filter) -> Condition:
    """The turns over which figures are taken: none of a ramp, unless the filter asks for it by its name."""
    steady = Condition("true") if f.phase is not None else Condition("phase_kind IS DISTINCT FROM ?", (RAMP,))
    return turns_of(f) & steady


def grouped(f: Filter) -> Condition:
    """The turns over which counts and metrics are taken: a silent turn asked nothing and is counted apart."""
    return judged(f) & Condition(f"{CLIENT} AND {ASKED}")


_UNREAD: Final = "count(*) FILTER (WHERE endpoint_did_not_read AND outcome <> 'invalid')"
DIMENSIONS: Final = ("cohort", "target", "noise_profile", "length_class", "route", "phase")


def dimension_values(f: Filter) -> tuple[str, list[Any]]:
    """One row with a sorted list of the values of each dimension."""
    where = turns_of(f) & Condition(CLIENT)
    lists = ", ".join(
        f"list_sort(array_agg(DISTINCT {name}) FILTER (WHERE {name} IS NOT NULL)) AS {name}" for name in DIMENSIONS
    )
    return f"SELECT {lists} FROM turns WHERE {where.sql}", list(where.values)


_UNANSWERED: Final = f"outcome IN ({', '.join(repr(outcome) for outcome in UNANSWERED)})"


def _metric_columns(metric: Metric) -> str:
    """Count, maximum and quantiles of a metric over valid turns. `u_` counts valid turns that no answer came to, and no
    value; of `connect` calls that could not be connected."""
    valid, value, name = "FILTER (WHERE outcome <> 'invalid')", metric.column, metric.name
    return (
        f"count({value}) {valid} AS n_{name}, max({value}) {valid} AS max_{name}, "
        f"quantile_cont({value}, {FRACTIONS}) {valid} AS q_{name}, "
        f"count(*) FILTER (WHERE {_without_value(metric)}) AS u_{name}"
    )


def _without_value(metric: Metric) -> str:
    if metric.name == CONNECT:
        return f"outcome = 'error' AND turn_index = 0 AND {metric.column} IS NULL"
    return "false" if metric.name in NOT_OF_AN_ANSWER else f"{_UNANSWERED} AND {metric.column} IS NULL"


def totals(f: Filter) -> tuple[str, list[Any]]:
    """One row for all client turns (`is_total`) and one per cohort: counts, shares and every metric's quantiles."""
    valid = "FILTER (WHERE outcome <> 'invalid')"
    metrics = ", ".join(_metric_columns(metric) for metric in METRICS.values())
    where = grouped(f)
    return (
        f"""
        SELECT grouping(cohort) = 1 AS is_total, cohort, count(*) AS total,
               count(*) FILTER (WHERE outcome = 'ok') AS ok,
               count(*) {valid} AS valid, {_UNREAD} AS unread,
               count(cache_hit) {valid} AS cache_reported,
               count(*) FILTER (WHERE cache_hit AND outcome <> 'invalid') AS cache_hits,
               max(ended_unix_ns) AS newest_unix_ns, {metrics}
        FROM turns WHERE {where.sql} GROUP BY GROUPING SETS ((), (cohort)) ORDER BY cohort
        """,
        list(where.values),
    )


def behavior(f: Filter) -> tuple[str, list[Any]]:
    """One row on how callers behaved: counts over the valid client turns."""
    where = judged(f) & Condition(VALID_CLIENT)
    counts = {
        "barge_ins": "barge_in_at_ns IS NOT NULL",
        "barge_ins_recovered": "barge_in_recovered",
        "barge_ins_missed": "barge_in_at_ns IS NULL AND barge_in_reason IS NOT NULL",
        "backchannels": "backchannel_stopped IS NOT NULL",
        "backchannels_stopped": "backchannel_stopped",
        "silent_turns": "turn_kind = 'silence'",
        "reprompted": "reprompted",
        "intents_expected": "expected_intent IS NOT NULL",
        "intents_reported": "expected_intent IS NOT NULL AND intent IS NOT NULL",
        "intents_matched": "expected_intent = intent",
    }
    columns = ", ".join(f"count(*) FILTER (WHERE {condition}) AS {name}" for name, condition in counts.items())
    return f"SELECT {columns} FROM turns WHERE {where.sql}", list(where.values)


def gap_totals(f: Filter) -> tuple[str, list[Any]]:
    """As `totals`, for the gaps between pieces of answer text: over all gaps of all turns."""
    where = judged(f) & Condition(VALID_CLIENT)
    return (
        f"""
        SELECT grouping(cohort) = 1 AS is_total, cohort, count(gap) AS n, max(gap) AS max,
               quantile_cont(gap, [0.5, 0.95, 0.99]) AS q
        FROM (SELECT cohort, unnest(llm_chunk_gaps_ns) AS gap FROM turns WHERE {where.sql})
        GROUP BY GROUPING SETS ((), (cohort))
        """,
        list(where.values),
    )


PHASE_METRICS: Final = shown_in("phases")


def phases(f: Filter) -> tuple[str, list[Any]]:
    """A row per phase in the order of time, the ramps too: counts and the quantiles of PHASE_METRICS."""
    valid = "FILTER (WHERE outcome <> 'invalid')"
    metrics = ", ".join(_metric_columns(METRICS[name]) for name in PHASE_METRICS)
    where = turns_of(f) & Condition(f"{CLIENT} AND {ASKED} AND phase IS NOT NULL")
    return (
        f"""
        SELECT phase, any_value(phase_kind) AS kind, min(started_unix_ns) AS first_unix_ns, count(*) AS total,
               count(*) FILTER (WHERE outcome = 'ok') AS ok, count(*) {valid} AS valid, {_UNREAD} AS unread, {metrics}
        FROM turns WHERE {where.sql} GROUP BY phase ORDER BY first_unix_ns, phase
        """,
        list(where.values),
    )


def phase_outcomes(f: Filter) -> tuple[str, list[Any]]:
    """Counts by phase, outcome and, of invalid turns, reason."""
    where = turns_of(f) & Condition(f"{CLIENT} AND {ASKED} AND phase IS NOT NULL")
    return (
        f"""
        SELECT phase, outcome, NULL AS reason, count(*) AS n FROM turns WHERE {where.sql} GROUP BY ALL
        UNION ALL
        SELECT phase, outcome, reason, count(*) AS n
        FROM (SELECT phase, outcome, unnest(invalid_reasons) AS reason FROM turns
              WHERE {where.sql} AND outcome = 'invalid') GROUP BY ALL
        """,
        [*where.values, *where.values],
    )


def names(f: Filter) -> tuple[str, list[Any]]:
    """Counts by outcome, and of valid turns by fallback, route and tier of a hit, per cohort."""
    where = grouped(f)
    return (
        f"""
        SELECT cohort, outcome, fallback, route, cache_tier, cache_hit, count(*) AS n
        FROM turns WHERE {where.sql} GROUP BY ALL
        """,
        list(where.values),
    )


def invalid_reasons(f: Filter) -> tuple[str, list[Any]]:
    """How many turns each reason made invalid, per cohort."""
    where = grouped(f) & Condition("outcome = 'invalid'")
    return (
        f"""
        SELECT cohort, reason, count(*) AS n
        FROM (SELECT cohort, unnest(invalid_reasons) AS reason FROM turns WHERE {where.sql}) GROUP BY ALL
        """,
        list(where.values),
    )


def cut_reasons(f: Filter) -> tuple[str, list[Any]]:
    """How many turns each thing of the generator's cut, per cohort, the commonest first."""
    where = grouped(f) & Condition("outcome = 'cut'")
    return (
        f"""
        SELECT cohort, coalesce(cut_by, 'not reported') AS reason, count(*) AS n FROM turns WHERE {where.sql}
        GROUP BY ALL ORDER BY n DESC, reason
        """,
        list(where.values),
    )


def withheld_reasons(f: Filter) -> tuple[str, list[Any]]:
    """What the wire could not show, the commonest first."""
    where = judged(f) & Condition(VALID_CLIENT)
    return (
        f"""
        SELECT cohort, metric, reason, count(*) AS n
        FROM (SELECT cohort, unnest(withheld_metrics) AS metric, unnest(withheld_reasons) AS reason
              FROM turns WHERE {where.sql})
        WHERE metric IS NOT NULL GROUP BY ALL ORDER BY n DESC, metric, reason
        """,
        list(where.values),
    )


def joined_service(where: Condition) -> tuple[str, list[Any]]:
    """A common table `pairs`: each client turn of the condition beside the service's turn, where there is one.

    A response is known by its id within the trace; where the wire shows no id, by the turn's place in the call.
    """
    return (
        f"""
        clients AS (SELECT * FROM turns WHERE source = 'client' AND {where.sql}),
        services AS (
            SELECT * FROM turns WHERE source = 'service'
            QUALIFY row_number() OVER (
                PARTITION BY trace_id, coalesce(response_id, turn_index::VARCHAR) ORDER BY started_unix_ns, span_id) = 1
        ),
        pairs AS (
            SELECT c AS client, s AS service FROM clients c LEFT JOIN services s
            ON c.trace_id = s.trace_id AND c.trace_id <> '' AND (
                c.response_id = s.response_id
                OR (c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL)))
        )
        """,
        list(where.values),
    )


def client_service_delta(f: Filter) -> tuple[str, list[Any]]:
    """Client-heard minus service-reported voice-to-voice, and what found no counterpart."""
    pairs, values = joined_service(turns_of(f))
    run = Condition("true") if f.run_id is None else Condition("s.run_id = ?", (f.run_id,))
    # A service that does not know the run is still one side of it when a call of the run has its trace.
    service = "(" + run.sql + " OR s.trace_id IN (SELECT trace_id FROM clients))"
    return (
        f"""
        WITH {pairs},
        differences AS (
            SELECT client.voice_to_voice_ns - service.voice_to_voice_ns
                   - (service.speech_end_audio_ns - client.speech_end_audio_ns) AS difference_ns
            FROM pairs
            WHERE service.trace_id IS NOT NULL AND client.outcome <> 'invalid'
              AND client.voice_to_voice_ns IS NOT NULL AND service.voice_to_voice_ns IS NOT NULL
        )
        SELECT
            (SELECT count(*) FROM differences) AS joined,
            (SELECT count(difference_ns) FROM differences) AS comparable,
            (SELECT quantile_cont(difference_ns, [0.5, 0.99]) FROM differences) AS q,
            (SELECT max(abs(difference_ns)) FROM differences) AS abs_max,
            (SELECT count(*) FROM pairs WHERE service.trace_id IS NULL AND client.outcome <> 'invalid'
                AND client.voice_to_voice_ns IS NOT NULL) AS client_only,
            (SELECT count(*) FROM services s WHERE {service} AND s.voice_to_voice_ns IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM pairs WHERE service.trace_id = s.trace_id AND service.span_id = s.span_id)
            ) AS service_only
        """,
        [*values, *run.values],
    )


def stage_budget(f: Filter) -> tuple[str, list[Any]]:
    """Rows `stage, n, q` (median and p95 in ns) of every valid turn with a voice-to-voice.

    The service's own points where it reported them, else the points as the client saw them. A transcript that came
    after the first token was not on the way to it: there the model's stage begins at the endpoint.
    """
    pairs, values = joined_service(judged(f))
    return (
        f"""
        WITH {pairs},
        chosen AS (
            SELECT client.voice_to_voice_ns AS total_ns,
                   CASE WHEN service.voice_to_voice_ns IS NOT NULL THEN service ELSE client END AS t,
                   client.leading_silence_ns AS leading_silence_ns,
                   coalesce(service.speech_end_audio_ns - client.speech_end_audio_ns, 0) AS later_ns,
                   service.voice_to_voice_ns IS NOT NULL AS by_service
            FROM pairs WHERE client.outcome <> 'invalid' AND client.voice_to_voice_ns > 0
        ),
        points AS (
            SELECT total_ns, leading_silence_ns,
                   t.speech_end_perf_ns - CASE WHEN by_service THEN later_ns ELSE 0 END AS speech_end,
                   t.endpoint_perf_ns AS endpoint, t.llm_first_token_perf_ns AS token,
                   t.tts_first_chunk_perf_ns AS chunk,
                   CASE WHEN t.asr_final_perf_ns <= t.llm_first_token_perf_ns
                         AND t.asr_final_perf_ns >= coalesce(t.endpoint_perf_ns, t.speech_end_perf_ns)
                        THEN t.asr_final_perf_ns END AS final
            FROM chosen
        ),
        stages AS (
            SELECT total_ns,
                   endpoint - speech_end AS endpointing,
                   final - coalesce(endpoint, speech_end) AS asr,
                   token - coalesce(final, endpoint, speech_end) AS llm,
                   chunk - token AS tts,
                   leading_silence_ns AS leading_silence
            FROM points
        ),
        whole AS (
            SELECT *, total_ns - coalesce(endpointing, 0) - coalesce(asr, 0) - coalesce(llm, 0) - coalesce(tts, 0)
                      - coalesce(leading_silence, 0) AS unexplained FROM stages
        )
        SELECT stage, count(ns) AS n, quantile_cont(ns, [0.5, 0.95]) AS q
        FROM (UNPIVOT whole ON endpointing, asr, llm, tts, leading_silence, unexplained INTO NAME stage VALUE ns)
        GROUP BY stage
        """,
        values,
    )
