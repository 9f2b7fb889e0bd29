"""Percentiles of the values of turns, sorted in memory: of all values, or of very many from the turns of one in ONE_IN
calls, each with an interval.

The calls are sampled by a hash of a call's identity, so that every call is completely in or out. Nothing is stored for
it: sampling takes no longer than reading a separate table (measured at a million turns).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

from telemetry.store.connection import Row, StoreConnection
from telemetry.store.questions.filters import Condition

ONE_IN: Final = 16
# Percentiles of fewer values are exact however many turns a view has.
EXACT_VALUES: Final = 100_000
# Of fewer calls the interval, which takes their sums for normal, would not hold what it says.
FEWEST_CALLS: Final = 1_000
_FRACTIONS: Final = (0.5, 0.95, 0.99)
# Only so many values are held at once, with their bounds, whatever the number of metrics: a statement takes longer to
# find the turns than to read one more of their columns, and memory is limited.
_VALUES_AT_ONCE: Final = 2_000_000
_DEVIATIONS: Final = 1.959964  # of a normal distribution, on both sides of 95 %

# The identity of a call, as a number: a turn without a call belongs to its trace, or to itself.
CALL: Final = "hash(CASE WHEN call_id <> '' THEN call_id WHEN trace_id <> '' THEN trace_id ELSE span_id END)"

# In the place of a bound that is not known.
_BEYOND: Final = {"lower_": "'-Infinity'::DOUBLE", "upper_": "'Infinity'::DOUBLE"}
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Quantiles, and for each the interval that holds the exact one with 95 % confidence."""

    quantiles: tuple[float, ...]
    within: tuple[tuple[float, float], ...]


def estimate(values: Floats, calls: Any, fractions: Sequence[float]) -> Estimate | None:
    """The quantiles of all values from those of the sampled calls, which are numbers from 0; None for too few calls.

    The interval is W. Woodruff's ("Confidence intervals for medians and other position measures", 1952): that of the
    share of values up to the quantile, as places among the values. Its variance is the one between calls, whose turns
    are alike, of calls drawn without putting them back.
    """
    call_sizes = np.bincount(calls)
    count, n = int(np.count_nonzero(call_sizes)), values.size
    if count < FEWEST_CALLS:
        return None
    order = np.argsort(values)
    ordered, calls = values[order], calls[order]
    known: dict[int, float] = {0: 0.0, n: 0.0}

    def deviation(place: int) -> float:
        """The standard error of the share of the values before an index, by linearization."""
        if place not in known:
            # The values before it and those behind it deviate alike: the fewer are counted.
            some = calls[:place] if 2 * place < n else calls[place:]
            sums = np.bincount(some, minlength=call_sizes.size) - some.size / n * call_sizes
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
        """The value and its bounds, by the beginning of a column's name: none of a turn without the value."""
        columns = {"": f"({self.value})::DOUBLE"}
        for side, sql in (("lower_", self.lower), ("upper_", self.upper)):
            if sql is not None:
                bound = f"coalesce(({sql})::DOUBLE, {_BEYOND[side]})"
                columns[side] = f"CASE WHEN {self.value} IS NOT NULL THEN {bound} END"
        return columns


@dataclass(frozen=True, slots=True)
class Groups:
    """Turns of a `table` that meet a condition, in groups by the value of `key`; that by the name None has all of them.
    `counted` has a row for each group, with the number of its values under `n_NAME`."""

    counted: Mapping[str | None, Row]
    where: Condition
    key: str | None = None
    table: str = "turns"


def add_percentiles(
    connection: StoreConnection, groups: Groups, values: Sequence[Values], *, is_many: bool = False
) -> None:
    """Add to the row of each group the percentiles of values under `q_NAME`, of their bounds `q_lower_NAME` and
    `q_upper_NAME`. With `is_many` those of many values are estimates: `within_NAME` has their intervals, and in the
    place of those of the bounds are the ends between which the sample shows the quantiles to be."""
    counted = groups.counted
    asked = {quantity: [name for name, row in counted.items() if row[f"n_{quantity.name}"]] for quantity in values}
    if is_many:
        many = {
            quantity: [name for name in asked[quantity] if counted[name][f"n_{quantity.name}"] >= EXACT_VALUES]
            for quantity in asked
        }
        for of, group, held in _held(connection, groups, many, is_sample=True):
            if _add_estimates(counted[group], of.name, held):
                asked[of].remove(group)
    for of, group, held in _held(connection, groups, asked):
        for side, column in held.columns.items():
            column.sort()
            counted[group][f"q_{side}{of.name}"] = [quantile(column, fraction) for fraction in _FRACTIONS]


