"""Everything about a filter: counts, percentiles, agreement, loss and generator health.

A metric's percentiles are those of its raw values (linear between neighbors, as `quantile_cont`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from telemetry.model import semconv
from telemetry.model.bounds import BOUNDED, MeasuredWithin, finite
from telemetry.model.generator_health import NOT_AS_RECORDED
from telemetry.model.metrics import CONNECT, ITL, METRICS, NOT_OF_AN_ANSWER, Metric, shown_in
from telemetry.model.semconv import UNANSWERED
from telemetry.model.services import service_day
from telemetry.model.stats import shown_quantiles
from telemetry.store.answers import (
    CacheStats,
    CohortSummary,
    Filter,
    MetricStats,
    PhaseSummary,
    ShareByName,
    StageStats,
    Summary,
    TurnCounts,
)
from telemetry.store.connection import Row, StoreConnection, once, rows
from telemetry.store.questions.conversations import (
    contradictions,
    counts_of_turns,
    failures,
    remarks,
    unreached,
    wer_by_condition,
)
from telemetry.store.questions.filters import (
    ANY,
    ASKED,
    UNREAD,
    Condition,
    is_steady,
    judged,
    turns_of,
    valid,
    viewed,
)
from telemetry.store.questions.instrument import (
    StartsOfPhase,
    generator,
    generator_limits,
    loss_by_process,
    processes,
    starts_by_phase,
    total_loss,
    total_starts,
)
from telemetry.store.questions.pairs import paired
from telemetry.store.questions.percentiles import TURN, Groups, Values, add_percentiles, stated
from telemetry.store.questions.runs import cut_runs, last_heard
from telemetry.store.schema import SIDES

# As `judgment.is_unanswered`.
IS_UNANSWERED: Final = f"""(outcome IN ({", ".join(repr(outcome) for outcome in UNANSWERED)})
    OR (outcome = 'interrupted' AND failure_kind IS NOT DISTINCT FROM 'interrupted' AND first_audio_perf_ns IS NULL
        AND voice_to_voice_ns IS NULL AND (NOT coalesce(list_contains(withheld_metrics, 'voice_to_voice'), false)
            OR (llm_first_token_perf_ns IS NULL AND asr_final_perf_ns IS NULL))))"""


PHASE_METRICS: Final = shown_in("phases")
# The gaps between pieces of answer text, over all gaps of all turns.
_GAPS: Final = """
    (SELECT *, unnest(llm_chunk_gaps_ns) AS gap, generate_subscripts(llm_chunk_gaps_ns, 1) AS gap_index FROM turns)
    """
_GAP: Final = Values(ITL, "gap")
_NOT_AS_RECORDED: Final = f"outcome = 'invalid' AND list_has_any(invalid_reasons, {list(NOT_AS_RECORDED)})"
# The columns by which turns are counted; the counts are added up for the whole, the cohorts and the phases.
_NAMED: Final = "outcome, fallback, route, cache_tier, cache_hit, coalesce(cut_by, 'not reported')"


def _grouped_by(f: Filter) -> str:
    """The columns of a turn's groups; steady are the turns that figures are taken over."""
    return f"cohort, phase, phase_kind, {is_steady(f)} AS is_steady, {ASKED} AS is_asked"


def _values_of(metric: Metric) -> Values:
    bounds = (metric.bound_column(side) for side in SIDES) if metric in BOUNDED else ()
    return Values(metric.name, metric.column, *bounds)


# A call connects, whatever its first turn asks.
_CONNECT_VALUES: Final = [_values_of(METRICS[CONNECT])]
_ANSWER_VALUES: Final = [_values_of(metric) for name, metric in METRICS.items() if name != CONNECT]


def summary(connection: StoreConnection, f: Filter = ANY) -> Summary:
    """Everything about a filter's turns."""
    return summed_up(connection, f)[0]


