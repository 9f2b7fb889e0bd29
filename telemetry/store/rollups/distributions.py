"""The histograms of staged turns: of metrics, of gaps and evidence."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from telemetry.model.metrics import CONNECT, HEADLINE, ITL, METRICS, Metric
from telemetry.objectives.judgment import WAITED_FROM
from telemetry.store.rollups import statements
from telemetry.store.rollups.buckets import DURATIONS, RATIOS, scale_of
from telemetry.store.rollups.histogram import Histogram, counted_by_group
from telemetry.store.rollups.rollup import Key, RollupCell
from telemetry.store.rollups.rows import key_of
from telemetry.store.rollups.staged import Bools, Staged

# A timeline is made of ticks; their histograms are coarser than the others, as there are many of them.
SHORT_TICK_NS: Final = 5_000_000_000
LONG_TICK_NS: Final = 60_000_000_000
_TURNS_OF_SHORT_TICKS: Final = 200
TICK_SCALE: Final = RATIOS

Found = Iterator[tuple[Key, RollupCell]]


def histograms(staged: Staged) -> Found:
    """Cells of the parts `metric` (labels kind, metric, withheld), `waited`, `gap`, `bound`, `evidence` and
    `tick`."""
    for metric in METRICS.values():
        yield from _of_metric(staged, metric)
    for name, since in WAITED_FROM.items():
        yield from _of_cut(staged, METRICS[name], since)
    yield from _of_gaps(staged)
    spoken = staged.is_valid & staged.known("speech_end_perf_ns")
    for name, column in statements.BOUNDS.items():
        yield from _plain(staged, "bound", name, column, spoken)
    for name, column in statements.EVIDENCE_P99.items():
        yield from _plain(staged, "evidence", name, column, staged.is_client)
    yield from _of_ticks(staged)


def _of_metric(staged: Staged, metric: Metric) -> Found:
    rows = np.flatnonzero(staged.is_valid & staged.known(metric.column))
    if not rows.size:
        return
    withheld = staged.withheld(metric.name)[rows]
    group = (staged.group[rows] * len(staged.kinds) + staged.kind[rows]) * 2 + withheld
    for number, histogram in counted_by_group(group, staged.values(metric.column)[rows], scale_of(metric.unit)):
        grp, kind = divmod(number // 2, len(staged.kinds))
        yield _cell(
            staged, "metric", grp, (staged.kinds[kind], metric.name, "withheld" if number % 2 else ""), histogram
        )


def _of_cut(staged: Staged, metric: Metric, since: str) -> Found:
    """How long callers had waited for what the metric measures when the generator cut their turn."""
    begin = f"{since}_perf_ns"
    which = staged.is_client & staged.is_outcome("cut") & ~staged.known(metric.column)
    which &= ~staged.known("first_audio_perf_ns") & ~staged.withheld(metric.name)
    which &= staged.known("hangup_perf_ns") & staged.known(begin)
    if metric.name == CONNECT:
        which &= (staged.values("turn_index") == 0) & ~staged.known("speech_start_perf_ns")
    rows = np.flatnonzero(which)
    if not rows.size:
        return
    values = staged.values("hangup_perf_ns")[rows] - staged.values(begin)[rows]
    group = staged.group[rows] * len(staged.kinds) + staged.kind[rows]
    for number, histogram in counted_by_group(group, values, DURATIONS):
        grp, kind = divmod(number, len(staged.kinds))
        yield _cell(staged, "waited", grp, (staged.kinds[kind], metric.name), histogram)


def _of_gaps(staged: Staged) -> Found:
    gaps, parents = staged.gaps()
    which = staged.is_valid[parents]
    for grp, histogram in counted_by_group(staged.group[parents[which]], gaps[which], DURATIONS):
        yield _cell(staged, "gap", grp, (ITL,), histogram)


def _plain(staged: Staged, part: str, name: str, column: str, which: Bools) -> Found:
    rows = np.flatnonzero(which & staged.known(column))
    for grp, histogram in counted_by_group(staged.group[rows], staged.values(column)[rows], DURATIONS):
        yield _cell(staged, part, grp, (name,), histogram)


def _of_ticks(staged: Staged) -> Found:
    """The headline over time: labels the tick's number and its length in ns, short where turns are many."""
    column = METRICS[HEADLINE].column
    rows = np.flatnonzero(staged.is_valid & staged.known(column))
    if not rows.size:
        return
    started = staged.values("started_unix_ns")[rows]
    ticks = min(len(np.unique(started // SHORT_TICK_NS)), (started.max() - started.min()) / SHORT_TICK_NS)
    length_ns = SHORT_TICK_NS if rows.size >= _TURNS_OF_SHORT_TICKS * ticks else LONG_TICK_NS
    known, places = np.unique(started // length_ns, return_inverse=True)
    group = staged.group[rows] * len(known) + places.reshape(-1)
    for number, histogram in counted_by_group(group, staged.values(column)[rows], TICK_SCALE):
        grp, place = divmod(number, len(known))
        yield _cell(staged, "tick", grp, (str(known[place]), str(length_ns)), histogram)


def _cell(
    staged: Staged, part: str, grp: int, labels: tuple[str | None, ...], histogram: Histogram
) -> tuple[Key, RollupCell]:
    return key_of(part, staged.groups[grp], labels), RollupCell(n=histogram.n, histogram=histogram)
