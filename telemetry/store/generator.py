"""The health of the load generator, combined over its processes and turns as each figure's row says."""

# ruff: noqa: S608 - the identifiers in these statements come from the table of figures, every value is bound

from typing import Any, Final

from telemetry.model.generator_health import GAUGES, SUMMARY_FIGURES, HealthFigure, gauge_metric
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.store import queries
from telemetry.store.answers import Filter, Generator
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import viewed

_OF_TURNS: Final = {"max": "max({})", "p99": "quantile_cont({}, 0.99)"}


def generator(connection: StoreConnection, f: Filter, turns: dict[str, Any]) -> Generator:
    """Every figure of SUMMARY_FIGURES over a filter, from the turns' `evidence` and the processes' gauges.

    The evidence may be an estimate, which has `is_approximate`.
    """
    points = _of_processes(connection, f)
    return Generator(
        processes=max(turns["processes"], points["processes"]),
        figures={figure.name: _combined(figure, turns, points) for figure in SUMMARY_FIGURES},
        receive_stamp=turns["receive_stamp"],
        pacer=turns["pacer"],
        approximate=frozenset(each.name for each in SUMMARY_FIGURES if each.combine == "p99")
        if turns.get("is_approximate")
        else frozenset(),
        too_few={each.name: n for each in SUMMARY_FIGURES if (n := _too_few(each, turns))},
    )


def evidence(connection: StoreConnection, f: Filter) -> dict[str, Any]:
    """A row with `v_NAME`, the combined value of a figure's column, and `n_NAME`, of how many turns."""
    where = queries.turns_of(f) & viewed(f)
    columns = ", ".join(
        f"{_OF_TURNS[figure.combine].format(figure.turn_column)} AS v_{figure.name}, "
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


def _of_processes(connection: StoreConnection, f: Filter) -> dict[str, Any]:
    """By gauge: the value farthest from 0, and under `sum_GAUGE` the sum of the most that each process counted."""
    where = queries.points_of(f)
    statement = f"""
        SELECT name, {queries.farthest_from_0("farthest")} AS farthest, sum(most) AS total,
               count(DISTINCT process_id) AS processes
        FROM (SELECT name, run_id, process_id, {queries.farthest_from_0("value")} AS farthest, max(value) AS most
              FROM points WHERE {where.sql} GROUP BY name, run_id, process_id)
        GROUP BY name
        """
    by_metric = {row["name"]: row for row in rows(connection, statement, list(where.values))}
    found: dict[str, Any] = {"processes": 0}
    for gauge, figure in GAUGES.items():
        row = by_metric.get(figure.metric)
        if row is not None:
            found[gauge], found[f"sum_{gauge}"] = row["farthest"], row["total"]
    if (cpu := by_metric.get(gauge_metric("cpu_ratio"))) is not None:
        found["processes"] = cpu["processes"]
    return found


def _too_few(figure: HealthFigure, turns: dict[str, Any]) -> int | None:
    """The number of turns that report a figure where it is a percentile that needs more; else None."""
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