@once
def summed_up(
    connection: StoreConnection, f: Filter, *, may_estimate: bool = False
) -> tuple[Summary, dict[str, StageStats]]:
    """Summarize a filter's turns for `summary`, with the stages of `stage_budget`. With `may_estimate`, percentiles of
    very many turns are estimates."""
    # The turns of several runs have no common generator, and a service that reports itself has none.
    run_id = None if f.run_id is None or service_day(f.run_id) is not None else f.run_id
    counted, starts, cut = _counted(connection, f), starts_by_phase(connection, f), cut_runs(connection)
    steady = [row for row in counted if row["is_steady"] and row["is_asked"]]
    named: dict[str, list[Row]] = {}
    for row in counted:
        if row["phase"] is not None and row["is_asked"]:
            named.setdefault(row["phase"], []).append(row)
    cohorts = sorted({row["cohort"] for row in steady} - {None})
    most = max(_turns(steady), *map(_turns, named.values()), 0)
    is_many = may_estimate and most > connection.exact_turns
    figures = _figures(connection, f, cohorts, [*named], is_many=is_many)
    reasons, withheld = _invalid_reasons(connection, f), _withheld_reasons(connection, f)
    delta, budget = paired(connection, f, is_many=is_many)
    behavior, speech_bounds, beside, retries = counts_of_turns(connection, f)

    parts = {name: _cohort(name, figures.by_cohort_name[name], steady, reasons, withheld) for name in (None, *cohorts)}
    overall = parts.pop(None)
    summed = Summary(
        filter=f,
        turns=overall.turns,
        metrics=overall.metrics,
        cache=overall.cache,
        fallback=overall.fallback,
        routes=_routes(steady),
        cohorts=tuple(parts.values()),
        client_service_delta=delta,
        loss=total_loss(loss_by_process(connection, f)),
        generator=generator(connection, f),
        newest_unix_ns=max((row["newest_unix_ns"] for row in steady), default=None),
        wer_by_condition=wer_by_condition(connection, f),
        behavior=behavior,
        beside=beside,
        contradictions=contradictions(connection, f),
        lacks_old_turns=bool(cut) if f.run_id is None else f.run_id in cut,
        phases=_phases(named, figures.by_phase_name, reasons, starts),
        speech_bounds=speech_bounds,
        failures=failures(connection, f),
        remarks=remarks(connection, f),
        retries=retries,
        starts=total_starts(starts),
        limit=None if run_id is None else generator_limits(connection, (run_id,)).get(run_id),
        heard_unix_ns=None if run_id is None else last_heard(processes(connection, run_id)),
    )
    return replace(summed, unreached=unreached(connection, summed)), budget


def _cohort(
    cohort: str | None, measured: Row, steady: Sequence[Row], reasons: Sequence[Row], withheld: Sequence[Row]
) -> CohortSummary:
    """One cohort, or all turns for None."""

    def mine(of: Iterable[Row]) -> list[Row]:
        return [row for row in of if cohort is None or row["cohort"] == cohort]

    asked = mine(steady)
    counts = _counts(asked, mine(row for row in reasons if row["is_steady"]))
    return CohortSummary(
        cohort=cohort or "",
        turns=replace(counts, cut_by=_by((row for row in asked if row["outcome"] == "cut"), "cut_by")),
        metrics=_metrics(measured | {"valid": _turns(_valid(asked))}, mine(withheld)),
        cache=_cache(asked),
        fallback=_fallback(asked),
    )


def _counted(connection: StoreConnection, f: Filter) -> list[Row]:
    """Turns by group, outcome and source of the answer, the most common first."""
    where = turns_of(f) & viewed(f)
    statement = f"""
        SELECT {_grouped_by(f)}, {_NAMED} AS cut_by, count(*) AS n, {UNREAD} AS unread,
               count(*) FILTER (WHERE {_NOT_AS_RECORDED}) AS not_as_recorded,
               max(ended_unix_ns) AS newest_unix_ns, min(started_unix_ns) AS first_unix_ns
        FROM turns WHERE {where.sql} GROUP BY ALL ORDER BY n DESC, cohort, phase, {_NAMED}
        """
    return rows(connection, statement, where.values)


