"""The load generator of a run: its processes, their health, calls that were due, telemetry that is missing."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from telemetry.model import semconv
from telemetry.model.generator_health import GAUGES, SUMMARY_FIGURES, HealthFigure, gauge_metric
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.model.services import service_day
from telemetry.store.answers import (
    Filter,
    Generator,
    GeneratorLimit,
    ProcessInfo,
    StartCounts,
    TelemetryLoss,
)
from telemetry.store.connection import Row, StoreConnection, once, rows
from telemetry.store.questions.filters import (
    ANY,
    Condition,
    asks_beyond_phases,
    farthest_from_0,
    grouped,
    points_of,
    turns_of,
    viewed,
)
from telemetry.store.questions.runs import RunSpan, generator_limit, run_spans
from telemetry.store.questions.timelines import (
    COUNT_TICK_NS,
    MOST_BUCKETS,
    CountsOverTime,
    bucket_width_ns,
    counts_over_time,
)

_RUN_ID: Final = f"{semconv.RUN_PREFIX}run_id"
_PROCESS: Final = f"{semconv.RUN_PREFIX}process_id"
_PHASE: Final = f"{semconv.RUN_PREFIX}phase"
_WORKER: Final = f"{semconv.RUN_PREFIX}worker"
_ASKED: Final = f"{semconv.RUN_PREFIX}processes"


def processes(connection: StoreConnection, run_id: str) -> list[ProcessInfo]:
    """Every process of a run that announced its start, reported its health or emitted a client turn; earliest first."""
    return processes_of_runs(connection, (run_id,))[run_id]


@once
def processes_of_runs(connection: StoreConnection, run_ids: tuple[str, ...]) -> dict[str, list[ProcessInfo]]:
    """The processes of several runs, as `processes` returns those of one."""
    if not run_ids:
        return {}
    runs = {run_id: _Seen() for run_id in run_ids}
    for span in run_spans(connection):
        run, process_id = runs.get(str(span.attributes.get(_RUN_ID))), span.attributes.get(_PROCESS)
        if run is None or not isinstance(process_id, str):
            continue
        run.heard(process_id, span.end_unix_ns)
        if span.attributes.get(_PHASE) == "end":
            run.ended.add(process_id)
        else:
            run.began[process_id] = span.start_unix_ns
            run.names[process_id] = str(span.attributes.get(_WORKER) or "")
    for row in _emitted(connection, run_ids):
        if (run := runs.get(row["run_id"])) is not None:
            run.turns[row["process_id"]] = row["turns"]
            run.heard(row["process_id"], row["last"])
    for row in _gauge(connection, run_ids, "calls_in_flight", "max(unix_ns) AS last, arg_max(value, unix_ns) AS value"):
        run = runs[row["run_id"]]
        run.calls[row["process_id"]] = (round(row["value"]), row["last"])
        run.heard(row["process_id"], row["last"])
    for row in _gauge(connection, run_ids, "cpu_ratio", "quantile_cont(value, 0.75) AS value"):
        runs[row["run_id"]].cpu_ratio[row["process_id"]] = float(row["value"])
    return {run_id: run.processes() for run_id, run in runs.items()}


def _emitted(connection: StoreConnection, run_ids: Sequence[str]) -> list[Row]:
    """The number of client turns of each process, and the end of the last one, by run and process: of one run, or of
    all, which is faster than of several."""
    where = Condition("run_id = ?", tuple(run_ids)) if len(run_ids) == 1 else Condition("true")
    statement = f"""
        SELECT run_id, process_id, count(*) AS turns, max(ended_unix_ns) AS last FROM turns
        WHERE source = 'client' AND process_id <> '' AND {where.sql} GROUP BY run_id, process_id
        """
    return rows(connection, statement, where.values)


def _gauge(connection: StoreConnection, run_ids: Sequence[str], name: str, columns: str) -> list[Row]:
    """These columns of a gauge, by run and process."""
    statement = f"""
        SELECT run_id, process_id, {columns} FROM points
        WHERE run_id IN (SELECT unnest(?::VARCHAR[])) AND name = ? AND process_id IS NOT NULL
        GROUP BY run_id, process_id
        """
    return rows(connection, statement, [list(run_ids), gauge_metric(name)])


@dataclass(slots=True)
class _Seen:
    """Observations of the processes of a run."""

    began: dict[str, int] = field(default_factory=dict[str, int])
    names: dict[str, str] = field(default_factory=dict[str, str])
    ended: set[str] = field(default_factory=set[str])
    turns: dict[str, int] = field(default_factory=dict[str, int])
    calls: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # and when they were so many
    cpu_ratio: dict[str, float] = field(default_factory=dict[str, float])
    last_seen_unix_ns: dict[str, int] = field(default_factory=dict[str, int])

    def heard(self, process_id: str, unix_ns: int) -> None:
        """Record when a process was last heard from."""
        self.last_seen_unix_ns[process_id] = max(self.last_seen_unix_ns.get(process_id, 0), unix_ns)

    def processes(self) -> list[ProcessInfo]:
        """The processes, earliest first."""
        infos = [
            ProcessInfo(
                process_id=process_id,
                worker=self.names.get(process_id, ""),
                began_unix_ns=self.began.get(process_id),
                last_seen_unix_ns=last_seen,
                ended=process_id in self.ended,
                turns=self.turns.get(process_id, 0),
                calls_in_flight=self.calls.get(process_id, (None, None))[0],
                cpu_ratio=self.cpu_ratio.get(process_id),
                calls_reported_unix_ns=self.calls.get(process_id, (None, None))[1],
            )
            for process_id, last_seen in self.last_seen_unix_ns.items()
        ]
        return sorted(infos, key=lambda info: (info.began_unix_ns or info.last_seen_unix_ns, info.process_id))


def _asked_processes(declared: Iterable[RunSpan]) -> dict[str, int]:
    """Return the declared number of processes of each run; runs without a declaration are left out."""
    counts: dict[str, int] = {}
    for span in declared:
        run_id, asked = span.attributes.get(_RUN_ID), span.attributes.get(_ASKED, "")
        if run_id is not None and asked.isascii() and asked.isdigit() and len(asked) < 10:
            counts[run_id] = max(int(asked), counts.get(run_id, 0))
    return counts


def generator_limits(connection: StoreConnection, run_ids: tuple[str, ...]) -> dict[str, GeneratorLimit]:
    """Return why the figures of runs say nothing about the service, by run; runs of which they do are left out, and
    those of services, which have no load generator."""
    known, asked = processes_of_runs(connection, run_ids), _asked_processes(run_spans(connection))
    limits = {
        run_id: generator_limit(of_run, asked.get(run_id), connection.now_unix_ns)
        for run_id, of_run in known.items()
        if service_day(run_id) is None
    }
    return {run_id: limit for run_id, limit in limits.items() if limit is not None}


_TURN_AGGREGATES: Final = {"max": "max({})", "p99": "quantile_cont({}, 0.99)"}


def generator(connection: StoreConnection, f: Filter) -> Generator:
    """Every figure of SUMMARY_FIGURES over a filter, from its turns and from the processes' gauges."""
    turns, points = _turn_figures(connection, f), _process_figures(connection, f)
    return Generator(
        processes=max(turns["processes"], points["processes"]),
        figures={figure.name: _combined(figure, turns, points) for figure in SUMMARY_FIGURES},
        receive_stamp=turns["receive_stamp"],
        pacer=turns["pacer"],
        too_few={figure.name: n for figure in SUMMARY_FIGURES if (n := _too_few(figure, turns))},
    )


