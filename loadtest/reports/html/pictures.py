"""The pictures of a run's report: latency over time, the stages of a turn, and how latency is spread. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadtest.reports import tables
from telemetry.charts import run as charts
from telemetry.charts.drawing import Picture, Row, elapsed_axis
from telemetry.charts.over_time import latency_lines, load_strip
from telemetry.charts.static import PAGE, both_sizes
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_MS, NS_PER_S, in_milliseconds
from telemetry.model.metrics import DEFINITIONS, shown_in
from telemetry.model.stats import shown_percentile
from telemetry.objectives.objective import Objective
from telemetry.store.answers import MetricStats, StageStats, Summary
from telemetry.store.questions.timelines import TimelinePoint

STATISTICS: Final = ("p50", "p95", "p99")
# A window has at least so many turns as its percentile needs; of more turns it has a part of them.
_FEWEST: Final = {"p50": 20, "p95": 20, "p99": 100}
_PARTS: Final = 12
_MOST_BINS: Final = 48
_FEWEST_BINS: Final = 8
# Widths that people can read off an axis, in ms.
_WIDTHS_MS: Final = tuple(base * 10**power for power in range(7) for base in (1, 2, 5))

Curve = Sequence[Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class OverTime:
    """Voice-to-voice over the time of a run, in s since its begin. `curves` are points of each percentile (ns), in runs
    without a gap; `dots` are single turns, None where a turn went unanswered."""

    curves: Mapping[str, Curve]
    dots: Sequence[tuple[float, float | None]]
    in_flight: Sequence[tuple[float, int]]
    window: str


def over_time(timeline: Sequence[TimelinePoint], dots: Sequence[tuple[int, float | None]]) -> OverTime:
    """Lay a run out: by windows that move over its turns while they are few, else by the store's slots of time."""
    zero = min([*(at for at, _ in dots), *(point.start_unix_ns for point in timeline)], default=0)
    in_flight = [
        ((point.start_unix_ns - zero) / NS_PER_S, point.calls_in_flight)
        for point in timeline
        if point.calls_in_flight is not None
    ]
    placed = [((at - zero) / NS_PER_S, value) for at, value in sorted(dots, key=lambda dot: dot[0])]
    curves: dict[str, Curve]
    if dots:
        answered = [(at, value) for at, value in placed if value is not None]
        size = max(_FEWEST["p50"], len(answered) // _PARTS)
        window = f"percentiles over windows of {formatting.turns(size)} that were answered"
        curves = {name: _rolling(answered, name, max(size, _FEWEST[name])) for name in STATISTICS}
    else:
        window = "percentiles by slots of time, of the turns that were answered"
        curves = {name: _by_slots(timeline, name, zero) for name in STATISTICS}
    return OverTime({name: runs for name, runs in curves.items() if runs}, placed, in_flight, window)


def _rolling(answered: Sequence[tuple[float, float]], name: str, size: int) -> Curve:
    points: list[tuple[float, float]] = []
    last = len(answered) - size
    for begin in sorted({*range(0, last + 1, max(1, size // 4)), last} if last >= 0 else ()):
        window = answered[begin : begin + size]
        value = shown_percentile((latency for _, latency in window), name)
        if value is not None:
            points.append(((window[0][0] + window[-1][0]) / 2, value))
    return [points] if points else []


def _by_slots(timeline: Sequence[TimelinePoint], name: str, zero: int) -> Curve:
    runs: list[list[tuple[float, float]]] = [[]]
    for point in timeline:
        value: float | None = getattr(point, name)
        if value is None:
            runs.append([])
        else:
            runs[-1].append(((point.start_unix_ns - zero) / NS_PER_S, value))
    return [run for run in runs if run]


def draw_over_time(shown: OverTime, threshold_ns: float | None) -> str:
    """Curves of percentiles over single turns, the objective across; the calls in flight below."""
    rows: list[Row] = []
    for name, runs in shown.curves.items():
        for run in runs:
            rows += [{"time": at * 1e3, "cohort": name, "value": in_milliseconds(value)} for at, value in run]
            rows.append({"time": run[-1][0] * 1e3, "cohort": name, "value": None})  # a gap before the next run
    rows += [{"time": at * 1e3, "dot": in_milliseconds(value)} for at, value in shown.dots if value is not None]
    rows += [{"time": at * 1e3, "unanswered": "unanswered"} for at, value in shown.dots if value is None]
    rows += [{"time": at * 1e3} for at, _ in shown.in_flight]
    objective_ms = None if threshold_ns is None else in_milliseconds(threshold_ns)
    painted = [getattr(PAGE, name) for name in shown.curves]
    spec = latency_lines(PAGE, list(shown.curves), objective_ms, painted=painted, axis=elapsed_axis())
    drawn = both_sizes(Picture(rows, spec, "Voice to voice over time; the table below has its figures"))
    if not shown.in_flight:
        return drawn
    calls = [{"time": at * 1e3, "calls": calls} for at, calls in shown.in_flight]
    last = max(row["time"] for row in rows)
    strip = Picture([*calls, {**calls[-1], "time": last}], load_strip(PAGE), "Calls in flight over the same time")
    return drawn + both_sizes(strip)


def draw_stages(summary: Summary, objectives: Sequence[Objective]) -> str:
    """A bar for each duration of a turn that was measured, and each that an objective is on; empty without one."""
    names = [*shown_in("page"), *(objective.metric for objective in objectives if objective.metric)]
    rows: list[Row] = []
    for name in dict.fromkeys(names):
        stats = summary.metrics.get(name)
        if stats is None or not stats.n or DEFINITIONS[name].unit != "ns":
            continue
        whole = [objective for objective in objectives if objective.metric == name and not objective.is_of_a_part]
        thresholds = sorted({float(objective.threshold) for objective in whole if objective.threshold is not None})
        if thresholds or any(getattr(stats, which) for which in STATISTICS):
            rows += _stage_rows(tables.label(name), stats, thresholds)
    labels = list(dict.fromkeys(row["name"] for row in rows))
    if not labels:
        return ""
    alternative = "Percentiles of each stage against its budget; the table has the figures"
    return both_sizes(Picture(rows, charts.stage_bars(labels, PAGE), alternative))


def _stage_rows(label: str, stats: MetricStats, thresholds_ns: Sequence[float]) -> list[Row]:
    values = {which: tables.statistic(stats, which) for which in STATISTICS}
    rows: list[Row] = [{"name": label, "figures": " / ".join(text.removesuffix(" ms") for text in values.values())}]
    begin = 0.0
    for which, text in values.items():
        value: float | None = getattr(stats, which)
        if value is not None and in_milliseconds(value) > begin:
            end = in_milliseconds(value)
            rows.append(
                {"name": label, "statistic": which, "low": begin, "high": end, "text": f"{label} {which}: {text}"}
            )
            begin = end
    for threshold in thresholds_ns:
        text = f"budget {formatting.milliseconds(threshold)}"
        rows.append({"name": label, "budget": in_milliseconds(threshold), "text": text})
    return rows


def draw_stack(stages: Sequence[StageStats]) -> str:
    """Return the parts of voice-to-voice: the stages one after the other, at their p50 and p95, on one scale."""
    rows: list[Row] = []
    for which in ("p50", "p95"):
        at = 0.0
        for stage in stages:
            value = max(0.0, getattr(stage, f"{which}_ns") or 0.0)
            if value:
                text, end = formatting.milliseconds(value, unit=False), at + in_milliseconds(value)
                bar: dict[str, Any] = {"stage": stage.label, "low": at, "high": end, "text": text}
                rows.append({"statistic": which, **bar, "words": f"{stage.label} {text} ms"})
                at = end
        if all(getattr(stage, f"{which}_ns") is None for stage in stages):
            rows.append({"statistic": which, "missing": tables.TOO_FEW})
    spec = charts.stage_stack([(stage.name, stage.label) for stage in stages], PAGE)
    return both_sizes(Picture(rows, spec, "Where a turn's time goes, by stage; the table has the figures"))


@dataclass(frozen=True, slots=True)
class LatencyBins:
    """Turns by their voice-to-voice: `counts` of bins of one width from `low_ns` on."""

    low_ns: float
    width_ns: float
    counts: tuple[int, ...]

    def bounds_ns(self, index: int) -> tuple[float, float]:
        """The bounds of a bin."""
        begin = self.low_ns + index * self.width_ns
        return begin, begin + self.width_ns


def histogram(values_ns: Sequence[float]) -> LatencyBins | None:
    """Bins of a round width, more of them for more values; None without a value."""
    if not values_ns:
        return None
    low, high = min(values_ns), max(values_ns)
    wanted = max(_FEWEST_BINS, min(_MOST_BINS, round(2 * math.sqrt(len(values_ns)))))
    span_ms = max(in_milliseconds(high - low), 1.0)
    width = next((width_ms for width_ms in _WIDTHS_MS if span_ms / width_ms <= wanted), _WIDTHS_MS[-1]) * NS_PER_MS
    begin = math.floor(low / width) * width
    counts = [0] * (int((high - begin) // width) + 1)
    for value in values_ns:
        counts[int((value - begin) // width)] += 1
    return LatencyBins(begin, width, tuple(counts))


def draw_distribution(shown: LatencyBins, stats: MetricStats, threshold_ns: float | None) -> str:
    """Turns upwards, milliseconds to the right, the percentiles and the objective marked."""
    rows: list[Row] = []
    for index, count in enumerate(shown.counts):
        low, high = shown.bounds_ns(index)
        bounds = f"{formatting.milliseconds(low, unit=False)} to {formatting.milliseconds(high)}"
        is_beyond = threshold_ns is not None and low >= threshold_ns
        ends = {"low": in_milliseconds(low), "high": in_milliseconds(high), "n": count, "beyond": is_beyond}
        if count:
            rows.append({**ends, "text": f"{bounds}: {formatting.turns(count)}"})
    values = {**{name: getattr(stats, name) for name in STATISTICS}, "objective": threshold_ns}
    marks = [(name, in_milliseconds(value)) for name, value in values.items() if value is not None]
    spec = charts.histogram(marks, PAGE)
    return both_sizes(Picture(rows, spec, "Distribution of voice to voice; the table has its figures"))
