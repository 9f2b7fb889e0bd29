"""The store's answers about one filter from roll-ups, in the shapes of telemetry.store.answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from telemetry.model.stats import enough
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter, StageStats, Summary, TimelinePoint
from telemetry.store.client_service_delta import ClientServiceDelta
from telemetry.store.connection import StoreConnection
from telemetry.store.joined import client_service_delta, join_services
from telemetry.store.processes import TurnsOfProcess
from telemetry.store.queries import DIMENSIONS, source_of
from telemetry.store.rollups import parts
from telemetry.store.rollups.distributions import SHORT_TICK_NS, TICK_SCALE
from telemetry.store.rollups.figures import FRACTIONS, RolledFigures
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.rollups.rollup import KEPT_SLOWEST, SLOWEST, Rollup, order_of_slowest
from telemetry.store.rollups.statements import LISTED
from telemetry.store.summaries import SummaryRows, assemble
from telemetry.store.timelines import bucket_width_ns, calls_in_flight


@dataclass(frozen=True, slots=True)
class HeadlineTotals:
    """How many turns there are, how many of the valid ones have a value of a metric, and when the first and the last
    valid one began (Unix ns; None without one)."""

    total: int
    with_value: int
    first_unix_ns: int | None
    last_unix_ns: int | None


@dataclass(frozen=True)
class RolledUp:
    """Turns of a filter, rolled up: `rollup` holds those of its stretch of time, `everything` all of the store. The
    pairs of both are closed."""

    filter: Filter
    rollup: Rollup
    everything: Rollup

    @cached_property
    def figures(self) -> RolledFigures:
        """The rows of the filter."""
        return RolledFigures(self.rollup, self.filter)

    def summary(self, connection: StoreConnection, now_unix_ns: int, skipped_segments: int) -> Summary:
        """As `summaries.summarize`."""
        figures = self.figures
        found = SummaryRows(
            totals=figures.totals(),
            gaps=figures.gaps(),
            names=figures.names(),
            invalid_reasons=figures.reasons("invalid"),
            cut_reasons=figures.reasons("cut"),
            withheld_reasons=figures.withheld(),
            phases=figures.phases(),
            phase_outcomes=figures.phase_outcomes(),
            client_service_delta=self._delta(connection),
            received=parts.received(self.everything, self.filter.run_id),
            evidence=parts.evidence(figures),
            wer_by_condition=parts.wer_by_condition(figures),
            behavior=parts.behavior(figures),
            beside=parts.beside(figures),
            speech_bounds=parts.speech_bounds(figures),
            failures=parts.failures(figures),
            remarks=parts.remarks(figures),
            retries=parts.retries(figures),
        )
        return assemble(connection, self.filter, now_unix_ns, skipped_segments, found)

    def turns_of_processes(self) -> list[TurnsOfProcess]:
        """How many client turns of the run each process emitted: whatever else a filter asks for, a process that was
        lost was lost to all of it."""
        found: dict[str, TurnsOfProcess] = {}
        for key, cell in self.everything.of("process"):
            name = key.labels[0] or ""
            if key.run_id != self.filter.run_id:
                continue
            before = found.get(name, TurnsOfProcess(name, 0, 0))
            found[name] = TurnsOfProcess(name, before.turns + cell.n, max(before.last_unix_ns, cell.last or 0))
        return list(found.values())

    def _delta(self, connection: StoreConnection) -> ClientServiceDelta:
        """Of a view by service and day its turns alone are rolled up: what callers heard of them is read."""
        if source_of(self.filter) == "service":
            join_services(connection, self.filter)
            return client_service_delta(connection, self.filter)
        return parts.client_service_delta(self.figures, self.everything, self.filter)

    def stage_budget(self) -> dict[str, StageStats]:
        """As `joined.stage_budget`."""
        return parts.stage_budget(self.figures)

    def dimension_values(self) -> dict[str, tuple[str, ...]]:
        """The values that occur among the client turns, for each dimension that a filter can ask for."""
        found: dict[str, set[str]] = {name: set() for name in DIMENSIONS}
        for key, _ in self.figures.of("turns"):
            for name in ("cohort", "target", "phase"):
                if (value := getattr(key, name)) is not None:
                    found[name].add(value)
        for name in LISTED:
            found[name] = {key.labels[0] or "" for key, _ in self.figures.of(f"value_{name}")}
        return {name: tuple(sorted(values)) for name, values in found.items()}

    def slowest(self, limit: int) -> list[Turn] | None:
        """The valid client turns that waited longest for the answer, none of a ramp; None where more are asked for than
        are kept."""
        if limit > KEPT_SLOWEST:
            return None
        cells = sorted(self.figures.judged(SLOWEST), key=order_of_slowest)[:limit]
        if any(cell.text is None for _, cell in cells):
            return None
        return [msgspec.json.decode(cell.text or "", type=Turn) for _, cell in cells]

    def timeline(self, connection: StoreConnection, buckets: int) -> list[TimelinePoint] | None:
        """As `timelines.timeline` of the headline; None where its buckets are no whole ticks."""
        if self._span is None:
            return []
        first, last = self._span
        width_ns = bucket_width_ns(last - first, buckets)
        found: dict[int, list[Histogram]] = {}
        for key, cell in self.figures.of("tick"):
            tick, length_ns = (int(label or 0) for label in key.labels)
            if width_ns % length_ns:
                return None
            if cell.histogram is not None:
                found.setdefault(tick * length_ns // width_ns, []).append(cell.histogram)
        in_flight = calls_in_flight(connection, self.filter, width_ns)
        return [
            _point(bucket * width_ns, Histogram.added(found.get(bucket, ())), in_flight.get(bucket))
            for bucket in range(first // width_ns, last // width_ns + 1)
        ]

    def ticks(self) -> list[tuple[int, int, Histogram]]:
        """The headline over time, ramps left out: of each tick its beginning (Unix ns), its length in ns, and its
        values."""
        found: list[tuple[int, int, Histogram]] = []
        for key, cell in self.figures.judged("tick"):
            tick, length_ns = (int(label or 0) for label in key.labels)
            if cell.histogram is not None:
                found.append((tick * length_ns, length_ns, cell.histogram))
        return found

    def headline_totals(self) -> HeadlineTotals:
        """The turns of the filter that the summary counts: none of a ramp, no silent ones."""
        total = sum(row["n"] for row in self.figures.names())
        with_value = sum(cell.n for _, cell in self.figures.judged("tick"))
        return HeadlineTotals(total, with_value, *(self._span or (None, None)))

    def cohort_sizes(self) -> dict[str | None, int]:
        """How many valid turns have the headline metric, by cohort."""
        found: dict[str | None, int] = {}
        for key, cell in self.figures.judged("tick"):
            found[key.cohort] = found.get(key.cohort, 0) + cell.n
        return found

    @property
    def span(self) -> tuple[int, int] | None:
        """When the first and the last valid turn began, Unix ns; None without one."""
        return self._span

    def windows(
        self, step_ns: int, steps: int, cohorts: Sequence[str | None]
    ) -> dict[str | None, dict[int, tuple[int, float | None]]] | None:
        """Count and p95 of the headline over windows of so many steps, by cohort and the step that they end with; None
        where a step is no whole number of ticks."""
        of_steps: dict[str | None, dict[int, list[Histogram]]] = {cohort: {} for cohort in cohorts}
        for key, cell in self.figures.judged("tick"):
            tick, length_ns = (int(label or 0) for label in key.labels)
            if step_ns % length_ns:
                return None
            if cell.histogram is not None and key.cohort in of_steps:
                of_steps[key.cohort].setdefault(tick * length_ns // step_ns, []).append(cell.histogram)
        return {cohort: _windows(found, steps) for cohort, found in of_steps.items()}

    @property
    def buckets_max(self) -> int:
        """The most buckets of a timeline that are whole ticks."""
        if self._span is None:
            return 1
        lengths = [int(key.labels[1] or 0) for key, _ in self.figures.of("tick")]
        return (self._span[1] - self._span[0]) // max(lengths, default=SHORT_TICK_NS) + 2

    @cached_property
    def _span(self) -> tuple[int, int] | None:
        """When the first and the last valid turn began, Unix ns; None without one."""
        moments = [cell for _, cell in self.figures.of("span") if cell.first is not None and cell.last is not None]
        if not moments:
            return None
        return min(cell.first or 0 for cell in moments), max(cell.last or 0 for cell in moments)


def _windows(of_steps: dict[int, list[Histogram]], steps: int) -> dict[int, tuple[int, float | None]]:
    sums = {step: Histogram.added(some) for step, some in of_steps.items()}
    by_window: dict[int, list[Histogram]] = {}
    for step, histogram in sums.items():
        for place in range(steps):
            by_window.setdefault(step + place, []).append(histogram)
    return {step: _count_and_p95(Histogram.added(some)) for step, some in by_window.items()}


def _count_and_p95(histogram: Histogram) -> tuple[int, float | None]:
    values = histogram.quantiles(TICK_SCALE, (0.95,))
    return histogram.n, None if values is None else values[0]


def _point(start_unix_ns: int, histogram: Histogram, calls: int | None) -> TimelinePoint:
    n = histogram.n
    p50, p95, p99 = histogram.quantiles(TICK_SCALE, FRACTIONS) or (None, None, None)
    return TimelinePoint(
        start_unix_ns=start_unix_ns,
        n=n,
        p50=p50,
        p95=enough("p95", n, p95),
        p99=enough("p99", n, p99),
        calls_in_flight=calls,
        approximate=True,
    )