def _turn_figures(connection: StoreConnection, f: Filter) -> dict[str, Any]:
    """A row with `v_NAME`, the combined value of a figure's column, and `n_NAME`, of how many turns."""
    where = turns_of(f) & viewed(f)
    columns = ", ".join(
        f"{_TURN_AGGREGATES[figure.combine].format(figure.turn_column)} AS v_{figure.name}, "
        f"count({figure.turn_column}) AS n_{figure.name}"
        for figure in SUMMARY_FIGURES
        if figure.turn_column is not None
    )
    (row,) = rows(
        connection,
        f"""SELECT count(DISTINCT process_id) FILTER (WHERE process_id <> '') AS processes, {columns},
                   string_agg(DISTINCT receive_stamp, ', ' ORDER BY receive_stamp) AS receive_stamp,
                   string_agg(DISTINCT pacer, ', ' ORDER BY pacer) AS pacer
            FROM turns WHERE {where.sql}""",
        list(where.values),
    )
    return row


def _process_figures(connection: StoreConnection, f: Filter) -> dict[str, Any]:
    """Return the value of each gauge farthest from 0, and under `sum_GAUGE` the sum of each process's highest count."""
    where = points_of(f)
    statement = f"""
        SELECT name, {farthest_from_0("farthest")} AS farthest, sum(most) AS total,
               count(DISTINCT process_id) AS processes
        FROM (SELECT name, run_id, process_id, {farthest_from_0("value")} AS farthest, max(value) AS most
              FROM points WHERE {where.sql} GROUP BY name, run_id, process_id)
        GROUP BY name
        """
    by_metric = {row["name"]: row for row in rows(connection, statement, list(where.values))}
    figures: dict[str, Any] = {"processes": 0}
    for gauge, figure in GAUGES.items():
        row = by_metric.get(figure.metric)
        if row is not None:
            figures[gauge], figures[f"sum_{gauge}"] = row["farthest"], row["total"]
    if (cpu := by_metric.get(gauge_metric("cpu_ratio"))) is not None:
        figures["processes"] = cpu["processes"]
    return figures


