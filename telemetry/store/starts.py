"""How the calls of open arrivals began, phase by phase, from what the generator's processes counted."""

# ruff: noqa: S608 - the identifiers in this statement come from our own tables, every value is bound

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson

from telemetry.model import semconv
from telemetry.store import queries
from telemetry.store.answers import Filter, StartCounts
from telemetry.store.connection import StoreConnection, rows


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
    """By the name of the phase, in the order of time; empty without open arrivals, and for a filter that asks for what
    a start does not know (a cohort, a stretch of time)."""
    if f.since_unix_ns is not None or f.until_unix_ns is not None or queries.asks_beyond_phases(f):
        return {}
    where = queries.points_of(f)
    # The counts are cumulative: the largest that a process reported is its last.
    statement = f"""
        SELECT process_id, attributes, max(value)::BIGINT AS n, min(unix_ns) AS first FROM points
        WHERE name = ? AND {where.sql} GROUP BY run_id, process_id, attributes
        """
    found: dict[str, StartsOfPhase] = {}
    for row in rows(connection, statement, [semconv.METRIC_GENERATOR_STARTS, *where.values]):
        attributes: defaultdict[str, Any] = defaultdict(lambda: None, orjson.loads(row["attributes"]))
        name, which, begin_s = attributes["phase"], attributes["which"], attributes["phase_begin_s"]
        if not isinstance(name, str) or which not in semconv.START_COUNTS or not isinstance(begin_s, int | float):
            continue
        if f.phase is not None and name != f.phase:
            continue
        phase = found.setdefault(name, StartsOfPhase(attributes["phase_kind"], float(begin_s), row["first"]))
        phase.first_unix_ns = min(phase.first_unix_ns, row["first"])
        phase.counts[which] += row["n"]
    return dict(sorted(found.items(), key=lambda item: (item[1].begin_s, item[0])))


def total(phases: dict[str, StartsOfPhase]) -> StartCounts | None:
    """Over all phases; None without open arrivals."""
    if not phases:
        return None
    return StartCounts(*(sum(phase.counts[which] for phase in phases.values()) for which in semconv.START_COUNTS))