@dataclass(frozen=True, slots=True)
class _MeasuredGroups:
    """A row for each cohort, None for all turns, and for each phase: of each metric how many values there are
    (`n_NAME`), its largest value, how many turns lack it, and its percentiles."""

    by_cohort_name: Mapping[str | None, Row]
    by_phase_name: Mapping[str | None, Row]


def _figures(
    connection: StoreConnection, f: Filter, cohorts: Sequence[str], phases: Sequence[str], *, is_many: bool
) -> _MeasuredGroups:
    measured, where = _measured(connection, f), turns_of(f) & valid(f)
    steady = [row for row in measured if row["is_steady"]]
    whole: dict[str | None, Row] = {None: _summed(steady)}
    cohort_rows: dict[str | None, Row] = {
        name: _summed([row for row in steady if row["cohort"] == name]) for name in cohorts
    }
    phase_rows: dict[str | None, Row] = {
        name: _summed([row for row in measured if row["phase"] == name]) for name in phases
    }
    by_cohort = Groups(whole | cohort_rows, judged(f) & valid(f), "cohort")
    by_phase = Groups(phase_rows, where, "phase")
    for values, asked in ((_ANSWER_VALUES, Condition(ASKED)), (_CONNECT_VALUES, Condition("true"))):
        few = [quantity for quantity in values if quantity.name in PHASE_METRICS]
        for groups, of in ((by_cohort, values), (by_phase, few)):
            add_percentiles(connection, replace(groups, where=groups.where & asked), of, is_many=is_many)
    add_percentiles(connection, replace(by_cohort, table=_GAPS, identity=(*TURN, "gap_index")), [_GAP], is_many=is_many)
    return _MeasuredGroups(whole | cohort_rows, phase_rows)


def _measured(connection: StoreConnection, f: Filter) -> list[Row]:
    """The number of values and of known bounds of each metric, with the largest, by group."""
    columns = {metric.name: metric.column for metric in METRICS.values()} | {
        f"{side}_{metric.name}": metric.bound_column(side) for metric in BOUNDED for side in SIDES
    }
    extremes = ", ".join(f"count({sql}) AS n_{name}, max({sql}) AS max_{name}" for name, sql in columns.items())
    where, connect = turns_of(f) & valid(f), METRICS[CONNECT].column
    statement = f"""
        SELECT {_grouped_by(f)}, {IS_UNANSWERED} AS is_unanswered, count(*) AS n, {extremes},
               count(*) FILTER (WHERE outcome = 'error' AND turn_index = 0 AND {connect} IS NULL) AS u_{CONNECT},
               coalesce(sum(len(llm_chunk_gaps_ns)), 0)::BIGINT AS n_{ITL},
               max(list_max(llm_chunk_gaps_ns)) AS max_{ITL}
        FROM turns WHERE {where.sql} GROUP BY ALL
        """
    return rows(connection, statement, where.values)


def _summed(measured: Sequence[Row]) -> Row:
    """Add up the measurements of a group. A value without bounds may lie anywhere."""
    asked = [row for row in measured if row["is_asked"]]
    summed: Row = {f"u_{CONNECT}": sum(row[f"u_{CONNECT}"] for row in measured)}

    def largest(of: Sequence[Row], name: str, default: float | None) -> float | None:
        return max((row[f"max_{name}"] for row in of if row[f"max_{name}"] is not None), default=default)

    for name in (*METRICS, ITL):
        of = measured if name in (CONNECT, ITL) else asked
        n = summed[f"n_{name}"] = sum(row[f"n_{name}"] for row in of)
        summed[f"max_{name}"] = largest(of, name, None)
        if name not in (CONNECT, *NOT_OF_AN_ANSWER):
            summed[f"u_{name}"] = sum(row["n"] - row[f"n_{name}"] for row in asked if row["is_unanswered"])
        if name in METRICS and METRICS[name] in BOUNDED:
            lower, upper = (sum(row[f"n_{side}_{name}"] for row in of) for side in SIDES)
            summed[f"unknown_{name}"] = n - lower
            summed[f"max_lower_{name}"] = largest(of, f"lower_{name}", -math.inf)
            summed[f"max_upper_{name}"] = math.inf if upper < n else largest(of, f"upper_{name}", None)
    return summed


