"""Percentiles of very many values, from the turns of one in ONE_IN calls, each with an interval of its own.

Which calls these are is decided by a hash of a call's identity, so that every call is wholly in or out. Nothing is
stored for it: to pick them takes no longer than to read a table of their own (measured at a million turns).
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions.filters import Condition
from telemetry.store.schema import ArrowTable

ONE_IN: Final = 16
# Percentiles of fewer values are exact however many turns a view has.
EXACT_VALUES: Final = 100_000
# Of fewer calls the interval, which takes their sums for normal, would not hold what it says.
FEWEST_CALLS: Final = 1_000
_FRACTIONS: Final = (0.5, 0.95, 0.99)
# A quantile holds all of its values: of many turns only so many are held at once, whatever the number of metrics.
_VALUES_AT_ONCE: Final = 1_000_000
_DEVIATIONS: Final = 1.959964  # of a normal distribution, on both sides of 95 %

# The identity of a call, as a number: a turn without a call belongs to its trace, or to itself.
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
    order = np.argsort(values)
    ordered, calls = values[order], calls[order]
    known: dict[int, float] = {0: 0.0, n: 0.0}

    def deviation(place: int) -> float:
        """The standard error of the share of the values before a place, by linearization."""
        if place not in known:
            # The values before it and those behind it deviate alike: the fewer are counted.
            some = calls[:place] if 2 * place < n else calls[place:]
            sums = np.bincount(some, minlength=of_call.size) - some.size / n * of_call
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
    """Return `quantile_cont`, also for infinite values."""
    place = (ordered.size - 1) * fraction
    low, high = float(ordered[math.floor(place)]), float(ordered[math.ceil(place)])
    return low if low == high else low + (high - low) * (place - math.floor(place))


@dataclass(frozen=True, slots=True)
class Values:
    """The value of which percentiles are taken: an expression on a turn by a name. Of what was measured also those of
    its lower and its upper bound; a value without bounds may lie anywhere, and counts as infinite on either side."""

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


@dataclass(frozen=True, slots=True)
class SampledCalls:
    """The values of the turns of the sampled calls by the names of their columns, NaN where there is none; `calls` are
    numbers from 0. `groups` says of each group by its name which turns are its own."""

    calls: Any
    columns: Mapping[str, Floats]
    groups: Mapping[str | None, Any]

    @classmethod
    def of(cls, found: ArrowTable, values: Iterable[Values], groups: Mapping[str | None, Any]) -> Self:
        """The turns that `sampled_turns` found, in groups."""
        calls = np.unique(found["of_call"].to_numpy(), return_inverse=True)[1].reshape(-1)
        columns = {name: found[name].to_numpy().astype(np.float64) for name in _columns_of(values)}
        return cls(calls, columns, groups)

    def add_estimates(self, row: Row, group: str | None, of: Values) -> bool:
        """Add the estimates of some values to the row of a group, if they are many and of enough calls."""
        if row[f"n_{of.name}"] < EXACT_VALUES:
            return False
        mine = self.groups[group] & ~np.isnan(self.columns[of.name])
        calls = self.calls[mine]
        for side in of.columns:
            found = estimate(self.columns[side + of.name][mine], calls, _FRACTIONS)
            if found is None:
                return False
            if side:
                row[f"q_{side}{of.name}"] = [each[side == "upper_"] for each in found.within]
            else:
                row[f"q_{of.name}"], row[f"within_{of.name}"] = list(found.quantiles), found.within
        return True


def sampled_turns(
    connection: StoreConnection,
    values: Iterable[Values],
    where: Condition,
    more: str = "",
) -> ArrowTable:
    """Values of the turns of the sampled calls, which are `of_call`, and `more` columns of them."""
    columns = ", ".join(f"({column})::DOUBLE AS {name}" for name, column in _columns_of(values).items())
    return connection.arrow(
        f"SELECT {CALL} AS of_call, {more}{columns} FROM turns WHERE ({where.sql}) AND {CALL} % {ONE_IN} = 0",
        where.values,
    )


def _columns_of(values: Iterable[Values]) -> dict[str, str]:
    return {side + each.name: column for each in values for side, column in each.columns.items()}


@dataclass(frozen=True, slots=True)
class Groups:
    """Turns of a `table` that meet a condition, in groups by the value of `key`; None for one group, whose name is
    None. `counted` has a row for each group, with the number of its values under `n_NAME`."""

    counted: Mapping[str | None, Row]
    where: Condition
    key: str | None = None
    table: str = "turns"


def add_percentiles(
    connection: StoreConnection, groups: Groups, values: Sequence[Values], sample: SampledCalls | None
) -> None:
    """Add to the row of each group the percentiles of values under `q_NAME`, of their bounds `q_lower_NAME` and
    `q_upper_NAME`. Where there is a sample, those of many values are estimates: `within_NAME` has their intervals, and
    in the place of those of the bounds are the ends between which the sample shows the quantiles to be."""
    exactly: dict[tuple[Values, ...], list[str | None]] = {}
    for name, row in groups.counted.items():
        known = [each for each in values if row[f"n_{each.name}"]]
        rest = [each for each in known if sample is None or not sample.add_estimates(row, name, each)]
        if rest:
            exactly.setdefault(tuple(rest), []).append(name)
    for of, names in exactly.items():
        where, key = groups.where, groups.key or "NULL::VARCHAR"
        if groups.key is not None:
            where &= Condition(f"{key} IN ({', '.join('?' for _ in names)})", tuple(names))
        most = max(groups.counted[name][f"n_{each.name}"] for name in names for each in of)
        at_once = max(1, _VALUES_AT_ONCE // most)
        for begin in range(0, len(of), at_once):
            columns = ", ".join(
                f"quantile_cont({column}, {list(_FRACTIONS)}) AS q_{name}"
                for name, column in _columns_of(of[begin : begin + at_once]).items()
            )
            statement = f"SELECT {key} AS of_group, {columns} FROM {groups.table} WHERE {where.sql} GROUP BY ALL"
            for row in rows(connection, statement, where.values):
                groups.counted[row["of_group"]].update(row)


def stated(within: Sequence[tuple[float, float]] | None) -> dict[str, tuple[float, float]]:
    """The intervals of estimates by the names of the percentiles; empty where they are exact."""
    return {} if within is None else dict(zip(("p50", "p95", "p99"), within, strict=True))