@dataclass(frozen=True, slots=True)
class _HeldValues:
    """A value and its bounds, of the turns of a group that have it, by the beginnings of their columns' names; the
    calls of sampled turns are numbers."""

    columns: Mapping[str, Floats]
    calls: Any


def _held(
    connection: StoreConnection,
    groups: Groups,
    asked: Mapping[Values, Sequence[str | None]],
    *,
    is_sample: bool = False,
) -> Iterator[tuple[Values, str | None, _HeldValues]]:
    """Yield each quantity for each of its groups, over all turns or those of the sampled calls."""
    values = [quantity for quantity in asked if asked[quantity]]
    most = max(
        (groups.counted[name][f"n_{quantity.name}"] for quantity in values for name in asked[quantity]), default=1
    )
    at_once = max(1, _VALUES_AT_ONCE * (ONE_IN if is_sample else 1) // most)
    for begin in range(0, len(values), at_once):
        some = {quantity: list(asked[quantity]) for quantity in values[begin : begin + at_once]}
        names, arrays = _read(connection, groups, some, is_sample=is_sample)
        for quantity, of_groups in some.items():
            columns = {side: arrays.pop(side + quantity.name) for side in quantity.columns}
            is_known = ~np.ma.getmaskarray(columns[""])
            for name in of_groups:
                mine = is_known if name is None else is_known & (arrays["of_group"] == names.index(name) + 1)
                # A copy for each group, unless all that was read belongs to the only one.
                some_of = slice(None) if len(of_groups) == 1 and mine.all() else mine
                held = {side: np.ma.getdata(column)[some_of] for side, column in columns.items()}
                yield quantity, name, _HeldValues(held, arrays["of_call"][mine] if is_sample else None)


def _read(
    connection: StoreConnection, groups: Groups, asked: Mapping[Values, Sequence[str | None]], *, is_sample: bool
) -> tuple[list[str | None], dict[str, Any]]:
    """Read quantities in one statement; return the names of the groups, and the columns, of which `of_group` has the
    index of a turn's group among these, from 1."""
    names = [*dict.fromkeys(chain.from_iterable(asked.values()))]
    where = groups.where & Condition(" OR ".join(f"{quantity.value} IS NOT NULL" for quantity in asked))
    columns = {side + quantity.name: sql for quantity in asked for side, sql in quantity.columns.items()}
    places: tuple[Any, ...] = ()
    if names != [None]:
        columns["of_group"], places = f"coalesce(list_position(?::VARCHAR[], {groups.key}), 0)", (names,)
        if None not in names:
            where &= Condition(f"list_contains(?::VARCHAR[], {groups.key})", places)
    if is_sample:
        columns["of_call"] = CALL
        where &= Condition(f"{CALL} % {ONE_IN} = 0")
    selected = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    cursor = connection.execute(f"SELECT {selected} FROM {groups.table} WHERE {where.sql}", [*places, *where.values])
    return names, cursor.fetchnumpy()


def _add_estimates(row: Row, name: str, held: _HeldValues) -> bool:
    """Add the estimates of some values to the row of a group, if they are from enough calls."""
    calls = np.unique(held.calls, return_inverse=True)[1].reshape(-1)
    for side, column in held.columns.items():
        estimated = estimate(column, calls, _FRACTIONS)
        if estimated is None:
            return False
        if side:
            row[f"q_{side}{name}"] = [interval[side == "upper_"] for interval in estimated.within]
        else:
            row[f"q_{name}"], row[f"within_{name}"] = list(estimated.quantiles), estimated.within
    return True


def stated(within: Sequence[tuple[float, float]] | None) -> dict[str, tuple[float, float]]:
    """The intervals of estimates by the names of the percentiles; empty if they are exact."""
    return {} if within is None else dict(zip(("p50", "p95", "p99"), within, strict=True))
