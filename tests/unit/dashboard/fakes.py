"""A reader in memory, for pages and caching: real shapes, chosen values."""

from collections.abc import Sequence
from dataclasses import replace

from telemetry.model.metrics import METRIC_NAMES, METRICS
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.store.answers import (
    CacheStats,
    ClientServiceDelta,
    CohortSummary,
    Filter,
    Generator,
    MetricStats,
    RunRecord,
    ShareByName,
    Summary,
    TelemetryLoss,
    TurnCounts,
)
from telemetry.store.questions.objectives import ObjectiveCount, ObjectiveCounts
from telemetry.store.questions.pages import CachePage, InstrumentPage, PageAnswer, PageQuestion, ViewHead, ViewQuestion
from telemetry.store.questions.turns import TurnsAnswer, TurnsQuestion, TurnView

MS = 1_000_000


def stats(name: str = "voice_to_voice", n: int = 200, p95_ms: float = 700, withheld: str | None = None) -> MetricStats:
    """Statistics of n turns, with the percentiles that n allows."""
    unit = METRICS[name].unit if name in METRICS else "ns"
    return MetricStats(
        name=name,
        unit=unit,
        n=n,
        p50=p95_ms * 0.7 * MS if n else None,
        p95=p95_ms * MS if n >= 20 else None,
        p99=p95_ms * 1.2 * MS if n >= 100 else None,
        max=p95_ms * 2 * MS if n else None,
        withheld=withheld,
    )


def summary(n: int = 200, f: Filter | None = None, cohorts: Sequence[str] = ()) -> Summary:
    """A summary of n answered turns, every metric measured on each."""
    counts = TurnCounts(n, n, 0, {"ok": n} if n else {})
    metrics = {name: stats(name, n) for name in METRIC_NAMES}
    cache = CacheStats(n, n // 4, {"edge": n // 4} if n >= 4 else {})
    fallback = ShareByName(n, n, {})
    return Summary(
        filter=f or Filter(),
        turns=counts,
        metrics=metrics,
        cache=cache,
        fallback=fallback,
        routes=ShareByName(n, 0, {}),
        cohorts=tuple(CohortSummary(name, counts, metrics, cache, fallback) for name in cohorts),
        client_service_delta=ClientServiceDelta(0, n, 0, None, None, None),
        loss=TelemetryLoss(1, n, n, 0),
        generator=Generator(0),
        newest_unix_ns=None,
    )


class FakeReader:
    """Answers from attributes, and counts what it was asked."""

    def __init__(self, runs: Sequence[RunRecord], answer: Summary) -> None:
        self.known = list(runs)
        self.answer = answer
        self.asked: list[str] = []
        self.good = (190, 200)
        self.good_of: dict[str, tuple[int, int]] = {}
        self.many: Sequence[Turn] = ()

    def runs(self) -> Sequence[RunRecord]:
        return self.known

    def cache_page(self, asked: ViewQuestion) -> CachePage:
        self.asked.append("cache_page")
        return CachePage(ViewHead(self.known, self.known[0], asked.filter, self.answer))

    def instrument_page(self, asked: ViewQuestion) -> InstrumentPage:
        self.asked.append("instrument_page")
        return InstrumentPage(ViewHead(self.known, self.known[0], asked.filter, self.answer))

    def page(self, asked: PageQuestion) -> PageAnswer:
        self.asked.append("page")
        wanted = asked.filter.run_id
        found = [run for run in self.known if wanted in (None, run.run_id)]
        run = max(found, key=lambda each: each.first_unix_ns, default=None)
        if run is None:
            return PageAnswer(self.known)

        def counted(name: str) -> dict[str, ObjectiveCount]:
            return {
                each.name: ObjectiveCount(EligibleTurns(*self.good_of.get(name, self.good)))
                for each in asked.objectives
            }

        f = replace(asked.filter, run_id=run.run_id)
        return PageAnswer(
            runs=self.known,
            run=run,
            filter=f,
            summary=replace(self.answer, filter=f),
            dots=self.many[: asked.dots],
            slowest=self.many[: asked.slowest],
            counts=ObjectiveCounts(counted(""), {each.cohort: counted(each.cohort) for each in self.answer.cohorts}),
        )

    def turn_view(self, trace_id: str, turn_index: int, *, whole_call: bool = False) -> TurnView:
        self.asked.append("turn")
        return TurnView()

    def turns_page(self, asked: TurnsQuestion) -> TurnsAnswer:
        self.asked.append("turns")
        return TurnsAnswer(ViewHead(self.known))
