"""Everything about a filter: counts, percentiles, agreement, loss and generator health.

A metric's percentiles are `quantile_cont` over the raw values (linear between neighbors, as numpy's default).
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from telemetry.model import semconv
from telemetry.model.bounds import BOUNDED, MeasuredWithin, finite
from telemetry.model.generator_health import NOT_AS_RECORDED
from telemetry.model.metrics import CONNECT, ITL, METRICS, NOT_OF_AN_ANSWER, Metric, Side, shown_in
from telemetry.model.semconv import UNANSWERED
from telemetry.model.services import service_day
from telemetry.model.stats import enough
from telemetry.store.answers import (
    CacheStats,
    CohortSummary,
    Filter,
    MetricStats,
    PhaseSummary,
    ProcessInfo,
    ShareByName,
    Summary,
    TurnCounts,
)
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions.conversations import (
    behavior,
    beside,
    contradictions,
    failures,
    remarks,
    retries,
    speech_bounds,
    unreached,
    wer_by_condition,
)
from telemetry.store.questions.filters import (
    ANY,
    ASKED,
    FRACTIONS,
    UNREAD,
    VALID,
    Condition,
    grouped,
    judged,
    turns_of,
    valid,
    viewed,
)
from telemetry.store.questions.instrument import (
    StartsOfPhase,
    generator,
    processes,
    run_limit,
    starts_by_phase,
    telemetry_loss,
    total_starts,
)
from telemetry.store.questions.pairs import PairedTurns
from telemetry.store.questions.run_state import last_heard
from telemetry.store.schema import SIDES

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


PHASE_METRICS: Final = shown_in("phases")
# A percentile holds all of its values: of many turns only so many are held at once, whatever the number of metrics.
_VALUES_AT_ONCE: Final = 1_000_000
_LACKING: Final = f"outcome = 'error' OR {IS_UNANSWERED}"
_NOT_AS_RECORDED: Final = f"outcome = 'invalid' AND list_has_any(invalid_reasons, {list(NOT_AS_RECORDED)})"


@dataclass(frozen=True, slots=True)
class _Groups:
    """Turns in groups by a column: `turns` that asked something, `calls` of which the connecting counts, whatever their
    first turn asks."""

    key: str
    turns: Condition
    calls: Condition
    metrics: Sequence[Metric]

    @property
    def selected(self) -> str:
        """The columns that say which group a row is about: of cohorts one more row is about all turns (`is_total`)."""
        return "grouping(cohort) = 1 AS is_total, cohort" if self.key == "cohort" else "false AS is_total, phase"

    @property
    def clause(self) -> str:
        """The GROUP BY of a statement."""
        return "GROUP BY GROUPING SETS ((), (cohort))" if self.key == "cohort" else "GROUP BY phase"

    def rows(self, connection: StoreConnection, columns: str, where: Condition) -> list[Row]:
        """A row for each group with turns that meet a condition."""
        statement = f"SELECT {self.selected}, {columns} FROM turns WHERE {where.sql} {self.clause}"
        return rows(connection, statement, where.values)


def _cohorts(f: Filter) -> _Groups:
    return _Groups("cohort", grouped(f), judged(f) & valid(f), _of_turns(METRICS.values()))


def _phases(f: Filter) -> _Groups:
    """The phases, the ramps too."""
    named = turns_of(f) & viewed(f) & Condition("phase IS NOT NULL")
    metrics = _of_turns(METRICS[name] for name in PHASE_METRICS)
    return _Groups("phase", named & Condition(ASKED), named & Condition(VALID), metrics)


def summary(connection: StoreConnection, f: Filter = ANY) -> Summary:
    """Everything about a filter's turns."""
    return summed_up(connection, f)


