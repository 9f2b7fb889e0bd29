"""Percentiles of very many values, from the turns of one in ONE_IN calls, each with an interval of its own.

Which calls these are is decided by a hash of a call's identity, so that every call is wholly in or out. Nothing is
stored for it: to pick them takes no longer than to read a table of their own (measured at a million turns).
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from telemetry.model.bounds import BOUNDED
from telemetry.model.metrics import Metric
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions.filters import Condition

ONE_IN: Final = 16
# Percentiles of fewer values are exact however many turns a view has.
EXACT_VALUES: Final = 100_000
# Of fewer calls the interval, which takes their sums for normal, would not hold what it says.
FEWEST_CALLS: Final = 1_000
_FRACTIONS: Final = (0.5, 0.95, 0.99)
# A quantile holds all of its values: of many turns only so many are held at once, whatever the number of metrics.
_VALUES_AT_ONCE: Final = 1_000_000
_DEVIATIONS: Final = 1.959964  # of a normal distribution, on both sides of 95 %

# What tells calls apart, as a number: a turn without a call belongs to its trace, or to itself.
CALL: Final = "hash(CASE WHEN call_id <> '' THEN call_id WHEN trace_id <> '' THEN trace_id ELSE span_id END)"

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Quantiles, and of each the interval that holds the exact one with 95 % confidence."""

    quantiles: tuple[float, ...]
    within: tuple[tuple[float, float], ...]


def estimate(values: Floats, calls: Any, fractions: Sequence[float]) -> Estimate | None:
    """The quantiles of all values from those of the sampled calls, which are numbers from 0; None for too few calls.

    The interval is W. Woodruff's ("Confidence intervals for medians and other position measures", 1952): that of the
    share of values up to the quantile, as places among the values. Its variance is the one between calls, whose turns
    are alike, of calls drawn without putting them back.
    """
    of_call = np.bincount(calls)
    count, n = int(np.count_nonzero(of_call)), values.size
    if count < FEWEST_CALLS:
        return None
    ordered = np.sort(values)
    known: dict[int, float] = {0: 0.0, n: 0.0}

    def deviation(place: int) -> float:
        """The standard error of the share of the values before a place, by linearization."""
        if place not in known:
            sums = np.bincount(calls[values < ordered[place]], minlength=of_call.size) - place / n * of_call
            known[place] = math.sqrt((1 - 1 / ONE_IN) * count / (count - 1) * float(np.square(sums).sum())) / n
        return known[place]

    reach: list[tuple[float, float]] = []
    for fraction in fractions:
        # Where many values are the same, the true share lies between that of smaller ones and that of these too; and
        # calls may be more alike at the true quantile, which is near, than at this one.
        half = 0.0
        for _ in range(2):
            at = [quantile(ordered, min(1.0, max(0.0, fraction + side * half))) for side in (-1, 0, 1)]
            places = {int(place) for side in ("left", "right") for place in np.searchsorted(ordered, at, side)}
            half = max(half, _DEVIATIONS * max(map(deviation, places)) + 1 / n)
        reach.append((max(0.0, fraction - half), min(1.0, fraction + half)))
    return Estimate(
        quantiles=tuple(quantile(ordered, fraction) for fraction in fractions),
        within=tuple((quantile(ordered, low), quantile(ordered, high)) for low, high in reach),
    )


def quantile(ordered: Floats, fraction: float) -> float:
    """As `quantile_cont`, also where values are infinite."""
    place = (ordered.size - 1) * fraction
    low, high = float(ordered[math.floor(place)]), float(ordered[math.ceil(place)])
    return low if low == high else low + (high - low) * (place - math.floor(place))


