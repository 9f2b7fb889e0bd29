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
from telemetry.model.metrics import CONNECT, ITL, METRICS, NOT_OF_AN_ANSWER, Metric, shown_in
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
from telemetry.store.questions.percentiles import (
    GroupedValues,
    Groups,
    Values,
    of_turns,
    percentiles,
    stated,
    values_of,
)
from telemetry.store.questions.runs import last_heard
from telemetry.store.schema import SIDES

# As `judgment.is_unanswered`.
IS_UNANSWERED: Final = f"""(outcome IN ({", ".join(repr(outcome) for outcome in UNANSWERED)})
    OR (outcome = 'interrupted' AND failure_kind IS NOT DISTINCT FROM 'interrupted' AND first_audio_perf_ns IS NULL
        AND voice_to_voice_ns IS NULL AND (NOT coalesce(list_contains(withheld_metrics, 'voice_to_voice'), false)
            OR (llm_first_token_perf_ns IS NULL AND asr_final_perf_ns IS NULL))))"""


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


# The gaps between pieces of answer text, over all gaps of all turns.
_GAPS: Final = "(SELECT *, unnest(llm_chunk_gaps_ns) AS gap FROM turns)"
PHASE_METRICS: Final = shown_in("phases")
_LACKING: Final = f"outcome = 'error' OR {IS_UNANSWERED}"
_NOT_AS_RECORDED: Final = f"outcome = 'invalid' AND list_has_any(invalid_reasons, {list(NOT_AS_RECORDED)})"


@dataclass(frozen=True, slots=True)
class _Summed:
    """Turns in groups: `turns` that asked something, `calls` of which the connecting counts, whatever their first turn
    asks."""

    groups: Groups
    turns: Condition
    calls: Condition
    metrics: Sequence[Metric]

    @property
    def key(self) -> str:
        """The column of the groups."""
        return self.groups.key or ""


def _cohorts(f: Filter) -> _Summed:
    return _Summed(Groups("cohort", has_total=True), grouped(f), judged(f) & valid(f), _of_turns(METRICS.values()))


def _phases(f: Filter) -> _Summed:
    """The phases, the ramps too."""
    named = turns_of(f) & viewed(f) & Condition("phase IS NOT NULL")
    metrics = _of_turns(METRICS[name] for name in PHASE_METRICS)
    return _Summed(Groups("phase", has_total=False), named & Condition(ASKED), named & Condition(VALID), metrics)


def summary(connection: StoreConnection, f: Filter = ANY) -> Summary:
    """Everything about a filter's turns."""
    return summed_up(connection, f)


def summed_up(
    connection: StoreConnection,
    f: Filter,
    *,
    known: Sequence[ProcessInfo] | None = None,
    pairs: PairedTurns | None = None,
    may_estimate: bool = False,
) -> Summary:
    """As `summary`; `known` processes of its run and its `pairs` need not be asked for again. With `may_estimate`
    percentiles of very many turns are estimates."""
    cohorts = _cohorts(f)
    totals, names = _counted(connection, cohorts, may_estimate=may_estimate), _names(connection, cohorts)
    invalid, cut = _invalid_reasons(connection, cohorts), _cut_reasons(connection, f)
    withheld = _withheld_reasons(connection, f)

    def part(total: Row) -> CohortSummary:
        return _part(total, names, invalid, cut, withheld)

    whole = next(row for row in totals if row["is_total"])
    is_many = may_estimate and whole["total"] > connection.exact_turns
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
        client_service_delta=(pairs or PairedTurns(connection, f)).delta(is_many=is_many),
        loss=telemetry_loss(connection, f),
        generator=generator(connection, f),
        newest_unix_ns=whole["newest_unix_ns"],
        wer_by_condition=wer_by_condition(connection, f),
        behavior=behavior(connection, f),
        beside=beside(connection, f),
        contradictions=contradictions(connection, f),
        lacks_old_turns=bool(cut_runs) if f.run_id is None else f.run_id in cut_runs,
        phases=_summaries_of_phases(connection, _phases(f), starts, may_estimate=may_estimate),
        speech_bounds=speech_bounds(connection, f),
        failures=failures(connection, f),
        remarks=remarks(connection, f),
        retries=retries(connection, f),
        starts=total_starts(starts),
        limit=run_limit(connection, f.run_id, known=known),
        heard_unix_ns=last_heard(known),
    )
    return replace(found, unreached=unreached(connection, found))


def _part(total: Row, names: list[Row], invalid: list[Row], cut: list[Row], withheld: list[Row]) -> CohortSummary:
    everyone, cohort = total["is_total"], total["cohort"]

    def mine(candidates: list[Row]) -> list[Row]:
        return [row for row in candidates if everyone or row["cohort"] == cohort]

    named = mine(names)
    return CohortSummary(
        cohort=cohort or "",
        turns=_counts(total, named, mine(invalid), mine(cut)),
        metrics=_metrics(total, mine(withheld)),
        cache=_cache(total, named),
        fallback=_fallback(total, named),
    )