def _too_few(figure: HealthFigure, turns: dict[str, Any]) -> int | None:
    """The number of turns that report a figure, if it is a percentile that needs more; else None."""
    n = turns[f"n_{figure.name}"] if figure.combine == "p99" else MIN_COUNT_FOR["p99"]
    return n if n < MIN_COUNT_FOR["p99"] else None


def _combined(figure: HealthFigure, turns: dict[str, Any], points: dict[str, Any]) -> int | float | None:
    """The figure from both sources; durations and counts are whole."""
    gauge = None
    if figure.gauge is not None:
        gauge = points.get(f"sum_{figure.gauge}" if figure.combine == "sum" else figure.gauge)
    turn = turns[f"v_{figure.name}"] if figure.turn_column is not None else None
    if _too_few(figure, turns) is not None:
        turn = None
    known = [value for value in (turn, gauge) if value is not None]
    if not known:
        return None
    value = max(known)
    return float(value) if figure.unit == "share of a core" else round(value)


@dataclass(slots=True)
class StartsOfPhase:
    """One phase over all processes."""

    kind: str | None
    begin_s: float
    first_unix_ns: int
    counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def answer(self) -> StartCounts:
        """The counts as the store answers."""
        return StartCounts(*(self.counts[which] for which in semconv.START_COUNTS))


def starts_by_phase(connection: StoreConnection, f: Filter) -> dict[str, StartsOfPhase]:
    """Count call starts by phase, ordered by time; empty without open arrivals, and for a filter that restricts what a
    start does not have (a cohort, a period)."""
    if f.since_unix_ns is not None or f.until_unix_ns is not None or asks_beyond_phases(f):
        return {}
    return _by_phase(_starts(connection, points_of(f)), f.phase)


def starts_by_run(connection: StoreConnection, f: Filter = ANY) -> dict[str, dict[str, StartsOfPhase]]:
    """Return `starts_by_phase` of each run with open arrivals, of the starts within the time of a filter."""
    by_run: defaultdict[str, list[Row]] = defaultdict(list)
    until = Condition("run_id <> ''") & points_of(replace(f, since_unix_ns=None))
    for row in _starts(connection, until, f.since_unix_ns):
        by_run[row["run_id"]].append(row)
    return {run_id: _by_phase(starts, None) for run_id, starts in by_run.items()}


def _starts(connection: StoreConnection, where: Condition, since_unix_ns: int | None = None) -> list[Row]:
    # The counts are cumulative: the largest that a process reported is its last.
    statement = f"""
        SELECT run_id, process_id, attributes, min(unix_ns) AS first,
               (max(value) - coalesce(max(value) FILTER (unix_ns < ?), 0))::BIGINT AS n FROM points
        WHERE name = ? AND {where.sql} GROUP BY run_id, process_id, attributes
        """
    return rows(connection, statement, [since_unix_ns, semconv.METRIC_GENERATOR_STARTS, *where.values])


def _by_phase(starts: Iterable[Row], wanted: str | None) -> dict[str, StartsOfPhase]:
    phases: dict[str, StartsOfPhase] = {}
    for row in starts:
        attributes: defaultdict[str, Any] = defaultdict(lambda: None, orjson.loads(row["attributes"]))
        name, which, begin_s = attributes["phase"], attributes["which"], attributes["phase_begin_s"]
        if not isinstance(name, str) or which not in semconv.START_COUNTS or not isinstance(begin_s, int | float):
            continue
        if wanted is not None and name != wanted:
            continue
        phase = phases.setdefault(name, StartsOfPhase(attributes["phase_kind"], float(begin_s), row["first"]))
        phase.first_unix_ns = min(phase.first_unix_ns, row["first"])
        phase.counts[which] += row["n"]
    return dict(sorted(phases.items(), key=lambda item: (item[1].begin_s, item[0])))


