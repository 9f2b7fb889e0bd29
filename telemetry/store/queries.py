"""The SQL of the store's questions: statements over the views `turns`, `spans` and `points`, values bound.

A metric's percentiles are `quantile_cont` over the raw values (linear between neighbors, as numpy's default).
"""

# ruff: noqa: S608 - the identifiers in these statements come from the metric table, every value is bound

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from telemetry.model.bounds import BOUNDED
from telemetry.model.metrics import CONNECT, HEADLINE, ITL, METRICS, NOT_OF_AN_ANSWER, Metric, Side, shown_in
from telemetry.model.semconv import RAMP, UNANSWERED, Source
from telemetry.model.service_runs import SERVICE_RUN_PREFIX, service_day
from telemetry.model.validity import NOT_AS_RECORDED
from telemetry.store.answers import Filter

# Which turns count among those of any run: what its callers heard, in a view by service and day what that reported.
VIEWED: Final = f"source = CASE WHEN starts_with(run_id, '{SERVICE_RUN_PREFIX}') THEN 'service' ELSE 'client' END"
_VALID: Final = "outcome <> 'invalid'"
FRACTIONS: Final = "[0.5, 0.95, 0.99]"
ASKED: Final = "turn_kind IS DISTINCT FROM 'silence'"
# Which turns the figures of a whole run are taken over.
COUNTED: Final = f"{ASKED} AND phase_kind IS DISTINCT FROM '{RAMP}'"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a WHERE clause with its values."""

    sql: str
    values: tuple[Any, ...] = ()

    def __and__(self, other: "Condition") -> "Condition":
        return Condition(f"({self.sql}) AND ({other.sql})", (*self.values, *other.values))


def source_of(f: Filter) -> Source:
    """Who saw the turns that a filter's figures are taken over: its callers, or in a view by service and day the
    service."""
    return "client" if f.run_id is None or service_day(f.run_id) is None else "service"


def viewed(f: Filter) -> Condition:
    """The turns of one source that a filter's figures are taken over: never both sides of one turn."""
    return Condition(f"source = '{source_of(f)}'")


def valid(f: Filter) -> Condition:
    """As `viewed`, without those that are blamed on the instrument: what every figure of the service is taken over."""
    return viewed(f) & Condition(_VALID)


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


def farthest_from_0(column: str) -> str:
    """The value of a column that is farthest from 0, with its sign; of two as far, the positive one, so that the same
    store gives the same answer each time."""
    return f"CASE WHEN max({column}) >= -min({column}) THEN max({column}) ELSE min({column}) END"


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


def is_all_within(f: Filter, first_unix_ns: int, last_unix_ns: int) -> bool:
    """Whether a filter's time holds all moments from the first to the last."""
    return (f.since_unix_ns or 0) <= first_unix_ns and (f.until_unix_ns is None or last_unix_ns < f.until_unix_ns)


def may_be_within(f: Filter, first_unix_ns: int, last_unix_ns: int) -> bool:
    """Whether a filter's time holds some moment from the first to the last."""
    return (f.since_unix_ns or 0) <= last_unix_ns and (f.until_unix_ns is None or first_unix_ns < f.until_unix_ns)


def metric_column(metric: str) -> str:
    """The column of a metric's value on a turn; for `itl` the turn's worst gap. Raises KeyError for another name."""
    return "list_max(llm_chunk_gaps_ns)" if metric == ITL else METRICS[metric].column


def judged(f: Filter) -> Condition:
    """The turns over which figures are taken: none of a ramp, unless the filter asks for it by its name."""
    steady = Condition("true") if f.phase is not None else Condition("phase_kind IS DISTINCT FROM ?", (RAMP,))
    return turns_of(f) & steady


def grouped(f: Filter) -> Condition:
    """The turns over which counts and metrics are taken: a silent turn asked nothing and is counted apart."""
    return judged(f) & viewed(f) & Condition(ASKED)


UNREAD: Final = "count(*) FILTER (WHERE endpoint_did_not_read AND outcome <> 'invalid')"
DIMENSIONS: Final = ("cohort", "target", "noise_profile", "length_class", "route", "phase")


def dimension_values(f: Filter) -> tuple[str, list[Any]]:
    """One row with a sorted list of the values of each dimension."""
    where = turns_of(f) & viewed(f)
    lists = ", ".join(
        f"list_sort(array_agg(DISTINCT {name}) FILTER (WHERE {name} IS NOT NULL)) AS {name}" for name in DIMENSIONS
    )
    return f"SELECT {lists} FROM turns WHERE {where.sql}", list(where.values)