def _invalid_reasons(connection: StoreConnection, f: Filter) -> list[Row]:
    """Return how many turns each reason made invalid, by group."""
    where = turns_of(f) & viewed(f) & Condition(f"outcome = 'invalid' AND {ASKED}")
    statement = f"""
        SELECT cohort, phase, is_steady, reason, count(*) AS n
        FROM (SELECT {_grouped_by(f)}, unnest(invalid_reasons) AS reason FROM turns WHERE {where.sql}) GROUP BY ALL
        """
    return rows(connection, statement, where.values)


def _withheld_reasons(connection: StoreConnection, f: Filter) -> list[Row]:
    """Return the reasons for which the wire withheld metrics, by cohort, the most common first."""
    where = judged(f) & valid(f) & Condition("len(withheld_metrics) > 0")
    statement = f"""
        SELECT cohort, metric, reason, count(*) AS n
        FROM (SELECT cohort, unnest(withheld_metrics) AS metric, unnest(withheld_reasons) AS reason
              FROM turns WHERE {where.sql})
        WHERE metric IS NOT NULL GROUP BY ALL ORDER BY n DESC, metric, reason
        """
    return rows(connection, statement, where.values)


def _phases(
    named: Mapping[str, list[Row]],
    figures: Mapping[str | None, Row],
    reasons: Sequence[Row],
    starts: Mapping[str, StartsOfPhase],
) -> tuple[PhaseSummary, ...]:
    """The phases, including ramps, ordered by time."""
    phases: dict[str, PhaseSummary] = {}
    for name, mine in named.items():
        row = figures[name] | {"valid": _turns(_valid(mine))}
        phases[name] = PhaseSummary(
            phase=name,
            kind=next((group["phase_kind"] for group in mine if group["phase_kind"] is not None), None),
            first_unix_ns=min(group["first_unix_ns"] for group in mine),
            turns=_counts(mine, [reason for reason in reasons if reason["phase"] == name]),
            metrics={metric: _metric_stats(METRICS[metric], row, None) for metric in PHASE_METRICS},
            starts=None if name not in starts else starts[name].answer,
        )
    ordered = dict(sorted(phases.items(), key=lambda item: (item[1].first_unix_ns, item[0])))
    # A phase in which no call could begin has no turn, and yet its starts; the processes know the order of all.
    none = TurnCounts(total=0, ok=0, invalid=0, by_outcome={})
    of_calls = [
        ordered.pop(name, PhaseSummary(name, phase.kind, phase.first_unix_ns, none, {}, phase.answer))
        for name, phase in starts.items()
    ]
    return (*of_calls, *ordered.values())


def _turns(counted: Iterable[Row]) -> int:
    return sum(row["n"] for row in counted)


def _by(counted: Iterable[Row], column: str) -> dict[str, int]:
    """Count the turns with each value of a column, the most common first."""
    counts = Counter[str]()
    for row in counted:
        if row[column] is not None:
            counts[row[column]] += row["n"]
    return dict(counts.most_common())


def _counts(counted: Sequence[Row], reasons: Sequence[Row]) -> TurnCounts:
    outcomes, valid_turns = _by(counted, "outcome"), _turns(_valid(counted))
    return TurnCounts(
        total=_turns(counted),
        ok=outcomes.get("ok", 0),
        invalid=_turns(counted) - valid_turns,
        by_outcome={name: outcomes[name] for name in semconv.OUTCOMES if name in outcomes},
        invalid_by_reason=_by(reasons, "reason"),
        endpoint_did_not_read=sum(row["unread"] for row in counted),
        not_as_recorded=sum(row["not_as_recorded"] for row in counted),
    )