def total_starts(phases: dict[str, StartsOfPhase]) -> StartCounts | None:
    """Sum the starts of all phases; None without open arrivals."""
    if not phases:
        return None
    return StartCounts(*(sum(phase.counts[which] for phase in phases.values()) for which in semconv.START_COUNTS))


# A process states how many turns it emitted ahead of the turns themselves, which wait for their batch: what it reported
# this long ago must have arrived by now.
EXPORT_GRACE_NS: Final = 15_000_000_000
NO_LOSS: Final = TelemetryLoss(processes=0, emitted=None, received=0, missing=0)
# Whether retention has removed turns of a row's run.
IS_CUT: Final = "coalesce(run_id IN (SELECT run_id FROM removed WHERE of_table = 'turns'), false)"


@dataclass(frozen=True, slots=True)
class LossOfProcess:
    """Turns of one process: the number it says it `emitted` (None if it does not), those `received`, the numbers in
    between that did not arrive (`holes`), and the turns `missing` for either reason."""

    process_id: str
    emitted: int | None
    received: int
    holes: int
    missing: int


def loss_by_process(connection: StoreConnection, f: Filter) -> tuple[LossOfProcess, ...]:
    """Missing turns of each process, ordered by name: gaps in its sequence numbers, and turns that it says it emitted
    but that did not arrive. Of the filter only the run applies, as sequence numbers know no cohort."""
    run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    return _losses([*_arrived(connection, run, ("process_id",)), *_reported(connection, run, ("process_id",))])


def loss_by_run(connection: StoreConnection) -> dict[str, TelemetryLoss]:
    """Return the missing turns of each run. Runs without any information have no entry."""
    by_run: defaultdict[str, list[Row]] = defaultdict(list)
    every, by = Condition("true"), ("run_id", "process_id")
    for row in (*_arrived(connection, every, by), *_reported(connection, every, by)):
        by_run[row["run_id"]].append(row)
    return {run_id: total_loss(_losses(loss_rows)) for run_id, loss_rows in by_run.items()}


def loss_of_runs(connection: StoreConnection, run_ids: frozenset[str]) -> TelemetryLoss:
    """Return the missing turns of some runs together. The number of emitted turns is unknown if one of them does not
    report it."""
    by_run = loss_by_run(connection)
    losses = [by_run.get(run_id, NO_LOSS) for run_id in run_ids]
    emitted = [loss.emitted for loss in losses if loss.emitted is not None]
    return TelemetryLoss(
        processes=sum(loss.processes for loss in losses),
        emitted=sum(emitted) if len(emitted) == len(losses) else None,
        received=sum(loss.received for loss in losses),
        missing=sum(loss.missing for loss in losses),
    )


def _arrived(connection: StoreConnection, run: Condition, by: tuple[str, ...]) -> list[Row]:
    """Return by process how many numbers of its turns arrived, and how many in between did not.

    A process may outlive a run (an assistant does): if the store has lower numbers of it, its numbers from the run's
    first to the run's last are used, whichever runs the turns in between belong to. So too of a run of which retention
    has removed turns, which are not lost.
    """
    columns = ", ".join(by)
    # Numbers are counted by blocks of 64, as bits; few processes outlive a run: only those of these are put in order.
    return rows(
        connection,
        f"""
        WITH mine AS MATERIALIZED (
            SELECT {columns}, sum(bit_count(bits))::BIGINT AS received, min(first) AS first, max(last) AS last,
                   bool_or(is_cut) AS is_cut
            FROM (SELECT {columns}, bit_or(1::UBIGINT << (sequence % 64)) AS bits, min(sequence) AS first,
                         max(sequence) AS last, bool_or({IS_CUT}) AS is_cut
                  FROM turns WHERE sequence >= 0 AND process_id <> '' AND {run.sql} GROUP BY {columns}, sequence // 64)
            GROUP BY {columns}),
        ranked AS MATERIALIZED (
            SELECT process_id, sequence, row_number() OVER (PARTITION BY process_id ORDER BY sequence) AS place
            FROM (SELECT DISTINCT process_id, sequence FROM turns WHERE sequence >= 0 AND process_id IN (
                  SELECT process_id FROM turns WHERE sequence >= 0 AND process_id IN (SELECT process_id FROM mine)
                  GROUP BY process_id HAVING min(run_id) <> max(run_id))))
        SELECT {", ".join(f"mine.{name}" for name in by)}, received, CASE WHEN is_cut THEN first ELSE 0 END AS removed,
               last + 1 - CASE WHEN is_cut OR head.place > 1 THEN first ELSE 0 END
               - coalesce(tail.place - head.place + 1, received) AS holes
        FROM mine
        LEFT JOIN ranked head ON head.process_id = mine.process_id AND head.sequence = mine.first
        LEFT JOIN ranked tail ON tail.process_id = mine.process_id AND tail.sequence = mine.last
        """,
        list(run.values),
    )