# As `judgment.is_unanswered`.
IS_UNANSWERED: Final = f"""(outcome IN ({", ".join(repr(outcome) for outcome in UNANSWERED)})
    OR (outcome = 'interrupted' AND failure_kind IS NOT DISTINCT FROM 'interrupted' AND first_audio_perf_ns IS NULL
        AND voice_to_voice_ns IS NULL AND (NOT coalesce(list_contains(withheld_metrics, 'voice_to_voice'), false)
            OR (llm_first_token_perf_ns IS NULL AND asr_final_perf_ns IS NULL))))"""


def _metric_columns(metrics: Iterable[Metric]) -> str:
    """Count, maximum and quantiles of metrics over valid turns.

    Of a statement that is about valid turns only: each quantile behind a FILTER takes five times as long.
    """
    return ", ".join(
        f"count({metric.column}) AS n_{metric.name}, max({metric.column}) AS max_{metric.name}, "
        f"quantile_cont({metric.column}, {FRACTIONS}) AS q_{metric.name}"
        for metric in metrics
    )


def _bounded_columns(metrics: Iterable[Metric]) -> str:
    """As `_metric_columns`, of metrics that may be off also the maximum and the quantiles of the lower bounds of their
    values and those of the upper bounds, and how many values are without bounds: these may lie anywhere, and count as
    infinite on either side."""
    metrics = list(metrics)
    columns = [_metric_columns(metrics)]
    for metric in (each for each in metrics if each in BOUNDED):
        columns.append(f"count({metric.column}) - count({metric.bound_column('lower')}) AS unknown_{metric.name}")
        anywhere: tuple[tuple[Side, str], ...] = (("lower", "-infinity"), ("upper", "infinity"))
        for side, infinity in anywhere:
            bound = f"coalesce({metric.bound_column(side)}, '{infinity}'::DOUBLE)"
            at = f"CASE WHEN {metric.column} IS NOT NULL THEN {bound} END"
            columns.append(
                f"max({at}) AS max_{side}_{metric.name}, quantile_cont({at}, {FRACTIONS}) AS q_{side}_{metric.name}"
            )
    return ", ".join(columns)


def _lacking_columns(metrics: Iterable[Metric]) -> str:
    """Of turns that no answer came to: those without a value of a metric; of `connect` calls that could not be
    connected."""
    return ", ".join(f"count(*) FILTER (WHERE {_without_value(metric)}) AS u_{metric.name}" for metric in metrics)


def _without_value(metric: Metric) -> str:
    if metric.name == CONNECT:
        return f"outcome = 'error' AND turn_index = 0 AND {metric.column} IS NULL"
    return "false" if metric.name in NOT_OF_AN_ANSWER else f"{IS_UNANSWERED} AND {metric.column} IS NULL"


def _of_turns(metrics: Iterable[Metric]) -> list[Metric]:
    """All but that of a call."""
    return [metric for metric in metrics if metric.name != CONNECT]


_CONNECTING: Final = f"{_bounded_columns([METRICS[CONNECT]])}, {_lacking_columns([METRICS[CONNECT]])}"
_OF_BOTH: Final = "grouping(cohort) = 1 AS is_total, cohort"
_BY_COHORT: Final = "GROUP BY GROUPING SETS ((), (cohort))"
_LACKING: Final = f"outcome = 'error' OR {IS_UNANSWERED}"


def totals(f: Filter) -> tuple[str, list[Any]]:
    """One row for all client turns (`is_total`) and one per cohort: counts and shares."""
    valid = "FILTER (WHERE outcome <> 'invalid')"
    where = grouped(f)
    return (
        f"""
        SELECT {_OF_BOTH}, count(*) AS total,
               count(*) FILTER (WHERE outcome = 'ok') AS ok,
               count(*) {valid} AS valid, {UNREAD} AS unread,
               count(cache_hit) {valid} AS cache_reported,
               count(*) FILTER (WHERE cache_hit AND outcome <> 'invalid') AS cache_hits,
               max(ended_unix_ns) AS newest_unix_ns
        FROM turns WHERE {where.sql} {_BY_COHORT} ORDER BY cohort
        """,
        list(where.values),
    )


def metric_totals(f: Filter) -> tuple[str, list[Any]]:
    """As `totals`, the count, maximum and quantiles of metrics over the valid turns, with those of their bounds."""
    return _totals_of(f, _bounded_columns(_of_turns(METRICS.values())))