@dataclass(frozen=True, slots=True)
class Values:
    """What percentiles are taken of: an expression on a turn by a name. Of what was measured also those of its
    lower and its upper bound; a value without bounds may lie anywhere, and counts as infinite on either side."""

    name: str
    value: str
    lower: str | None = None
    upper: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The value and its bounds, by the beginning of a column's name."""
        if self.lower is None or self.upper is None:
            return {"": self.value}
        anywhere = {"lower_": (self.lower, "-infinity"), "upper_": (self.upper, "infinity")}
        return {"": self.value} | {
            side: f"CASE WHEN {self.value} IS NOT NULL THEN coalesce({bound}, '{infinity}'::DOUBLE) END"
            for side, (bound, infinity) in anywhere.items()
        }

    @property
    def extremes(self) -> str:
        """Count and maxima, and of how many values the bounds are not known."""
        found = [f"max({column}) AS max_{side}{self.name}" for side, column in self.columns.items()]
        unknown = "" if self.lower is None else f", count({self.value}) - count({self.lower}) AS unknown_{self.name}"
        return f"count({self.value}) AS n_{self.name}{unknown}, {', '.join(found)}"

    @property
    def quantiles(self) -> str:
        """Of a statement that is about few rows: each quantile behind a FILTER takes five times as long."""
        found = (
            f"quantile_cont({column}, {list(_FRACTIONS)}) AS q_{side}{self.name}"
            for side, column in self.columns.items()
        )
        return ", ".join(found)


def values_of(metric: Metric) -> Values:
    """A metric's values."""
    if metric not in BOUNDED:
        return Values(metric.name, metric.column)
    return Values(metric.name, metric.column, metric.bound_column("lower"), metric.bound_column("upper"))


@dataclass(frozen=True, slots=True)
class Groups:
    """Turns in groups by a column, None for one group. With `has_total` one more group is all of them (`is_total`)."""

    key: str | None = None
    has_total: bool = True

    @property
    def _column(self) -> str:
        return "NULL::VARCHAR" if self.key is None else self.key

    def rows(self, connection: StoreConnection, columns: str, turns: Condition) -> list[Row]:
        """A row for each group of turns, which are what follows FROM."""
        if self.key is None:
            begin, end = "true AS is_total, NULL AS of_group", ""
        elif self.has_total:
            begin, end = (
                f"grouping({self.key}) = 1 AS is_total, {self.key}",
                f"GROUP BY GROUPING SETS ((), ({self.key}))",
            )
        else:
            begin, end = f"false AS is_total, {self.key}", f"GROUP BY {self.key}"
        return rows(connection, f"SELECT {begin}, {columns} FROM {turns.sql} {end}", turns.values)

    def name_of(self, row: Row) -> str | None:
        """The value of the column in the group that a row is about."""
        return row["of_group" if self.key is None else self.key]

    def row_of(self, found: Sequence[Row], row: Row) -> Row:
        """The row about the group of another one; empty where there is none."""
        asked = (row["is_total"], self.name_of(row))
        return next((each for each in found if (each["is_total"], self.name_of(each)) == asked), {})


def of_turns(where: Condition) -> Condition:
    """The turns that meet a condition, as what follows FROM."""
    return Condition(f"turns WHERE {where.sql}", where.values)


@dataclass(frozen=True, slots=True)
class GroupedValues:
    """Values in groups of turns, which are a table. `call` tells the calls apart to which they belong; `sampled` is the
    table of those of the sampled calls, where it is cheaper to read. `counts` are more columns of each group."""

    groups: Groups
    values: Sequence[Values]
    table: str
    where: Condition
    call: str = CALL
    sampled: str | None = None
    counts: tuple[str, ...] = ()

    @property
    def turns(self) -> Condition:
        """What follows FROM in a statement."""
        return Condition(f"{self.table} WHERE {self.where.sql}", self.where.values)