def _counted(connection: StoreConnection, summed: _Summed, *, may_estimate: bool) -> list[Row]:
    """A row for each group: counts, and of each metric what `percentiles` and `_lacking_columns` give."""
    counted, groups, connect = _counts_of(connection, summed), summed.groups, METRICS[CONNECT]
    most = max([0, *(row["total"] for row in counted)])
    is_many = may_estimate and most > connection.exact_turns
    valid_turns = summed.turns & Condition(VALID)
    asked = [
        GroupedValues(groups, [values_of(each) for each in summed.metrics], "turns", valid_turns),
        GroupedValues(groups, [values_of(connect)], "turns", summed.calls),
    ]
    if groups.has_total:
        of_gaps = summed.calls & Condition("len(llm_chunk_gaps_ns) > 0")
        asked.append(GroupedValues(groups, [Values(ITL, "gap")], _GAPS, of_gaps))
    counts = (
        (_lacking_columns(summed.metrics), summed.turns & Condition(_LACKING)),
        (_lacking_columns([connect]), summed.calls),
        ("count(*) AS not_as_recorded", summed.turns & Condition(_NOT_AS_RECORDED)),
    )
    return _merged(
        counted,
        *(percentiles(connection, each, most, is_many=is_many) for each in asked),
        *(groups.rows(connection, columns, of_turns(where)) for columns, where in counts),
    )


def _counts_of(connection: StoreConnection, summed: _Summed) -> list[Row]:
    """In the order of the cohorts' names, and of time."""
    valid = f"FILTER (WHERE {VALID})"
    counts = f"""
        count(*) AS total, count(*) FILTER (WHERE outcome = 'ok') AS ok, count(*) {valid} AS valid,
        {UNREAD} AS unread, count(cache_hit) {valid} AS cache_reported,
        count(*) FILTER (WHERE cache_hit AND {VALID}) AS cache_hits, max(ended_unix_ns) AS newest_unix_ns,
        any_value(phase_kind) AS kind, min(started_unix_ns) AS first_unix_ns
        """
    found = summed.groups.rows(connection, counts, of_turns(summed.turns))
    if summed.key == "cohort":
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


def _names(connection: StoreConnection, summed: _Summed) -> list[Row]:
    """Counts by outcome, fallback, route and tier of a hit, by group; the commonest first."""
    named = f"{summed.key}, outcome, fallback, route, cache_tier, cache_hit"
    statement = f"""
        SELECT {named}, count(*) AS n FROM turns WHERE {summed.turns.sql} GROUP BY ALL ORDER BY n DESC, {named}
        """
    return rows(connection, statement, summed.turns.values)


def _invalid_reasons(connection: StoreConnection, summed: _Summed) -> list[Row]:
    """How many turns each reason made invalid, by group."""
    statement = f"""
        SELECT {summed.key}, reason, count(*) AS n
        FROM (SELECT {summed.key}, unnest(invalid_reasons) AS reason FROM turns
              WHERE {summed.turns.sql} AND outcome = 'invalid') GROUP BY ALL
        """
    return rows(connection, statement, summed.turns.values)


def _cut_reasons(connection: StoreConnection, f: Filter) -> list[Row]:
    """How many turns each thing of the generator's cut, by cohort, the commonest first."""
    where = grouped(f) & Condition("outcome = 'cut'")
    statement = f"""
        SELECT cohort, coalesce(cut_by, 'not reported') AS reason, count(*) AS n FROM turns WHERE {where.sql}
        GROUP BY ALL ORDER BY n DESC, reason
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
    connection: StoreConnection, phases: _Summed, starts: dict[str, StartsOfPhase], *, may_estimate: bool
) -> tuple[PhaseSummary, ...]:
    counted = _counted(connection, phases, may_estimate=may_estimate)
    names = _names(connection, phases) if counted else []
    invalid = _invalid_reasons(connection, phases) if counted else []

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


def _metrics(total: Row, withheld: list[Row]) -> dict[str, MetricStats]:
    reasons: dict[str, str] = {}
    for row in withheld:
        reasons.setdefault(row["metric"], row["reason"] or "not observable")
    stats = {name: _metric_stats(metric, total, reasons.get(name)) for name, metric in METRICS.items()}
    stats[ITL] = _stats(ITL, "ns", total, reasons.get(ITL))
    return stats


def _metric_stats(metric: Metric, row: Row, why: str | None) -> MetricStats:
    """A metric's statistics from a row of `totals` or `phases` and the others of the same turns."""
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
    p50, p95, p99 = quantiles if quantiles is not None and n else (None, None, None)
    within = stated(row.get(f"within_{name}"))
    return MetricStats(
        name=name,
        unit=unit,
        n=n,
        p50=p50,
        p95=enough("p95", n, p95),
        p99=enough("p99", n, p99),
        max=None if largest is None else float(largest),
        withheld=why if n == 0 else None,
        approximate=bool(within),
        estimated_within=within,
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
