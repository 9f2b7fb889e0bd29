"""Timestamps of a turn from the latencies that a framework states and the moments at which its spans begin and end.

A stated latency is the distance between two points and is kept to the nanosecond: points that are connected by
latencies are placed together, by the first of them whose moment is known.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Latency(NamedTuple):
    """`later` is so many ns after `earlier`, as the framework states it."""

    earlier: str
    later: str
    ns: int


def place(latencies: Iterable[Latency], moments: Mapping[str, int], otherwise_unix_ns: int) -> dict[str, int]:
    """The points on the wall clock, in ns. Of two latencies that contradict each other the first counts.

    `moments` are points on the wall clock, those first that are believed first. Where no point of a connected group has
    a moment, how far it is from the rest is not known: such a group stands alone, begins at `otherwise_unix_ns`, and
    all other points are left out.
    """
    groups: list[dict[str, int]] = []
    for latency in latencies:
        _connect(groups, latency)
    placed: dict[str, int] = {}
    for group in groups:
        anchor = next((name for name in moments if name in group), None)
        if anchor is None:
            shift_ns = otherwise_unix_ns - min(group.values())
            return {name: at_ns + shift_ns for name, at_ns in group.items()}
        placed |= {name: at_ns + moments[anchor] - group[anchor] for name, at_ns in group.items()}
    return {**moments, **placed}


def _connect(groups: list[dict[str, int]], latency: Latency) -> None:
    """Connect two points; each group holds the distances of its points from an origin of its own."""
    with_earlier, with_later = _group_of(groups, latency.earlier), _group_of(groups, latency.later)
    if with_earlier is with_later:
        return
    shift_ns = with_earlier[latency.earlier] + latency.ns - with_later[latency.later]
    with_earlier |= {name: at_ns + shift_ns for name, at_ns in with_later.items()}
    groups[:] = [group for group in groups if group is not with_later]


def _group_of(groups: list[dict[str, int]], point: str) -> dict[str, int]:
    for group in groups:
        if point in group:
            return group
    groups.append({point: 0})
    return groups[-1]
