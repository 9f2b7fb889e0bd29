"""The percentiles of each stage against its budget, and where a turn's time goes, as pictures. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.reports import figures
from loadtest.reports.html.svg import LinearScale, Size, line, picture, rect, text, ticks, width_of
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_MS, in_milliseconds
from telemetry.model.metrics import DEFINITIONS, shown_in
from telemetry.objectives.objective import Objective
from telemetry.store.answers import MetricStats, StageStats, Summary

_STATISTICS: Final = ("p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage with its percentiles and the thresholds of the objectives on all turns of it."""

    label: str
    stats: MetricStats
    thresholds_ns: tuple[float, ...]


def stage_rows(summary: Summary, objectives: Sequence[Objective]) -> list[StageRow]:
    """The durations of a turn that were measured, and those that an objective is on."""
    names = [*shown_in("page"), *(objective.metric for objective in objectives if objective.metric)]
    rows: list[StageRow] = []
    for name in dict.fromkeys(names):
        stats = summary.metrics.get(name)
        if stats is None or not stats.n or DEFINITIONS[name].unit != "ns":
            continue
        whole = [each for each in objectives if each.metric == name and not each.is_of_a_part]
        thresholds = tuple(sorted({float(each.threshold) for each in whole if each.threshold is not None}))
        if thresholds or any(getattr(stats, which) for which in _STATISTICS):
            rows.append(StageRow(figures.label(name), stats, thresholds))
    return rows


def draw_bars(rows: Sequence[StageRow], size: Size) -> str:
    """A bar per stage: as far as p50, p95 and p99 reach, each paler than the one before, with a tick at each budget."""
    label_width = 0.0 if size.is_narrow else 142.0
    figure_width = 0.0 if size.is_narrow else 230.0
    row_height = 52.0 if size.is_narrow else 34.0
    known = [value for row in rows for which in _STATISTICS if (value := getattr(row.stats, which)) is not None]
    reach = max([*known, *(each for row in rows for each in row.thresholds_ns)], default=1.0) or 1.0
    x = LinearScale(0.0, reach * 1.04, label_width + 2.0, size.width - figure_width - 10.0)
    bottom = len(rows) * row_height + 6
    parts: list[str] = []
    for value in ticks(0.0, in_milliseconds(x.high), 4 if size.is_narrow else 6):
        at = x(value * NS_PER_MS)
        parts.append(line((at, 2.0), (at, bottom), "grid"))
        parts.append(text((at, bottom + 15), formatting.number(value), "label soft", "middle"))
    for index, row in enumerate(rows):
        parts += _row(row, x, index * row_height, size)
    parts.append(text((x.begin, bottom + 31), "ms; p50, p95, p99 beside each", "label soft"))
    return picture(size, bottom + 36, parts, "Percentiles of each stage against its budget; the table has the figures")


def _row(row: StageRow, x: LinearScale, top: float, size: Size) -> list[str]:
    bar_top, bar_height = (top + 24.0, 16.0) if size.is_narrow else (top + 10.0, 16.0)
    parts: list[str] = []
    values = [figures.statistic(row.stats, which).removesuffix(" ms") for which in _STATISTICS]
    if size.is_narrow:
        parts.append(text((x.begin, top + 17), row.label, "label strong"))
        parts.append(text((size.width - 4, top + 17), " / ".join(values), "label halo", "end"))
    else:
        parts.append(text((x.begin - 10, bar_top + 12), row.label, "label strong", "end"))
        shown = " · ".join(f"{which} {value}" for which, value in zip(_STATISTICS, values, strict=True))
        parts.append(text((x.end + 12, bar_top + 12), shown, "label"))
    begin = x(0.0)
    for which in _STATISTICS:
        value: float | None = getattr(row.stats, which)
        if value is not None and x(value) > begin:
            title = f"{row.label} {which}: {figures.statistic(row.stats, which)}"
            parts.append(rect((begin, bar_top), x(value) - begin, bar_height, f"band-{which}", title))
            begin = x(value)
    for threshold in row.thresholds_ns:
        at = x(threshold)
        parts.append(line((at, bar_top - 5), (at, bar_top + bar_height + 5), "budget"))
    return parts


def draw_stack(stages: Mapping[str, StageStats], size: Size) -> str:
    """Where voice-to-voice goes: the stages one after the other, at their p50 and at their p95, on one scale."""
    known = [each for each in stages.values() if each.p50_ns is not None]
    lengths = [sum(max(0.0, getattr(each, which) or 0.0) for each in known) for which in ("p50_ns", "p95_ns")]
    reach = max(lengths)
    x = LinearScale(0.0, reach or 1.0, 34.0, size.width - 4.0)
    parts: list[str] = []
    for index, which in enumerate(("p50_ns", "p95_ns")):
        top = index * 40.0 + 4
        parts.append(text((0.0, top + 20), which.removesuffix("_ns"), "label soft"))
        begin = 0.0
        if all(getattr(each, which) is None for each in known):
            parts.append(text((x.begin, top + 20), figures.TOO_FEW, "label soft"))
        for each in known:
            value = max(0.0, getattr(each, which) or 0.0)
            if not value:
                continue
            at, width = x(begin), x(begin + value) - x(begin)
            shown = formatting.milliseconds(value, unit=False)
            title = f"{each.label} {shown} ms"
            parts.append(rect((at, top), max(0.0, width - 1), 30.0, f"s-{each.name}", title))
            if width > width_of(shown) + 8:
                parts.append(text((at + width / 2, top + 19.5), shown, "label on-stage", "middle"))
            begin += value
    return picture(size, 80.0, parts, "Where a turn's time goes, by stage; the table has the figures")