def headline_totals(f: Filter) -> tuple[str, list[Any]]:
    """As `metric_totals`, for the headline alone and without bounds."""
    return _totals_of(f, _metric_columns([METRICS[HEADLINE]]))


def _totals_of(f: Filter, columns: str) -> tuple[str, list[Any]]:
    where = grouped(f) & Condition(_VALID)
    return f"SELECT {_OF_BOTH}, {columns} FROM turns WHERE {where.sql} {_BY_COHORT}", list(where.values)


def connect_totals(f: Filter) -> tuple[str, list[Any]]:
    """As `metric_totals` and `lacking_totals`, for connecting: a call connects, whatever its first turn asks."""
    where = judged(f) & valid(f)
    return f"SELECT {_OF_BOTH}, {_CONNECTING} FROM turns WHERE {where.sql} {_BY_COHORT}", list(where.values)


def lacking_totals(f: Filter) -> tuple[str, list[Any]]:
    """As `totals`, how many turns that no answer came to lack a value of each metric."""
    where = grouped(f) & Condition(_LACKING)
    return (
        f"SELECT {_OF_BOTH}, {_lacking_columns(_of_turns(METRICS.values()))} FROM turns WHERE {where.sql} {_BY_COHORT}",
        list(where.values),
    )


# Which of the valid turns each count of `behavior` counts.
BEHAVIOR: Final = {
    "barge_ins": "barge_in_at_ns IS NOT NULL",
    "barge_ins_recovered": "barge_in_recovered",
    "barge_ins_stopped": "barge_in_end = 'stopped'",
    "barge_ins_ended": "barge_in_end = 'ended_by_itself'",
    "barge_ins_not_stopped": "barge_in_end = 'never_stopped'",
    "barge_ins_unclear": "barge_in_end = 'cannot_tell'",
    "barge_ins_missed": "barge_in_at_ns IS NULL AND barge_in_reason IS NOT NULL",
    "backchannels": "backchannel_stopped IS NOT NULL",
    "backchannels_stopped": "backchannel_stopped",
    "silent_turns": "turn_kind = 'silence'",
    "reprompted": "reprompted",
    "intents_expected": "expected_intent IS NOT NULL",
    "intents_reported": "expected_intent IS NOT NULL AND intent IS NOT NULL",
    "intents_matched": "expected_intent = intent",
}


# Which of the valid turns tell whether a cache answered what was asked: those of which both intents are known.
_JUDGED_ANSWER: Final = "turn_kind IS DISTINCT FROM 'silence' AND expected_intent IS NOT NULL AND intent IS NOT NULL"
ANSWERS_OF_CACHE: Final = {
    "hits_judged": f"cache_hit AND {_JUDGED_ANSWER}",
    "hits_false": f"cache_hit AND {_JUDGED_ANSWER} AND expected_intent <> intent",
    "misses_judged": f"NOT cache_hit AND {_JUDGED_ANSWER}",
    "misses_false": f"NOT cache_hit AND {_JUDGED_ANSWER} AND expected_intent <> intent",
}


def answers_of_cache(f: Filter) -> tuple[str, list[Any]]:
    """One row: how many hits and misses were judged by their intents, and how many answered another intent."""
    where = judged(f) & valid(f)
    columns = ", ".join(f"count(*) FILTER ({condition}) AS {name}" for name, condition in ANSWERS_OF_CACHE.items())
    return f"SELECT {columns} FROM turns WHERE {where.sql}", list(where.values)


def behavior(f: Filter) -> tuple[str, list[Any]]:
    """One row on how callers behaved: counts over the valid client turns."""
    where = judged(f) & valid(f)
    columns = ", ".join(f"count(*) FILTER (WHERE {condition}) AS {name}" for name, condition in BEHAVIOR.items())
    return f"SELECT {columns} FROM turns WHERE {where.sql}", list(where.values)


def gap_totals(f: Filter) -> tuple[str, list[Any]]:
    """As `totals`, for the gaps between pieces of answer text: over all gaps of all turns."""
    where = judged(f) & valid(f)
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


def _of_phases(f: Filter) -> Condition:
    return turns_of(f) & viewed(f) & Condition(f"{ASKED} AND phase IS NOT NULL")


