"""The figures of runs: of all runs of a store with their verdicts, in a few statements, whatever their number; of one
run under its own conditions: by the calls in flight, the audio profile, and its callers' behavior.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from telemetry.model.generator_health import gauge_metric
from telemetry.model.intervals import interval_ranks, wilson_interval
from telemetry.model.metrics import CONNECT, HEADLINE, METRICS
from telemetry.model.semconv import RAMP, Source
from telemetry.model.services import SERVICE_RUN_PREFIX
from telemetry.model.stats import enough, shown_quantiles
from telemetry.objectives.objective import Objective
from telemetry.objectives.observable import observed
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.store.answers import (
    Behavior,
    Filter,
    GeneratorLimit,
    MetricStats,
    RunRecord,
    StartCounts,
    TelemetryLoss,
    TurnCounts,
    WerByCondition,
)
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions import filters
from telemetry.store.questions.conversations import unreached_runs, wer_by_condition
from telemetry.store.questions.filters import ASKED, FRACTIONS, VIEWED, Condition, Natural, Objectives, valid
from telemetry.store.questions.instrument import (
    NO_LOSS,
    generator_limits,
    loss_by_run,
    processes_of_runs,
    starts_by_run,
    total_starts,
)
from telemetry.store.questions.objectives import ObjectiveCount, ObjectiveCounts, count_by_run
from telemetry.store.questions.runs import KEPT_OUTCOMES, is_under_way, runs
from telemetry.store.questions.summaries import summary
from telemetry.store.questions.verdicts import judged_turns, lasted_s

Ints = Any  # a numpy array of int64

MOST_LEVELS: Final = 12
_WINDOW_NS: Final = 1_000_000_000
_STEPS: Final = (1, 2, 5)
_STEADY: Final = f"phase_kind IS DISTINCT FROM '{RAMP}'"
_VALID: Final = "outcome <> 'invalid'"
# Figures by which a run is shown and judged, in addition to its objectives; a call connects, whatever its first turn
# asks.
_STATEMENT: Final = f"""
    SELECT run_id, count(*) FILTER ({ASKED}) AS total, count(*) FILTER ({ASKED} AND outcome = 'ok') AS ok,
           count(*) FILTER ({ASKED} AND NOT {_VALID}) AS invalid,
           count(*) FILTER ({ASKED} AND {_VALID} AND endpoint_did_not_read) AS unread,
           {", ".join(f"count(*) FILTER ({ASKED} AND outcome = '{name}') AS {name}" for name in KEPT_OUTCOMES)},
           count({METRICS[CONNECT].column}) FILTER ({_VALID}) AS connected,
           count(headline) AS n, quantile_cont(headline, {FRACTIONS}) AS quantiles,
           list_sort(array_agg(DISTINCT cohort) FILTER ({ASKED} AND cohort IS NOT NULL)) AS cohorts,
           array_agg(DISTINCT phase) FILTER ({ASKED} AND phase IS NOT NULL) AS phases,
           min(started_unix_ns) FILTER ({ASKED} AND phase IS NOT NULL) AS first_unix_ns
    FROM (SELECT *, CASE WHEN {ASKED} AND {_VALID} THEN {METRICS[HEADLINE].column} END AS headline FROM turns
          WHERE {VIEWED} AND {_STEADY})
    GROUP BY run_id
    """


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run as the list of runs shows it: how many turns it has and how many of them are invalid, percentiles of
    voice-to-voice, in ns, and the cohorts that occur. Of a run that goes on nothing is said of its objectives
    (`verdict`), nor of which telemetry is missing (`loss`) and whether its load generator was the limit."""

    run: RunRecord
    turns: int = 0
    invalid: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    cohorts: tuple[str, ...] = ()
    verdict: RunVerdict | None = None
    loss: TelemetryLoss | None = None
    is_generator_limited: bool = False


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The inputs of a verdict other than objectives, as a summary has them."""

    turns: TurnCounts
    loss: TelemetryLoss
    starts: StartCounts | None
    limit: GeneratorLimit | None
    unreached: str | None


def run_list(
    connection: StoreConnection, objectives: Objectives, now_unix_ns: Natural | None = None
) -> list[ListedRun]:
    """Every run that has turns or was declared as the list of runs shows it, the newest first: of its figures what is
    shown, and unless it goes on the verdict that `run_verdict` comes to, without the cause of a miss. `now_unix_ns` is
    the moment that decides whether a run goes on, None for this one."""
    read = _ReadRuns(connection if now_unix_ns is None else connection.at(now_unix_ns), objectives)
    return [read.listed(run) for run in read.known]


class _ReadRuns:
    """The figures of the runs of a store, by run: each statement is about all of them."""

    def __init__(self, connection: StoreConnection, objectives: Sequence[Objective]) -> None:
        self._objectives, self._now_unix_ns = objectives, connection.now_unix_ns
        self.known = [run for run in runs(connection) if run.turns or run.declared]
        self._figures = {row["run_id"]: row for row in rows(connection, _STATEMENT)}
        run_ids = tuple(run.run_id for run in self.known)
        self._processes = processes_of_runs(connection, run_ids)
        self._limits = generator_limits(connection, run_ids)
        self._loss = loss_by_run(connection)
        self._starts = starts_by_run(connection)
        silent = [run_id for run_id, row in self._figures.items() if row["total"] and not row["connected"] + row["ok"]]
        self._unreached = unreached_runs(connection, silent)
        self._counts = count_by_run(connection, _judged_by("client"), objectives, "client")
        if any(run.service is not None for run in self.known):
            self._counts |= count_by_run(connection, _judged_by("service"), objectives, "service")

    def listed(self, run: RunRecord) -> ListedRun:
        """A run with its figures, and unless it is in progress with its verdict."""
        figures = self._figures.get(run.run_id, _NOTHING)
        p50, p95, p99 = shown_quantiles(figures["n"], figures["quantiles"])
        listed = ListedRun(
            run=run,
            turns=figures["total"],
            invalid=figures["invalid"],
            p50=p50,
            p95=p95,
            p99=p99,
            cohorts=tuple(figures["cohorts"] or ()),
        )
        processes = self._processes[run.run_id]
        if is_under_way(processes, self._now_unix_ns):
            return listed
        evidence = self._evidence(run, figures)
        return replace(
            listed,
            verdict=self._verdict(run, figures, evidence),
            loss=evidence.loss,
            is_generator_limited=evidence.limit is not None,
        )

    def _evidence(self, run: RunRecord, figures: Row) -> _Evidence:
        return _Evidence(
            turns=TurnCounts(
                total=figures["total"],
                ok=figures["ok"],
                invalid=figures["invalid"],
                by_outcome={outcome: figures[outcome] for outcome in KEPT_OUTCOMES if figures[outcome]},
                endpoint_did_not_read=figures["unread"],
            ),
            loss=self._loss.get(run.run_id, NO_LOSS),
            starts=total_starts(self._starts.get(run.run_id, {})),
            limit=self._limits.get(run.run_id),
            unreached=self._unreached.get(run.run_id),
        )

    def _verdict(self, run: RunRecord, figures: Row, evidence: _Evidence) -> RunVerdict:
        counts = self._counts.get(run.run_id) or ObjectiveCounts(
            {objective.name: ObjectiveCount() for objective in self._objectives}
        )
        objectives = observed(self._objectives, counts.is_withheld)
        begun = [] if figures["first_unix_ns"] is None else [figures["first_unix_ns"]]
        for name, phase in self._starts.get(run.run_id, {}).items():
            if phase.kind != RAMP and name not in (figures["phases"] or ()):
                begun.append(phase.first_unix_ns)  # no call of it could begin
        return judged_turns(objectives, counts, evidence, measured_s=lasted_s(run, begun)).verdict


_NOTHING: Final[Row] = {
    **dict.fromkeys(("total", "ok", "invalid", "unread", "connected", "n", *KEPT_OUTCOMES), 0),
    **dict.fromkeys(("quantiles", "cohorts", "phases", "first_unix_ns")),
}


def _judged_by(source: Source) -> Condition:
    """The condition of the turns that judge runs of callers, or days of services, outside ramps."""
    negation = "" if source == "service" else "NOT "
    return Condition(f"source = '{source}' AND {_STEADY} AND {negation}starts_with(run_id, '{SERVICE_RUN_PREFIX}')")


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """The turns that began while `low` to `high` calls were in flight. Percentiles of voice-to-voice, in ns, of the
    answered ones; `p95_interval` holds the true p95 with 95 % confidence were turns independent, whatever the
    distribution."""

    low: int
    high: int
    turns: int
    p50: float | None
    p95: float | None
    p95_interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class ConditionLatency:
    """Voice-to-voice of the turns spoken under one profile, as LoadLevel has it."""

    noise_profile: str | None
    snr_asked_db: float | None
    channel_profile: str | None
    turns: int
    p50: float | None
    p95: float | None
    p95_interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The figures of a run that are not in the list of runs. `abandoned` counts the turns in which the caller lost
    patience, of `eligible` turns, `abandoned_interval` is that of their share; `waited_p50` is how long such callers
    had waited for an answer, in ns."""

    run_id: str
    loads: tuple[LoadLevel, ...] = ()
    latencies: tuple[ConditionLatency, ...] = ()
    word_errors: tuple[WerByCondition, ...] = ()
    behavior: Behavior = Behavior()  # noqa: RUF009 - immutable
    barge_in_stop: MetricStats | None = None
    abandoned: int = 0
    eligible: int = 0
    abandoned_interval: tuple[float, float] | None = None
    waited_p50: float | None = None