def summed_up(
    connection: StoreConnection,
    f: Filter,
    *,
    known: Sequence[ProcessInfo] | None = None,
    pairs: PairedTurns | None = None,
) -> Summary:
    """As `summary`; `known` processes of its run and its `pairs` need not be asked for again."""
    cohorts = _cohorts(f)
    totals, names, gaps = _counted(connection, cohorts), _names(connection, cohorts), _gaps(connection, f)
    invalid, cut = _invalid_reasons(connection, cohorts), _cut_reasons(connection, f)
    withheld = _withheld_reasons(connection, f)

    def part(total: Row) -> CohortSummary:
        everyone, cohort = total["is_total"], total["cohort"]

        def mine(candidates: list[Row]) -> list[Row]:
            return [row for row in candidates if everyone or row["cohort"] == cohort]

        named, gap = mine(names), next((row for row in mine(gaps) if row["is_total"] == everyone), None)
        return CohortSummary(
            cohort=cohort or "",
            turns=_counts(total, named, mine(invalid), mine(cut)),
            metrics=_metrics(total, gap, mine(withheld)),
            cache=_cache(total, named),
            fallback=_fallback(total, named),
        )

    whole = next(row for row in totals if row["is_total"])
    overall, starts, cut_runs = part(whole), starts_by_phase(connection, f), connection.cut_runs()
    if known is None:
        known = () if f.run_id is None or service_day(f.run_id) is not None else processes(connection, f.run_id)
    found = Summary(
        filter=f,
        turns=overall.turns,
        metrics=overall.metrics,
        cache=overall.cache,
        fallback=overall.fallback,
        routes=_routes(whole, names),
        cohorts=tuple(part(each) for each in totals if not each["is_total"] and each["cohort"] is not None),
        client_service_delta=(pairs or PairedTurns(connection, f)).delta(),
        loss=telemetry_loss(connection, f),
        generator=generator(connection, f),
        newest_unix_ns=whole["newest_unix_ns"],
        wer_by_condition=wer_by_condition(connection, f),
        behavior=behavior(connection, f),
        beside=beside(connection, f),
        contradictions=contradictions(connection, f),
        lacks_old_turns=bool(cut_runs) if f.run_id is None else f.run_id in cut_runs,
        phases=_summaries_of_phases(connection, _phases(f), starts),
        speech_bounds=speech_bounds(connection, f),
        failures=failures(connection, f),
        remarks=remarks(connection, f),
        retries=retries(connection, f),
        starts=total_starts(starts),
        limit=run_limit(connection, f.run_id, known=known),
        heard_unix_ns=last_heard(known),
    )
    return replace(found, unreached=unreached(connection, found))