def phases(f: Filter) -> tuple[str, list[Any]]:
    """A row per phase in the order of time, the ramps too: counts."""
    valid = "FILTER (WHERE outcome <> 'invalid')"
    where = _of_phases(f)
    return (
        f"""
        SELECT phase, any_value(phase_kind) AS kind, min(started_unix_ns) AS first_unix_ns, count(*) AS total,
               count(*) FILTER (WHERE outcome = 'ok') AS ok, count(*) {valid} AS valid, {UNREAD} AS unread
        FROM turns WHERE {where.sql} GROUP BY phase ORDER BY first_unix_ns, phase
        """,
        list(where.values),
    )


def phase_metrics(f: Filter) -> tuple[str, list[Any]]:
    """As `phases`, what `metric_totals` has of PHASE_METRICS."""
    where = _of_phases(f) & Condition(_VALID)
    metrics = _bounded_columns(_of_turns(METRICS[name] for name in PHASE_METRICS))
    return f"SELECT phase, {metrics} FROM turns WHERE {where.sql} GROUP BY phase", list(where.values)


def phase_lacking(f: Filter) -> tuple[str, list[Any]]:
    """As `phases`, how many turns that no answer came to lack a value of each of PHASE_METRICS."""
    where = _of_phases(f) & Condition(_LACKING)
    metrics = _lacking_columns(_of_turns(METRICS[name] for name in PHASE_METRICS))
    return f"SELECT phase, {metrics} FROM turns WHERE {where.sql} GROUP BY phase", list(where.values)


def phase_connects(f: Filter) -> tuple[str, list[Any]]:
    """As `connect_totals`, by phase."""
    where = turns_of(f) & valid(f) & Condition("phase IS NOT NULL")
    return f"SELECT phase, {_CONNECTING} FROM turns WHERE {where.sql} GROUP BY phase", list(where.values)


def phase_outcomes(f: Filter) -> tuple[str, list[Any]]:
    """Counts by phase, outcome and, of invalid turns, reason."""
    where = _of_phases(f)
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
    """Counts by outcome, and of valid turns by fallback, route and tier of a hit, per cohort; the commonest first."""
    where = grouped(f)
    return (
        f"""
        SELECT cohort, outcome, fallback, route, cache_tier, cache_hit, count(*) AS n
        FROM turns WHERE {where.sql} GROUP BY ALL
        ORDER BY n DESC, cohort, outcome, fallback, route, cache_tier, cache_hit
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


_NOT_AS_RECORDED: Final = Condition(f"outcome = 'invalid' AND list_has_any(invalid_reasons, {list(NOT_AS_RECORDED)})")


def not_as_recorded(f: Filter) -> tuple[str, list[Any]]:
    """How many turns were not said as recorded: one row for all and one per cohort, where there are any."""
    where = grouped(f) & _NOT_AS_RECORDED
    return f"SELECT {_OF_BOTH}, count(*) AS not_as_recorded FROM turns WHERE {where.sql} {_BY_COHORT}", [*where.values]


def phase_not_as_recorded(f: Filter) -> tuple[str, list[Any]]:
    """As `not_as_recorded`, by phase."""
    where = _of_phases(f) & _NOT_AS_RECORDED
    return f"SELECT phase, count(*) AS not_as_recorded FROM turns WHERE {where.sql} GROUP BY phase", [*where.values]


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
    where = judged(f) & valid(f)
    return (
        f"""
        SELECT cohort, metric, reason, count(*) AS n
        FROM (SELECT cohort, unnest(withheld_metrics) AS metric, unnest(withheld_reasons) AS reason
              FROM turns WHERE {where.sql})
        WHERE metric IS NOT NULL GROUP BY ALL ORDER BY n DESC, metric, reason
        """,
        list(where.values),
    )


def speech_bounds(f: Filter) -> tuple[str, list[Any]]:
    """One row on how well it is known where the callers' speech began and ended."""
    where = judged(f) & valid(f) & Condition("speech_end_perf_ns IS NOT NULL")
    start, end = "speech_start_uncertainty_ns", "speech_end_uncertainty_ns"
    return (
        f"""
        SELECT count(*) AS turns, count(*) FILTER (WHERE {start} IS NULL OR {end} IS NULL) AS turns_unknown,
               quantile_cont({start}, 0.5) AS start_median_ns, max({start}) AS start_worst_ns,
               quantile_cont({end}, 0.5) AS end_median_ns, max({end}) AS end_worst_ns
        FROM turns WHERE {where.sql}
        """,
        list(where.values),
    )