def _metrics(total: Row, withheld: list[Row]) -> dict[str, MetricStats]:
    reasons: dict[str, str] = {}
    for row in withheld:
        reasons.setdefault(row["metric"], row["reason"] or "not observable")
    stats = {name: _metric_stats(metric, total, reasons.get(name)) for name, metric in METRICS.items()}
    stats[ITL] = _stats(ITL, "ns", total, reasons.get(ITL))
    return stats


def _metric_stats(metric: Metric, row: Row, why: str | None) -> MetricStats:
    """A metric's statistics from a group's row of `_MeasuredGroups`."""
    name = metric.name
    unanswered = row.get(f"u_{name}", 0)
    stats = _stats(name, metric.unit, row, why)
    if name == CONNECT:
        stats = replace(stats, eligible=stats.n + unanswered, unanswered=unanswered)
    elif name not in NOT_OF_AN_ANSWER:
        stats = replace(stats, eligible=row["valid"], unanswered=unanswered)
    return replace(stats, measured_within=_measured_within(metric, stats, row))


def _measured_within(metric: Metric, stats: MetricStats, row: Row) -> MeasuredWithin | None:
    name = metric.name
    if metric not in BOUNDED or not stats.n:
        exactly = MeasuredWithin.exactly(stats.p50, stats.p95, stats.p99, stats.max)
        return replace(exactly, **stats.estimated_within)
    if f"q_lower_{name}" not in row:
        return None
    lower, upper = ([*row[f"q_{side}_{name}"], row[f"max_{side}_{name}"]] for side in SIDES)
    figures = (stats.p50, stats.p95, stats.p99, stats.max)
    between = (
        None if figure is None else finite(low, high) for figure, low, high in zip(figures, lower, upper, strict=True)
    )
    return MeasuredWithin(*between, turns_unknown=row[f"unknown_{name}"])


def _stats(name: str, unit: str, row: Row, why: str | None) -> MetricStats:
    n, quantiles, largest = row.get(f"n_{name}", 0), row.get(f"q_{name}"), row.get(f"max_{name}")
    p50, p95, p99 = shown_quantiles(n, quantiles)
    within = stated(row.get(f"within_{name}"))
    return MetricStats(
        name=name,
        unit=unit,
        n=n,
        p50=p50,
        p95=p95,
        p99=p99,
        max=None if largest is None else float(largest),
        withheld=why if n == 0 else None,
        approximate=bool(within),
        estimated_within=within,
    )


def _valid(counted: Iterable[Row]) -> list[Row]:
    return [row for row in counted if row["outcome"] != "invalid"]


def _cache(counted: Iterable[Row]) -> CacheStats:
    reported = [row for row in _valid(counted) if row["cache_hit"] is not None]
    hits = [row | {"tier": row["cache_tier"] or "unnamed"} for row in reported if row["cache_hit"]]
    return CacheStats(reported=_turns(reported), hits=_turns(hits), hits_by_tier=_by(hits, "tier"))


def _fallback(counted: Iterable[Row]) -> ShareByName:
    # As an objective on fallbacks counts: an endpoint that says the route says how it answered, so that without a
    # fallback there was none. Whether a cache was hit says nothing of it.
    valid_turns = _valid(counted)
    reported = [row for row in valid_turns if row["fallback"] is not None or row["route"] is not None]
    return ShareByName(total=_turns(valid_turns), reported=_turns(reported), counts=_by(valid_turns, "fallback"))


def _routes(counted: Iterable[Row]) -> ShareByName:
    valid_turns = _valid(counted)
    counts = _by(valid_turns, "route")
    return ShareByName(total=_turns(valid_turns), reported=sum(counts.values()), counts=counts)