def _counted(connection: StoreConnection, groups: _Groups) -> list[Row]:
    """A row for each group: counts, and of each metric what `_bounded_columns` and `_lacking_columns` give."""
    connect, counted = [METRICS[CONNECT]], _counts_of(connection, groups)
    at_once = max(1, _VALUES_AT_ONCE // max([1, *(row["total"] for row in counted)]))
    parts = [groups.metrics[begin : begin + at_once] for begin in range(0, len(groups.metrics), at_once)]
    return _merged(
        counted,
        *(groups.rows(connection, _bounded_columns(part), groups.turns & Condition(VALID)) for part in parts),
        groups.rows(connection, _lacking_columns(groups.metrics), groups.turns & Condition(_LACKING)),
        groups.rows(connection, f"{_bounded_columns(connect)}, {_lacking_columns(connect)}", groups.calls),
        groups.rows(connection, "count(*) AS not_as_recorded", groups.turns & Condition(_NOT_AS_RECORDED)),
    )


def _counts_of(connection: StoreConnection, groups: _Groups) -> list[Row]:
    """In the order of the cohorts' names, and of time."""
    valid = f"FILTER (WHERE {VALID})"
    counts = f"""
        count(*) AS total, count(*) FILTER (WHERE outcome = 'ok') AS ok, count(*) {valid} AS valid,
        {UNREAD} AS unread, count(cache_hit) {valid} AS cache_reported,
        count(*) FILTER (WHERE cache_hit AND {VALID}) AS cache_hits, max(ended_unix_ns) AS newest_unix_ns,
        any_value(phase_kind) AS kind, min(started_unix_ns) AS first_unix_ns
        """
    found = groups.rows(connection, counts, groups.turns)
    if groups.key == "cohort":
        return sorted(found, key=lambda row: row["cohort"] or "")
    return sorted(found, key=lambda row: (row["first_unix_ns"], row["phase"]))


def _merged(counted: list[Row], *more: list[Row]) -> list[Row]:
    """The rows of `counted`, each with what the others have of the same group: statements over fewer turns, which know
    fewer of them."""

    def key(row: Row) -> tuple[bool, str | None, str | None]:
        return row["is_total"], row.get("cohort"), row.get("phase")

    known: dict[tuple[bool, str | None, str | None], Row] = {}
    for row in chain(*more):
        known.setdefault(key(row), {}).update(row)
    return [row | known.get(key(row), {}) for row in counted]


def _names(connection: StoreConnection, groups: _Groups) -> list[Row]:
    """Counts by outcome, fallback, route and tier of a hit, by group; the commonest first."""
    named = f"{groups.key}, outcome, fallback, route, cache_tier, cache_hit"
    statement = f"""
        SELECT {named}, count(*) AS n FROM turns WHERE {groups.turns.sql} GROUP BY ALL ORDER BY n DESC, {named}
        """
    return rows(connection, statement, groups.turns.values)


def _invalid_reasons(connection: StoreConnection, groups: _Groups) -> list[Row]:
    """How many turns each reason made invalid, by group."""
    statement = f"""
        SELECT {groups.key}, reason, count(*) AS n
        FROM (SELECT {groups.key}, unnest(invalid_reasons) AS reason FROM turns
              WHERE {groups.turns.sql} AND outcome = 'invalid') GROUP BY ALL
        """
    return rows(connection, statement, groups.turns.values)


def _cut_reasons(connection: StoreConnection, f: Filter) -> list[Row]:
    """How many turns each thing of the generator's cut, by cohort, the commonest first."""
    where = grouped(f) & Condition("outcome = 'cut'")
    statement = f"""
        SELECT cohort, coalesce(cut_by, 'not reported') AS reason, count(*) AS n FROM turns WHERE {where.sql}
        GROUP BY ALL ORDER BY n DESC, reason
        """
    return rows(connection, statement, where.values)


def _gaps(connection: StoreConnection, f: Filter) -> list[Row]:
    """The gaps between pieces of answer text, over all gaps of all turns: a row for all turns and one for each
    cohort."""
    where = judged(f) & valid(f) & Condition("len(llm_chunk_gaps_ns) > 0")
    statement = f"""
        SELECT grouping(cohort) = 1 AS is_total, cohort, count(gap) AS n, max(gap) AS max,
               quantile_cont(gap, {FRACTIONS}) AS q
        FROM (SELECT cohort, unnest(llm_chunk_gaps_ns) AS gap FROM turns WHERE {where.sql})
        GROUP BY GROUPING SETS ((), (cohort))
        """
    return rows(connection, statement, where.values)


def _withheld_reasons(connection: StoreConnection, f: Filter) -> list[Row]:
    """What the wire could not show, by cohort, the commonest first."""
    where = judged(f) & valid(f) & Condition("len(withheld_metrics) > 0")
    statement = f"""
        SELECT cohort, metric, reason, count(*) AS n
        FROM (SELECT cohort, unnest(withheld_metrics) AS metric, unnest(withheld_reasons) AS reason
              FROM turns WHERE {where.sql})
        WHERE metric IS NOT NULL GROUP BY ALL ORDER BY n DESC, metric, reason
        """
    return rows(connection, statement, where.values)


def _summaries_of_phases(
    connection: StoreConnection, groups: _Groups, starts: dict[str, StartsOfPhase]
) -> tuple[PhaseSummary, ...]:
    counted = _counted(connection, groups)
    names = _names(connection, groups) if counted else []
    invalid = _invalid_reasons(connection, groups) if counted else []

    def mine(phase: str, candidates: list[Row]) -> list[Row]:
        return [row for row in candidates if row["phase"] == phase]

    found = {
        row["phase"]: PhaseSummary(
            phase=row["phase"],
            kind=row["kind"],
            first_unix_ns=row["first_unix_ns"],
            turns=_counts(row, mine(row["phase"], names), mine(row["phase"], invalid)),
            metrics={name: _metric_stats(METRICS[name], row, None) for name in PHASE_METRICS},
            starts=None if row["phase"] not in starts else starts[row["phase"]].answer,
        )
        for row in counted
    }
    if not starts:
        return tuple(found.values())
    # A phase in which no call could begin has no turn, and yet its starts; the processes know the order of all.
    none = TurnCounts(total=0, ok=0, invalid=0, by_outcome={})
    of_calls = [
        found.pop(name, PhaseSummary(name, phase.kind, phase.first_unix_ns, none, {}, phase.answer))
        for name, phase in starts.items()
    ]
    return (*of_calls, *found.values())


def _counts(total: Row, named: list[Row], invalid: list[Row], cut: Sequence[Row] = ()) -> TurnCounts:
    outcomes, reasons, cut_by = Counter[str](), Counter[str](), Counter[str]()
    for counter, column, found in ((outcomes, "outcome", named), (reasons, "reason", invalid), (cut_by, "reason", cut)):
        for row in found:
            counter[row[column]] += row["n"]
    return TurnCounts(
        total=total["total"],
        ok=total["ok"],
        invalid=total["total"] - total["valid"],
        by_outcome={name: outcomes[name] for name in semconv.OUTCOMES if outcomes[name]},
        invalid_by_reason=dict(reasons.most_common()),
        endpoint_did_not_read=total["unread"],
        cut_by=dict(cut_by.most_common()),
        not_as_recorded=total.get("not_as_recorded", 0),
    )


def _metrics(total: Row, gap: Row | None, withheld: list[Row]) -> dict[str, MetricStats]:
    reasons: dict[str, str] = {}
    for row in withheld:
        reasons.setdefault(row["metric"], row["reason"] or "not observable")
    stats = {name: _metric_stats(metric, total, reasons.get(name)) for name, metric in METRICS.items()}
    gaps = _Observed(0, None, None) if gap is None else _Observed(gap["n"], gap["q"], gap["max"])
    stats[ITL] = _stats(ITL, "ns", gaps, reasons.get(ITL))
    return stats


def _metric_stats(metric: Metric, row: Row, why: str | None) -> MetricStats:
    """A metric's statistics from a row of `totals` or `phases` and the others of the same turns."""
    name = metric.name
    observed = _Observed(row.get(f"n_{name}", 0), row.get(f"q_{name}"), row.get(f"max_{name}"))
    unanswered = row.get(f"u_{name}", 0)
    stats = _stats(name, metric.unit, observed, why)
    if name == CONNECT:
        stats = replace(stats, eligible=stats.n + unanswered, unanswered=unanswered)
    elif name not in NOT_OF_AN_ANSWER:
        stats = replace(stats, eligible=row["valid"], unanswered=unanswered)
    return replace(stats, measured_within=_measured_within(metric, stats, row))


def _measured_within(metric: Metric, stats: MetricStats, row: Row) -> MeasuredWithin | None:
    name = metric.name
    if metric not in BOUNDED or not stats.n:
        return MeasuredWithin.exactly(stats.p50, stats.p95, stats.p99, stats.max)
    if f"q_lower_{name}" not in row:
        return None
    lower, upper = ([*row[f"q_{side}_{name}"], row[f"max_{side}_{name}"]] for side in SIDES)
    figures = (stats.p50, stats.p95, stats.p99, stats.max)
    between = (
        None if figure is None else finite(low, high) for figure, low, high in zip(figures, lower, upper, strict=True)
    )
    return MeasuredWithin(*between, turns_unknown=row[f"unknown_{name}"])


@dataclass(frozen=True, slots=True)
class _Observed:
    """What a query gives of a metric's `n` values, in the metric's unit: p50, p95 and p99, and the largest."""

    n: int
    quantiles: list[float] | None
    largest: float | None


def _stats(name: str, unit: str, observed: _Observed, why: str | None) -> MetricStats:
    n, quantiles, largest = observed.n, observed.quantiles, observed.largest
    p50, p95, p99 = quantiles if quantiles is not None and n else (None, None, None)
    return MetricStats(
        name=name,
        unit=unit,
        n=n,
        p50=p50,
        p95=enough("p95", n, p95),
        p99=enough("p99", n, p99),
        max=None if largest is None else float(largest),
        withheld=why if n == 0 else None,
    )


def _valid(named: list[Row]) -> list[Row]:
    return [row for row in named if row["outcome"] != "invalid"]


def _cache(total: Row, named: list[Row]) -> CacheStats:
    tiers = Counter[str]()
    for row in _valid(named):
        if row["cache_hit"]:
            tiers[row["cache_tier"] or "unnamed"] += row["n"]
    return CacheStats(reported=total["cache_reported"], hits=total["cache_hits"], hits_by_tier=dict(tiers))


def _fallback(total: Row, named: list[Row]) -> ShareByName:
    # As an objective on fallbacks counts: an endpoint that says the route says how it answered, so that without a
    # fallback there was none. Whether a cache was hit says nothing of it.
    counts, reported = Counter[str](), 0
    for row in _valid(named):
        if row["fallback"] is not None:
            counts[row["fallback"]] += row["n"]
        if row["fallback"] is not None or row["route"] is not None:
            reported += row["n"]
    return ShareByName(total=total["valid"], reported=reported, counts=dict(counts))


def _routes(total: Row, named: list[Row]) -> ShareByName:
    counts = Counter[str]()
    for row in _valid(named):
        if row["route"] is not None:
            counts[row["route"]] += row["n"]
    return ShareByName(total=total["valid"], reported=counts.total(), counts=dict(counts))