def _reported(connection: StoreConnection, run: Condition, by: tuple[str, ...]) -> list[Row]:
    """Return by process how many turns it reports as emitted, and how many of them must have arrived by now: of a run
    of which retention has removed turns, only those of processes of which it has left some."""
    columns = ", ".join(by)
    return rows(
        connection,
        f"""
        WITH counters AS (
            SELECT process_id, run_id, max(value) AS emitted,
                   max(value) FILTER (WHERE unix_ns <= ? AND NOT ({IS_CUT} AND process_id NOT IN (
                       SELECT process_id FROM turns WHERE process_id IS NOT NULL AND {run.sql}))) AS due
            FROM points WHERE name = ? AND process_id IS NOT NULL AND {run.sql} GROUP BY process_id, run_id)
        SELECT {columns}, sum(emitted)::BIGINT AS emitted, coalesce(sum(due), 0)::BIGINT AS due
        FROM counters GROUP BY {columns}
        """,
        [connection.now_unix_ns - EXPORT_GRACE_NS, *run.values, semconv.METRIC_TURNS_EMITTED, *run.values],
    )


def _losses(counted: Sequence[Row]) -> tuple[LossOfProcess, ...]:
    """The loss of each process from the rows of both statements."""
    nothing: Row = {"received": 0, "holes": 0, "removed": 0, "emitted": None, "due": 0}
    by_process: defaultdict[str, Row] = defaultdict(nothing.copy)
    for row in counted:
        by_process[row["process_id"]].update(row)
    return tuple(
        LossOfProcess(
            process_id=process_id,
            emitted=row["emitted"],
            received=row["received"],
            holes=row["holes"],
            missing=max(row["holes"], row["due"] - row["removed"] - row["received"]),
        )
        for process_id, row in sorted(by_process.items())
    )


def total_loss(losses: Sequence[LossOfProcess]) -> TelemetryLoss:
    """The loss of all of some processes."""
    emitted = [loss.emitted for loss in losses if loss.emitted is not None]
    return TelemetryLoss(
        processes=len(losses),
        emitted=sum(max(loss.emitted or 0, loss.received + loss.holes) for loss in losses) if emitted else None,
        received=sum(loss.received for loss in losses),
        missing=sum(loss.missing for loss in losses),
    )


def lost_share(loss: TelemetryLoss) -> float | None:
    """Return the share of the turns that is missing; None if no turn carries a sequence number."""
    turns = loss.received + loss.missing
    return loss.missing / turns if turns else None


# The gauges that are drawn over time, in the order of the table of figures.
SERIES: Final = tuple(gauge for gauge, figure in GAUGES.items() if figure.chart_heading)
# No page can tell more lines apart; the processes with the worst values are drawn.
MOST_PROCESSES: Final = 8


@dataclass(frozen=True, slots=True)
class GaugeSeries:
    """One gauge over time in its unit: the worst value of each process in each bucket of `width_ns`, None if it
    reported none. Of more than MOST_PROCESSES processes, those with the worst values are included."""

    gauge: str
    width_ns: int
    starts_unix_ns: tuple[int, ...]
    values: Mapping[str, tuple[float | None, ...]]
    processes: int


@dataclass(frozen=True, slots=True)
class InstrumentAnswer:
    """The figures of the instrument. `stamps` and `pacers` count client turns by what took the time of their
    chunks and sent their frames; `invalid` counts reasons, of which a turn may have several."""

    series: Mapping[str, GaugeSeries] = field(default_factory=dict[str, GaugeSeries])
    stamps: Mapping[str, int] = field(default_factory=dict[str, int])
    pacers: Mapping[str, int] = field(default_factory=dict[str, int])
    invalid: CountsOverTime = CountsOverTime(COUNT_TICK_NS)  # noqa: RUF009 - immutable
    loss: Sequence[LossOfProcess] = ()


