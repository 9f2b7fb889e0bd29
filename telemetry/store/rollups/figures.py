"""Rows of the same shape as those of the summary's statements (telemetry.store.queries), from a roll-up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from telemetry.model.metrics import CONNECT, METRICS, NOT_OF_AN_ANSWER, Metric
from telemetry.model.semconv import RAMP
from telemetry.store.answers import Filter
from telemetry.store.queries import PHASE_METRICS
from telemetry.store.rollups.buckets import DURATIONS, scale_of
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.rollups.rollup import Key, Rollup, RollupCell, matches
from telemetry.store.rollups.statements import SILENT

Row = dict[str, Any]
FRACTIONS: Final = (0.5, 0.95, 0.99)
_WITHOUT_ANSWER: Final = ("unanswered", "first")


@dataclass(frozen=True, slots=True)
class Scope:
    """Over which turns a row is: all, those of a cohort, or those of a phase."""

    what: str
    name: str | None = None


WHOLE: Final = Scope("whole")


@dataclass(slots=True)
class _Counted:
    """What the rows of one scope are made of."""

    turns: Counter[tuple[str | None, ...]] = field(default_factory=Counter[tuple[str | None, ...]])
    first: int | None = None
    last: int | None = None
    histograms: defaultdict[str, list[Histogram]] = field(
        default_factory=lambda: defaultdict[str, list[Histogram]](list)
    )
    values: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])  # by metric and kind
    gaps: list[Histogram] = field(default_factory=list[Histogram])


class RolledFigures:
    """The rows about one filter, from a roll-up whose pairs are closed.

    `judged` are the cells over which figures are taken: none of a ramp, unless the filter asks for it by its name.
    """

    def __init__(self, rollup: Rollup, f: Filter) -> None:
        self._by_part: defaultdict[str, list[tuple[Key, RollupCell]]] = defaultdict(list)
        self._is_of_a_phase = f.phase is not None
        for key, cell in rollup.cells.items():
            if matches(key, f):
                self._by_part[key.part].append((key, cell))

    def of(self, part: str) -> list[tuple[Key, RollupCell]]:
        """The filter's cells of a part, those of ramps too."""
        return self._by_part[part]

    def judged(self, part: str) -> Iterator[tuple[Key, RollupCell]]:
        """The filter's cells of a part over which figures are taken."""
        return ((key, cell) for key, cell in self.of(part) if self._is_judged(key))

    def counts(self, *, judged: bool) -> Counter[str]:
        """What is counted by its name."""
        found = Counter[str]()
        for key, cell in self.judged("count") if judged else self.of("count"):
            found[key.labels[0] or ""] += cell.n
        return found

    def histogram(self, part: str, name: str) -> Histogram:
        """The histogram of a part's cells with this label, over the judged turns for all that is a figure of the
        service or of its clips."""
        cells = self.judged(part) if part in ("bound", "stage", "difference") else self.of(part)
        return Histogram.added(
            cell.histogram for key, cell in cells if cell.histogram is not None and key.labels[0] == name
        )

    def totals(self) -> list[Row]:
        """As the statements of totals, metrics and lacking values, joined: one row of all turns, one per cohort."""
        return [
            {"is_total": scope == WHOLE, "cohort": scope.name, "is_approximate": True}
            | self._totals(scope)
            | self._metrics(scope, METRICS.values())
            for scope in self._scopes()
        ]

    def gaps(self) -> list[Row]:
        """As `queries.gap_totals`."""
        found: list[Row] = []
        for scope in self._scopes():
            gaps = Histogram.added(self._counted[scope].gaps)
            quantiles = gaps.quantiles(DURATIONS, FRACTIONS)
            row = {"is_total": scope == WHOLE, "cohort": scope.name, "is_approximate": True}
            found.append(row | {"n": gaps.n, "max": gaps.high, "q": quantiles})
        return found

    def names(self) -> list[Row]:
        """As `queries.names`."""
        columns = ("outcome", "fallback", "route", "cache_tier")
        return [
            {"cohort": key.cohort, **dict(zip(columns, key.labels[1:5], strict=True)),
             "cache_hit": _flag(key.labels[5]), "n": cell.n}
            for key, cell in self.judged("turns")
            if _is_asked(key)
        ]  # fmt: skip

    def reasons(self, part: str) -> list[Row]:
        """As `queries.invalid_reasons` and `queries.cut_reasons`: per cohort, the commonest first."""
        found = Counter[tuple[str | None, str | None]]()
        for key, cell in self.judged(part):
            found[key.cohort, key.labels[0]] += cell.n
        ordered = sorted(found.items(), key=lambda item: (-item[1], item[0][1] or ""))
        return [{"cohort": cohort, "reason": reason, "n": n} for (cohort, reason), n in ordered]

    def withheld(self) -> list[Row]:
        """As `queries.withheld_reasons`."""
        found = Counter[tuple[str | None, str | None, str | None]]()
        for key, cell in self.judged("withheld"):
            found[key.cohort, key.labels[0], key.labels[1]] += cell.n
        ordered = sorted(found.items(), key=lambda item: (-item[1], item[0][1] or "", item[0][2] is None, item[0][2]))
        return [
            {"cohort": cohort, "metric": metric, "reason": reason, "n": n} for (cohort, metric, reason), n in ordered
        ]

    def phases(self) -> list[Row]:
        """As the statements of phases, their metrics and lacking values, joined."""
        kinds = {key.phase: key.phase_kind for key, _ in self.of("turns") if key.phase_kind is not None}
        metrics = [METRICS[name] for name in PHASE_METRICS]
        found: list[Row] = []
        for scope in [each for each in self._counted if each.what == "phase"]:
            first = {"phase": scope.name, "kind": kinds.get(scope.name), "first_unix_ns": self._counted[scope].first}
            first["is_approximate"] = True
            found.append(first | self._totals(scope) | self._metrics(scope, metrics))
        return sorted(found, key=lambda row: (row["first_unix_ns"], row["phase"]))

    def phase_outcomes(self) -> list[Row]:
        """As `queries.phase_outcomes`."""
        found = Counter[tuple[str, str | None, str | None]]()
        for key, cell in self.of("turns"):
            if key.phase is not None and _is_asked(key):
                found[key.phase, key.labels[1], None] += cell.n
        for key, cell in self.of("invalid"):
            if key.phase is not None:
                found[key.phase, "invalid", key.labels[0]] += cell.n
        return [
            {"phase": phase, "outcome": outcome, "reason": reason, "n": n}
            for (phase, outcome, reason), n in found.items()
        ]

    def _is_judged(self, key: Key) -> bool:
        return self._is_of_a_phase or key.phase_kind != RAMP

    def _scopes_of(self, key: Key) -> Iterator[Scope]:
        if self._is_judged(key):
            yield WHOLE
            yield Scope("cohort", key.cohort)
        if key.phase is not None:
            yield Scope("phase", key.phase)

    def _scopes(self) -> list[Scope]:
        cohorts = [each for each in self._counted if each.what == "cohort"]
        return [*sorted(cohorts, key=lambda each: (each.name is None, each.name)), WHOLE]

    @cached_property
    def _counted(self) -> defaultdict[Scope, _Counted]:
        found: defaultdict[Scope, _Counted] = defaultdict(_Counted)
        for key, cell in self.of("turns"):
            if not _is_asked(key):
                continue
            for scope in self._scopes_of(key):
                counted = found[scope]
                counted.turns[key.labels] += cell.n
                counted.first = min(each for each in (counted.first, cell.first) if each is not None)
                counted.last = max(each for each in (counted.last, cell.last) if each is not None)
        for key, cell in self.of("metric"):
            if _is_asked(key) and key.labels[1] != CONNECT:
                self._take_values(found, key, cell)
        for key, cell in self.judged("gap"):
            if cell.histogram is not None:
                found[WHOLE].gaps.append(cell.histogram)
                found[Scope("cohort", key.cohort)].gaps.append(cell.histogram)
        return found

    @cached_property
    def _connects(self) -> defaultdict[Scope, _Counted]:
        """The turns and values of connecting: a call connects, whatever its first turn asks."""
        found: defaultdict[Scope, _Counted] = defaultdict(_Counted)
        for key, cell in self.of("turns"):
            for scope in self._scopes_of(key):
                found[scope].turns[key.labels] += cell.n
        for key, cell in self.of("metric"):
            if key.labels[1] == CONNECT:
                self._take_values(found, key, cell)
        return found

    def _take_values(self, found: defaultdict[Scope, _Counted], key: Key, cell: RollupCell) -> None:
        kind, name, _ = (label or "" for label in key.labels)
        if cell.histogram is None:
            return
        for scope in self._scopes_of(key):
            found[scope].histograms[name].append(cell.histogram)
            found[scope].values[name, kind] += cell.n

    def _totals(self, scope: Scope) -> Row:
        counted = self._counted[scope]

        def of(**wanted: str) -> int:
            places = {"kind": 0, "outcome": 1, "cache_hit": 5, "unread": 6}
            return sum(
                n
                for labels, n in counted.turns.items()
                if all(labels[places[what]] == value for what, value in wanted.items())
            )

        invalid = of(outcome="invalid")
        return {
            "total": counted.turns.total(),
            "ok": of(outcome="ok"),
            "valid": counted.turns.total() - invalid,
            "unread": of(unread="true") - of(unread="true", outcome="invalid"),
            "cache_reported": sum(
                of(cache_hit=hit) - of(cache_hit=hit, outcome="invalid") for hit in ("true", "false")
            ),
            "cache_hits": of(cache_hit="true") - of(cache_hit="true", outcome="invalid"),
            "newest_unix_ns": counted.last,
        }

    def _metrics(self, scope: Scope, metrics: Iterable[Metric]) -> Row:
        row: Row = {}
        for metric in metrics:
            name = metric.name
            counted = (self._connects if name == CONNECT else self._counted)[scope]
            values = Histogram.added(counted.histograms[name])
            row[f"n_{name}"], row[f"max_{name}"] = values.n, values.high
            row[f"q_{name}"] = values.quantiles(scale_of(metric.unit), FRACTIONS)
            row[f"u_{name}"] = self._lacking(counted, name)
        return row

    def _lacking(self, counted: _Counted, name: str) -> int:
        kinds = ("first", f"{SILENT}first") if name == CONNECT else () if name in NOT_OF_AN_ANSWER else _WITHOUT_ANSWER
        turns = sum(n for labels, n in counted.turns.items() if labels[0] in kinds)
        return turns - sum(counted.values[name, kind] for kind in kinds)


def _is_asked(key: Key) -> bool:
    return not (key.labels[0] or "").startswith(SILENT)


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "true"