def run_details(connection: StoreConnection, run_id: str) -> RunDetails:
    """The details of one run; empty for an unknown run."""
    f = Filter(run_id=run_id)
    whole = summary(connection, f)
    turns = whole.turns
    return RunDetails(
        run_id=run_id,
        loads=_loads(connection, f),
        latencies=_latencies(connection, f),
        word_errors=wer_by_condition(connection, f),
        behavior=whole.behavior,
        barge_in_stop=whole.metrics.get("barge_in_stop"),
        abandoned=turns.abandoned,
        eligible=turns.eligible,
        abandoned_interval=wilson_interval(turns.abandoned, turns.eligible),
        waited_p50=_waited(connection, f),
    )


def _loads(connection: StoreConnection, f: Filter) -> tuple[LoadLevel, ...]:
    """Return figures by level of load, in steps of a round width. Ramps are included: they are where the load
    changes."""
    where, points = filters.turns_of(f) & valid(f), filters.points_of(f)
    flight = f"""
        SELECT bucket, sum(mean) AS calls FROM (
            SELECT unix_ns // {_WINDOW_NS} AS bucket, process_id, avg(value) AS mean
            FROM points WHERE name = ? AND {points.sql} GROUP BY ALL
        ) GROUP BY bucket
        """
    values: list[Any] = [gauge_metric("calls_in_flight"), *points.values]
    (most,) = rows(connection, f"SELECT max(calls) AS calls FROM ({flight})", values)
    if not most["calls"]:
        return ()
    width = level_width(float(most["calls"]))
    levels = _grouped(
        connection,
        f"""
        SELECT greatest(0, ceil(calls / {width}) - 1)::BIGINT AS level, list({METRICS[HEADLINE].column}) AS latencies
        FROM turns JOIN ({flight}) ON started_unix_ns // {_WINDOW_NS} = bucket
        WHERE {where.sql} AND {METRICS[HEADLINE].column} IS NOT NULL GROUP BY level ORDER BY level
        """,
        [*values, *where.values],
    )
    return tuple(
        LoadLevel(row["level"] * width + 1, (row["level"] + 1) * width, *_figures(latencies))
        for row, latencies in levels
    )


