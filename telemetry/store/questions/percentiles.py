"""Percentiles of the values of turns, sorted in memory: of all values, or of very many from one in ONE_IN, each with an
interval.

The values are sampled by a hash of the identity of their turn, one by one and not by call: a few calls with many turns
would be in the sample with all of these or with none, and its percentiles would be far from the exact ones. Nothing is
stored for it: sampling takes no longer than reading a separate table (measured at a million turns).
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
# Of fewer sampled values the interval, which takes their shares for normal, would not hold what it says.
FEWEST_SAMPLED: Final = 1_000
_FRACTIONS: Final = (0.5, 0.95, 0.99)
# Only so many values and bounds are read at once, whatever the number of metrics: a statement takes longer to find the
# turns than to read one more of their columns, and memory is limited.
_NUMBERS_AT_ONCE: Final = 4_000_000
_DEVIATIONS: Final = 1.959964  # of a normal distribution, on both sides of 95 %

# The identity of a turn, by which it is sampled: its ids, or its position in the call where it has none.
TURN: Final = ("trace_id", "span_id", "call_id", "turn_index")

# In the place of a bound that is not known.
_BEYOND: Final = {"lower_": "'-Infinity'::DOUBLE", "upper_": "'Infinity'::DOUBLE"}
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Quantiles, and for each the interval that holds the exact one with 95 % confidence."""

    quantiles: tuple[float, ...]
    within: tuple[tuple[float, float], ...]


def estimate(values: Floats, fractions: Sequence[float]) -> Estimate | None:
    """The quantiles of all values from those of the sampled ones; None for too few of these.

    The interval is W. Woodruff's ("Confidence intervals for medians and other position measures", 1952): that of the
    share of values up to the quantile, as places among the values. Its variance is that of a share of values drawn
    independently of each other, without putting them back. Turns of a call may be alike: the draws are not.
    """
    n = values.size
    if n < FEWEST_SAMPLED:
        return None
    ordered = np.sort(values)
    halves = (
        _DEVIATIONS * math.sqrt((1 - 1 / ONE_IN) * fraction * (1 - fraction) / n) + 1 / n for fraction in fractions
    )
    return Estimate(
        quantiles=tuple(quantile(ordered, fraction) for fraction in fractions),
        within=tuple(
            (quantile(ordered, max(0.0, fraction - half)), quantile(ordered, min(1.0, fraction + half)))
            for fraction, half in zip(fractions, halves, strict=True)
        ),
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
    `counted` has a row for each group, with the number of its values under `n_NAME`. The columns `identity` identify a
    row of the table."""

    counted: Mapping[str | None, Row]
    where: Condition
    key: str | None = None
    table: str = "turns"
    identity: Sequence[str] = TURN


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
        for held in _held(connection, groups, many, is_sample=True):
            if _add_estimate(counted[held.group], held) and not held.side:
                asked[held.of].remove(held.group)
    for held in _held(connection, groups, asked):
        held.numbers.sort()
        counted[held.group][f"q_{held.name}"] = [quantile(held.numbers, fraction) for fraction in _FRACTIONS]


@dataclass(frozen=True, slots=True)
class _Held:
    """The values of a quantity, or one of their bounds by the beginning of its column's name, of the turns of a group
    that have it."""

    of: Values
    side: str
    group: str | None
    numbers: Floats

    @property
    def name(self) -> str:
        """The name of their column."""
        return self.side + self.of.name


def _held(
    connection: StoreConnection,
    groups: Groups,
    asked: Mapping[Values, Sequence[str | None]],
    *,
    is_sample: bool = False,
) -> Iterator[_Held]:
    """Yield the values and the bounds of each quantity for each of its groups, over all turns or the sampled ones."""
    of_groups = {quantity: list(names) for quantity, names in asked.items() if names}
    most = max((groups.counted[name][f"n_{of.name}"] for of, names in of_groups.items() for name in names), default=1)
    at_once = max(1, _NUMBERS_AT_ONCE * (ONE_IN if is_sample else 1) // most)
    columns = [(quantity, side) for quantity in of_groups for side in quantity.columns]
    for begin in range(0, len(columns), at_once):
        some = columns[begin : begin + at_once]
        names = [*dict.fromkeys(chain.from_iterable(of_groups[quantity] for quantity, _ in some))]
        arrays = _read(connection, groups, some, names, is_sample=is_sample)
        for quantity, side in some:
            column = arrays.pop(side + quantity.name)
            is_known = ~np.ma.getmaskarray(column)
            for name in of_groups[quantity]:
                mine = is_known if name is None else is_known & (arrays["of_group"] == names.index(name) + 1)
                # A copy for each group, unless all that was read belongs to the only one.
                some_of = slice(None) if len(of_groups[quantity]) == 1 and mine.all() else mine
                yield _Held(quantity, side, name, np.ma.getdata(column)[some_of])


def _read(
    connection: StoreConnection,
    groups: Groups,
    some: Sequence[tuple[Values, str]],
    names: Sequence[str | None],
    *,
    is_sample: bool,
) -> dict[str, Any]:
    """Read columns of quantities in one statement; `of_group` has the index of a turn's group among the names, from
    1."""
    any_value = dict.fromkeys(f"{quantity.value} IS NOT NULL" for quantity, _ in some)
    where = groups.where & Condition(" OR ".join(any_value))
    columns = {side + quantity.name: quantity.columns[side] for quantity, side in some}
    places: tuple[Any, ...] = ()
    if any(name is not None for name in names):
        columns["of_group"], places = f"coalesce(list_position(?::VARCHAR[], {groups.key}), 0)", (names,)
        if None not in names:
            where &= Condition(f"list_contains(?::VARCHAR[], {groups.key})", places)
    if is_sample:
        where &= Condition(is_sampled(groups.identity))
    selected = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    cursor = connection.execute(f"SELECT {selected} FROM {groups.table} WHERE {where.sql}", [*places, *where.values])
    return cursor.fetchnumpy()


def is_sampled(identity: Sequence[str]) -> str:
    """Return the condition that selects one row in ONE_IN by the columns that identify it.

    DuckDB combines the hashes of several columns bit by bit, so that calls would have the same turns in the sample: the
    outer hash mixes the bits.
    """
    return f"hash(hash({', '.join(identity)})) % {ONE_IN} = 0"


def _add_estimate(row: Row, held: _Held) -> bool:
    """Add the estimates of some values, or of a bound of them, to the row of their group, if enough were sampled."""
    estimated = estimate(held.numbers, _FRACTIONS)
    if estimated is None:
        return False
    if held.side:
        row[f"q_{held.name}"] = [interval[held.side == "upper_"] for interval in estimated.within]
    else:
        row[f"q_{held.name}"], row[f"within_{held.name}"] = list(estimated.quantiles), estimated.within
    return True


def stated(within: Sequence[tuple[float, float]] | None) -> dict[str, tuple[float, float]]:
    """The intervals of estimates by the names of the percentiles; empty if they are exact."""
    return {} if within is None else dict(zip(("p50", "p95", "p99"), within, strict=True))