def percentiles(connection: StoreConnection, asked: GroupedValues, turns: int, *, is_many: bool) -> list[Row]:
    """A row for each group of at most so many turns with what `Values.extremes` and `Values.quantiles` name.

    Where there are many turns, the quantiles of many values are estimates: `within_NAME` has their intervals, and in
    the place of those of the bounds are the ends between which the sample shows the quantiles to be.
    """
    if not is_many:
        return _exact(connection, asked, turns)
    extremes = [*asked.counts, *(each.extremes for each in asked.values)]
    found = asked.groups.rows(connection, ", ".join(extremes), asked.turns)
    exactly: dict[tuple[Values, ...], list[Row]] = {}
    sample = _sample(connection, asked)
    for row in found:
        rest = [each for each in asked.values if row[f"n_{each.name}"] and not _is_estimated(row, each, asked, sample)]
        if rest:
            exactly.setdefault(tuple(rest), []).append(row)
    for values, of_groups in exactly.items():
        few, groups = asked.where, asked.groups
        if not any(row["is_total"] for row in of_groups):
            names = [groups.name_of(row) for row in of_groups]
            groups = replace(groups, has_total=False)
            of_these = f"list_contains(?::VARCHAR[], {groups.key}) OR (? AND {groups.key} IS NULL)"
            few &= Condition(of_these, (names, None in names))
        most = max(row[f"n_{each.name}"] for row in of_groups for each in values)
        exact = _exact(connection, replace(asked, groups=groups, values=values, where=few), most)
        for row in of_groups:
            row.update(groups.row_of(exact, row))
    return found


def _exact(connection: StoreConnection, asked: GroupedValues, most: int) -> list[Row]:
    at_once = max(1, _VALUES_AT_ONCE // max(1, most))
    found: list[Row] = []
    for begin in range(0, len(asked.values), at_once):
        columns = [f"{each.extremes}, {each.quantiles}" for each in asked.values[begin : begin + at_once]]
        part = asked.groups.rows(connection, ", ".join([*asked.counts, *columns]), asked.turns)
        found = [row | asked.groups.row_of(found, row) for row in part]
    return found


@dataclass(frozen=True, slots=True)
class _Sample:
    """The values of the turns of the sampled calls by the names of their columns, NaN where there is none; `calls` are
    numbers from 0."""

    names: Any
    calls: Any
    columns: Mapping[str, Floats]

    def estimates(self, name: str | None, of: Values) -> dict[str, Estimate] | None:
        """The estimates of a group by its name, of all turns without one: of the values and of their bounds, by the
        beginning of a column's name. None where too few calls are sampled."""
        known = ~np.isnan(self.columns[of.name])
        mine = known if name is None else known & (self.names == name)
        found: dict[str, Estimate] = {}
        for side in of.columns:
            one = estimate(self.columns[side + of.name][mine], self.calls[mine], _FRACTIONS)
            if one is None:
                return None
            found[side] = one
        return found


def _sample(connection: StoreConnection, asked: GroupedValues) -> _Sample:
    columns = {side + each.name: column for each in asked.values for side, column in each.columns.items()}
    selected = ", ".join(f"({column})::DOUBLE AS {name}" for name, column in columns.items())
    of_group = "NULL" if asked.groups.key is None else asked.groups.key
    found = connection.arrow(
        f"""
        SELECT {of_group} AS of_group, {asked.call} AS of_call, {selected} FROM {asked.sampled or asked.table}
        WHERE {asked.where.sql} AND {asked.call} % {ONE_IN} = 0
        """,
        asked.where.values,
    )
    calls = np.unique(found["of_call"].to_numpy(), return_inverse=True)[1].reshape(-1)
    values = {name: found[name].to_numpy().astype(np.float64) for name in columns}
    return _Sample(found["of_group"].to_numpy(), calls, values)


def _is_estimated(row: Row, values: Values, asked: GroupedValues, sample: _Sample) -> bool:
    """Add the estimates of some values to the row of a group, if they are many."""
    name = asked.groups.name_of(row)
    if row[f"n_{values.name}"] < EXACT_VALUES or (name is None and not row["is_total"]):
        return False
    if (found := sample.estimates(name, values)) is None:
        return False
    row[f"q_{values.name}"], row[f"within_{values.name}"] = list(found[""].quantiles), found[""].within
    if values.lower is not None:
        for place, side in enumerate(("lower", "upper")):
            row[f"q_{side}_{values.name}"] = [each[place] for each in found[f"{side}_"].within]
    return True


def stated(within: Sequence[tuple[float, float]] | None) -> dict[str, tuple[float, float]]:
    """The intervals of estimates by the names of the percentiles; empty where they are exact."""
    return {} if within is None else dict(zip(("p50", "p95", "p99"), within, strict=True))