def level_width(most: float) -> int:
    """The smallest round width with at most MOST_LEVELS levels for so many calls."""
    power = 0
    while True:
        for step in _STEPS:
            width = step * 10**power
            if math.ceil(most / width) <= MOST_LEVELS:
                return width
        power += 1


def _latencies(connection: StoreConnection, f: Filter) -> tuple[ConditionLatency, ...]:
    """The latencies by audio profile, clean first, then by noise and falling SNR."""
    where = filters.judged(f) & valid(f)
    conditions = _grouped(
        connection,
        f"""
        SELECT noise_profile, snr_asked_db, channel_profile, list({METRICS[HEADLINE].column}) AS latencies
        FROM turns WHERE {where.sql} AND {METRICS[HEADLINE].column} IS NOT NULL
        GROUP BY noise_profile, snr_asked_db, channel_profile
        ORDER BY channel_profile <> 'clean', channel_profile, noise_profile NOT IN ('clean', 'none'), noise_profile,
                 snr_asked_db DESC NULLS FIRST
        """,
        list(where.values),
    )
    return tuple(
        ConditionLatency(
            row["noise_profile"],
            row["snr_asked_db"],
            row["channel_profile"],
            *_figures(latencies),
        )
        for row, latencies in conditions
    )


def _figures(values: Ints) -> tuple[int, float | None, float | None, tuple[float, float] | None]:
    """Return the number of values, p50, p95 and its interval. Millions of values are partitioned, not sorted."""
    n, (p50, p95) = len(values), map(float, np.quantile(values, (0.5, 0.95)))
    ranks = interval_ranks(n, 0.95)
    interval = None
    if ranks is not None:
        low, high = np.partition(values, ranks)[list(ranks)]
        interval = float(low), float(high)
    return n, enough("p50", n, p50), enough("p95", n, p95), interval


def _grouped(connection: StoreConnection, statement: str, values: Sequence[Any]) -> Iterator[tuple[Row, Ints]]:
    """The rows of a statement without their column `latencies`, a list, and that as an array."""
    columns: dict[str, Any] = connection.execute(statement, list(values)).fetchnumpy()
    lists = columns.pop("latencies")
    names = list(columns)
    plain: list[list[Any]] = [np.ma.asarray(columns[name]).tolist() for name in names]  # what is masked as None
    for place, latencies in enumerate(lists):
        yield {name: column[place] for name, column in zip(names, plain, strict=True)}, latencies


def _waited(connection: StoreConnection, f: Filter) -> float | None:
    """Return the median time from the end of the caller's speech until it hung up without an answer."""
    where = filters.judged(f) & valid(f)
    (row,) = rows(
        connection,
        f"""
        SELECT quantile_cont(hangup_perf_ns - speech_end_perf_ns, 0.5) AS waited FROM turns
        WHERE {where.sql} AND outcome = 'abandoned' AND first_audio_perf_ns IS NULL
        """,
        list(where.values),
    )
    return row["waited"]
