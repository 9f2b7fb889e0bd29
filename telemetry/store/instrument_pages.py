"""The instrument over a run: what its processes reported of themselves over time, what made turns invalid, how chunks
were stamped, and what telemetry is missing by process."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from telemetry.model.generator_health import GAUGES, HealthFigure
from telemetry.store import queries
from telemetry.store.answers import Filter
from telemetry.store.cache_pages import COUNT_TICK_NS, MOST_BUCKETS, CountsOverTime, counts_over_time
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.telemetry_loss import LossOfProcess, loss_by_process
from telemetry.store.timelines import bucket_width_ns

# The gauges that are drawn over time, in the order of the table of figures.
SERIES: Final = tuple(gauge for gauge, figure in GAUGES.items() if figure.chart_heading)
# No page can tell more lines apart; the processes with the worst values are drawn.
MOST_PROCESSES: Final = 8


@dataclass(frozen=True, slots=True)
class GaugeSeries:
    """One gauge over time in its unit: the worst value of each process in each bucket of `width_ns`, None where it
    reported none. Of more than MOST_PROCESSES processes those with the worst values are here, of `processes`."""

    gauge: str
    width_ns: int
    starts_unix_ns: tuple[int, ...]
    values: Mapping[str, tuple[float | None, ...]]
    processes: int


@dataclass(frozen=True, slots=True)
class InstrumentAnswer:
    """What the store knows of the instrument. `stamps` and `pacers` count client turns by what took the time of their
    chunks and sent their frames; `invalid` counts reasons, of which a turn may have several."""

    series: Mapping[str, GaugeSeries] = field(default_factory=dict[str, GaugeSeries])
    stamps: Mapping[str, int] = field(default_factory=dict[str, int])
    pacers: Mapping[str, int] = field(default_factory=dict[str, int])
    invalid: CountsOverTime = CountsOverTime(COUNT_TICK_NS)  # noqa: RUF009 - immutable
    loss: Sequence[LossOfProcess] = ()


def instrument_answer(connection: StoreConnection, f: Filter, now_unix_ns: int) -> InstrumentAnswer:
    """The answer from the turns of a filter and what the processes of its run reported."""
    return InstrumentAnswer(
        series=gauge_series(connection, f),
        stamps=_named(connection, f, "receive_stamp"),
        pacers=_named(connection, f, "pacer"),
        invalid=counts_over_time(_invalid(connection, f), among=_first_and_last(connection, f)),
        loss=loss_by_process(connection, f, now_unix_ns),
    )


def gauge_series(connection: StoreConnection, f: Filter) -> dict[str, GaugeSeries]:
    """Each gauge of SERIES that was reported, by its name. Processes know their run and the time, and nothing else of
    the filter."""
    names = {GAUGES[gauge].metric: gauge for gauge in SERIES}
    where = queries.points_of(f)
    chosen = f"name IN ({', '.join('?' for _ in names)}) AND process_id IS NOT NULL AND {where.sql}"
    values = [*names, *where.values]
    (span,) = rows(connection, f"SELECT min(unix_ns) AS first, max(unix_ns) AS last FROM points WHERE {chosen}", values)
    if span["first"] is None:
        return {}
    width_ns = max(COUNT_TICK_NS, bucket_width_ns(span["last"] - span["first"], MOST_BUCKETS))
    found = rows(
        connection,
        f"""
        SELECT name, process_id, unix_ns // {width_ns} AS bucket,
               {queries.farthest_from_0("value")} AS worst
        FROM points WHERE {chosen} GROUP BY ALL
        """,
        values,
    )
    begin, end = span["first"] // width_ns, span["last"] // width_ns
    starts = tuple(bucket * width_ns for bucket in range(begin, end + 1))
    return {
        gauge: _series(GAUGES[gauge], mine, width_ns, starts)
        for metric, gauge in names.items()
        if (mine := [row for row in found if row["name"] == metric])
    }


def _series(figure: HealthFigure, found: list[dict[str, Any]], width_ns: int, starts: tuple[int, ...]) -> GaugeSeries:
    worst: dict[str, float] = {}
    by_process: dict[str, list[float | None]] = {}
    for row in found:
        process = row["process_id"]
        worst[process] = max(worst.get(process, 0.0), abs(row["worst"]))
        line = by_process.setdefault(process, [None] * len(starts))
        line[row["bucket"] - starts[0] // width_ns] = row["worst"]
    drawn = sorted(sorted(worst, key=lambda process: (-worst[process], process))[:MOST_PROCESSES])
    return GaugeSeries(
        figure.gauge or "", width_ns, starts, {process: tuple(by_process[process]) for process in drawn}, len(worst)
    )


def _named(connection: StoreConnection, f: Filter, column: str) -> dict[str, int]:
    where = queries.turns_of(f) & queries.viewed(f)
    statement = f"""
        SELECT {column} AS name, count(*) AS n FROM turns WHERE {where.sql} AND {column} IS NOT NULL
        GROUP BY ALL ORDER BY n DESC, name
        """
    return {row["name"]: row["n"] for row in rows(connection, statement, list(where.values))}


def _invalid(connection: StoreConnection, f: Filter) -> list[tuple[str, int, int]]:
    where = queries.grouped(f)
    statement = f"""
        SELECT reason, tick, count(*) AS n FROM (
            SELECT unnest(invalid_reasons) AS reason, started_unix_ns // {COUNT_TICK_NS} AS tick
            FROM turns WHERE {where.sql} AND outcome = 'invalid') GROUP BY ALL
        """
    return [(row["reason"], row["tick"], row["n"]) for row in rows(connection, statement, list(where.values))]


def _first_and_last(connection: StoreConnection, f: Filter) -> list[int]:
    """The ticks of the first and the last turn, invalid or not."""
    where = queries.grouped(f)
    statement = f"""
        SELECT min(started_unix_ns) // {COUNT_TICK_NS} AS first, max(started_unix_ns) // {COUNT_TICK_NS} AS last
        FROM turns WHERE {where.sql} AND (outcome <> 'invalid' OR len(invalid_reasons) > 0)
        """
    (row,) = rows(connection, statement, list(where.values))
    return [] if row["first"] is None else [row["first"], row["last"]]