def instrument_answer(connection: StoreConnection, f: Filter) -> InstrumentAnswer:
    """The answer from the turns of a filter and what the processes of its run reported."""
    return InstrumentAnswer(
        series=gauge_series(connection, f),
        stamps=_named(connection, f, "receive_stamp"),
        pacers=_named(connection, f, "pacer"),
        invalid=counts_over_time(_invalid(connection, f), among=_first_and_last(connection, f)),
        loss=loss_by_process(connection, f),
    )


def gauge_series(connection: StoreConnection, f: Filter) -> dict[str, GaugeSeries]:
    """Each gauge of SERIES that was reported, by name. Gauges know their run and the time, but nothing else that a
    filter restricts."""
    names = {GAUGES[gauge].metric: gauge for gauge in SERIES}
    where = points_of(f)
    chosen = f"name IN ({', '.join('?' for _ in names)}) AND process_id IS NOT NULL AND {where.sql}"
    values = [*names, *where.values]
    (span,) = rows(connection, f"SELECT min(unix_ns) AS first, max(unix_ns) AS last FROM points WHERE {chosen}", values)
    if span["first"] is None:
        return {}
    width_ns = max(COUNT_TICK_NS, bucket_width_ns(span["last"] - span["first"], MOST_BUCKETS))
    buckets = rows(
        connection,
        f"""
        SELECT name, process_id, unix_ns // {width_ns} AS bucket,
               {farthest_from_0("value")} AS worst
        FROM points WHERE {chosen} GROUP BY ALL
        """,
        values,
    )
    begin, end = span["first"] // width_ns, span["last"] // width_ns
    starts = tuple(bucket * width_ns for bucket in range(begin, end + 1))
    return {
        gauge: _series(GAUGES[gauge], mine, width_ns, starts)
        for metric, gauge in names.items()
        if (mine := [row for row in buckets if row["name"] == metric])
    }


def _series(figure: HealthFigure, buckets: list[dict[str, Any]], width_ns: int, starts: tuple[int, ...]) -> GaugeSeries:
    worst: dict[str, float] = {}
    by_process: dict[str, list[float | None]] = {}
    for row in buckets:
        process = row["process_id"]
        worst[process] = max(worst.get(process, 0.0), abs(row["worst"]))
        line = by_process.setdefault(process, [None] * len(starts))
        line[row["bucket"] - starts[0] // width_ns] = row["worst"]
    drawn = sorted(sorted(worst, key=lambda process: (-worst[process], process))[:MOST_PROCESSES])
    return GaugeSeries(
        figure.gauge or "", width_ns, starts, {process: tuple(by_process[process]) for process in drawn}, len(worst)
    )


def _named(connection: StoreConnection, f: Filter, column: str) -> dict[str, int]:
    where = turns_of(f) & viewed(f)
    statement = f"""
        SELECT {column} AS name, count(*) AS n FROM turns WHERE {where.sql} AND {column} IS NOT NULL
        GROUP BY ALL ORDER BY n DESC, name
        """
    return {row["name"]: row["n"] for row in rows(connection, statement, list(where.values))}


def _invalid(connection: StoreConnection, f: Filter) -> list[tuple[str, int, int]]:
    where = grouped(f)
    statement = f"""
        SELECT reason, tick, count(*) AS n FROM (
            SELECT unnest(invalid_reasons) AS reason, started_unix_ns // {COUNT_TICK_NS} AS tick
            FROM turns WHERE {where.sql} AND outcome = 'invalid') GROUP BY ALL
        """
    return [(row["reason"], row["tick"], row["n"]) for row in rows(connection, statement, list(where.values))]


def _first_and_last(connection: StoreConnection, f: Filter) -> list[int]:
    """The ticks of the first and the last turn, invalid or not."""
    where = grouped(f)
    statement = f"""
        SELECT min(started_unix_ns) // {COUNT_TICK_NS} AS first, max(started_unix_ns) // {COUNT_TICK_NS} AS last
        FROM turns WHERE {where.sql} AND (outcome <> 'invalid' OR len(invalid_reasons) > 0)
        """
    (row,) = rows(connection, statement, list(where.values))
    return [] if row["first"] is None else [row["first"], row["last"]]
