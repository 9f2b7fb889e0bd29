"""The charts of the Runs page as Vega-Lite specifications, the rows that fill them, and their tables; pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt

from dashboard.charts.style import ChartTable, Palette, Row, finished, named_rule, spacing_room, time_axis
from telemetry.comparison.figures import STATISTICS
from telemetry.comparison.sentences import figure_row
from telemetry.comparison.verdict import RunComparison
from telemetry.model.formatting import (
    DASH,
    NS_PER_MS,
    NS_PER_S,
    condition_label,
    counted_units,
    declared_milliseconds,
    error_rate_name,
    in_milliseconds,
    milliseconds,
    number,
    percent,
)
from telemetry.store.questions.run_figures import ConditionLatency, LoadLevel, RunDetails
from telemetry.store.run_folders.entries import RunTrend
from telemetry.store.run_folders.places import CapacityResult

_SHAPES: Final = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
_DASHES: Final = [[1, 0], [5, 3], [2, 2], [8, 3], [3, 6], [1, 3]]
HEIGHT: Final = 230
# An axis of shares goes at least so far.
LEAST_SHARE: Final = 0.05
_ROW_HEIGHT: Final = 20
_LABEL_SIZE: Final = 12
_NAMES_BELOW_EACH_OTHER: Final = 4  # more of them take too much of the picture


def _many(field: str, domain: Sequence[str], colors: Palette) -> tuple[alt.Shape, alt.StrokeDash]:
    """Several runs or groups of one figure: the figure has the color, shape and dashes tell them apart."""
    names = list(domain)
    legend = None
    if len(names) > 1:
        legend = alt.Legend(
            title=None,
            orient="top",
            # Names of runs are long: side by side they meet where a reader spaces letters, or the window is narrow.
            columns=1 if len(names) <= _NAMES_BELOW_EACH_OTHER else 2,
            labelLimit=260,
            symbolStrokeColor=colors.p95,
            symbolSize=70,
            rowPadding=0,
        )
    return (
        alt.Shape(f"{field}:N", scale=alt.Scale(domain=names, range=_SHAPES[: len(names)]), legend=legend),
        alt.StrokeDash(f"{field}:N", scale=alt.Scale(domain=names, range=_DASHES[: len(names)]), legend=legend),
    )


def trend_spec(colors: Palette, labels: Sequence[str]) -> Row:
    """p95 of voice-to-voice from run to run, a line for each group that was asked the same."""
    base = alt.Chart(alt.NamedData("rows"))
    shape, dash = _many("label", labels, colors)
    x = alt.X("began:T", title=None, axis=time_axis(6))
    y = alt.Y("p95:Q", title="p95, ms", scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickCount=5))
    lines = base.mark_line(color=colors.p95).encode(x=x, y=y, strokeDash=dash)
    points = base.mark_point(color=colors.p95, filled=True, size=46).encode(
        x=x,
        y=y,
        shape=shape,
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip("began:T", format="%d %b %H:%M"),
            alt.Tooltip("text:N", title="p95"),
            alt.Tooltip("state:N"),
        ],
    )
    return finished(alt.layer(lines, points).properties(height=HEIGHT), colors)


def trend_rows(trends: Sequence[RunTrend]) -> list[Row]:
    """A row for each run."""
    return [
        {
            "label": trend.label,
            "run": run.title,
            "began": in_milliseconds(run.began_unix_ns or 0),
            "p95": in_milliseconds(run.p95_ns or 0.0),
            "text": milliseconds(run.p95_ns),
            "state": run.state,
        }
        for trend in trends
        for run in trend.runs
    ]


def trend_table(trends: Sequence[RunTrend], began: Mapping[str, str]) -> ChartTable:
    """The same as a table; `began` by the reference of a run."""
    rows = [
        (run.title, trend.label, began[run.reference], milliseconds(run.p95_ns), run.state)
        for trend in trends
        for run in trend.runs
    ]
    return ChartTable("p95 of voice to voice by run", ("run", "asked", "began", "p95", "state"), rows)


def forest_spec(colors: Palette, margin_ms: float, labels: Sequence[str], runs: int) -> Row:
    """Differences of the latencies of some runs with their intervals; zero as a line, the margin as a dashed one."""
    base = alt.Chart(alt.NamedData("rows"))
    once = base.transform_aggregate(rows="count()")  # drawn for one row, not for each
    y = alt.Y(
        "label:N",
        title=None,
        scale=alt.Scale(domain=list(labels)),
        axis=alt.Axis(labelFontSize=_LABEL_SIZE, grid=False),
    )
    x = alt.X(
        "lower:Q", title="ms more than the baseline", scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(tickCount=7)
    )
    legend = alt.Legend(title=None, orient="top", symbolSize=70) if runs > 1 else None
    shared: list[Any] = [alt.Tooltip("run:N"), alt.Tooltip("text:N", title="difference")]
    row = alt.YOffset("run:N")
    intervals = base.mark_rule(strokeWidth=3, color=colors.p95)
    points = base.mark_point(filled=True, size=60, color=colors.ink)
    margin = once.mark_text(
        align="left",
        dx=4,
        baseline="top",
        color=colors.ink,
        text=f"margin {declared_milliseconds(margin_ms * NS_PER_MS)}",
    )
    layers: list[Any] = [
        intervals.encode(x=x, x2="upper:Q", y=y, yOffset=row, tooltip=shared),
        points.encode(x="value:Q", y=y, yOffset=row, shape=alt.Shape("run:N", legend=legend), tooltip=shared),
        once.mark_rule(color=colors.soft).encode(x=alt.XDatum(0)),
        once.mark_rule(color=colors.ink, strokeDash=[5, 3]).encode(x=alt.XDatum(margin_ms)),
        margin.encode(x=alt.XDatum(margin_ms), y=alt.value(1)),
    ]
    height, left = _ROW_HEIGHT * len(labels) * max(1, runs), spacing_room(labels, _LABEL_SIZE)
    return finished(alt.layer(*layers).properties(height=height), colors, left=left)


def forest_rows(comparisons: Sequence[RunComparison]) -> list[Row]:
    """A row for each latency and run whose difference has an interval; one that nothing bounds on a side reaches as far
    as any other."""
    latencies = [found for each in comparisons for found in each.differences if found.figure.group == "latency"]
    bounds = [
        abs(bound) for found in latencies for bound in (found.lower, found.upper, found.value) if bound is not None
    ]
    reach = max(filter(math.isfinite, bounds), default=0.0)
    return [
        {
            "label": found.figure.label,
            "run": each.candidate.label,
            "lower": in_milliseconds(max(found.lower, -reach)),
            "upper": in_milliseconds(min(found.upper, reach)),
            "value": in_milliseconds(found.value or 0.0),
            "text": f"{figure_row(found)[3]} ({figure_row(found)[4]})",
        }
        for each in comparisons
        for found in each.differences
        if found.figure.group == "latency" and found.lower is not None and found.upper is not None
    ]


def forest_table(comparisons: Sequence[RunComparison]) -> ChartTable:
    """The same as a table."""
    rows = [
        (found.figure.label, each.candidate.label, *figure_row(found)[1:])
        for each in comparisons
        for found in each.differences
        if found.figure.group == "latency" and found.baseline is not None
    ]
    columns = ("figure", "run", "baseline", "this run", "difference", "95 % interval", "shown")
    return ChartTable("differences of the latencies", columns, rows)


def load_spec(colors: Palette, runs: Sequence[str], objective_ms: float | None, capacity: CapacityResult | None) -> Row:
    """p50 and p95 against the calls in flight, p95 with its interval; the objective across, the capacity as a rule."""
    base = alt.Chart(alt.NamedData("rows"))
    x = alt.X(
        "calls:Q",
        title="calls in flight",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(grid=False, tickMinStep=1),
    )
    y = alt.Scale(zero=True, nice=True)
    shape, dash = _many("run", runs, colors)
    shared: list[Any] = [
        alt.Tooltip("run:N"),
        alt.Tooltip("level:N", title="calls in flight"),
        alt.Tooltip("turns:Q"),
        alt.Tooltip("p50_text:N", title="p50"),
        alt.Tooltip("p95_text:N", title="p95"),
    ]
    layers: list[Any] = [
        base.transform_filter("datum.lower !== null").mark_rule(color=colors.p95, opacity=0.55).encode(
            x=x, y=alt.Y("lower:Q", title="ms", scale=y), y2="upper:Q"
        ),
        base.transform_filter("datum.p50 !== null").mark_line(color=colors.p50).encode(x=x, y="p50:Q", strokeDash=dash),
        base.transform_filter("datum.p95 !== null").mark_line(color=colors.p95).encode(x=x, y="p95:Q", strokeDash=dash),
        base.transform_filter("datum.p50 !== null").mark_point(color=colors.p50, filled=True).encode(
            x=x, y="p50:Q", shape=shape, tooltip=shared
        ),
        base.transform_filter("datum.p95 !== null").mark_point(color=colors.p95, filled=True).encode(
            x=x, y="p95:Q", shape=shape, tooltip=shared
        ),
    ]  # fmt: skip
    once = base.transform_aggregate(rows="count()")
    if objective_ms is not None:
        layers += named_rule(base, colors, objective_ms, f"objective {declared_milliseconds(objective_ms * NS_PER_MS)}")
    if capacity is not None and capacity.callers_met is not None:
        layers.append(once.mark_rule(color=colors.playing, strokeWidth=2).encode(x=alt.XDatum(capacity.callers_met)))
        layers.append(
            once.mark_text(align="left", dx=5, baseline="top", color=colors.ink, text="capacity").encode(
                x=alt.XDatum(capacity.callers_met), y=alt.value(2)
            )
        )
    return finished(alt.layer(*layers).properties(height=HEIGHT), colors)


def load_rows(found: Sequence[tuple[str, RunDetails]]) -> list[Row]:
    """A row for each level of calls in flight of each run."""
    return [
        {"run": name, "calls": level.high, "level": _level(level), "turns": level.turns, **_latency(level)}
        for name, each in found
        for level in each.loads
    ]


def load_table(found: Sequence[tuple[str, RunDetails]]) -> ChartTable:
    """The same as a table."""
    rows = [
        (_level(level), name, number(level.turns), milliseconds(level.p50), milliseconds(level.p95), _between(level))
        for name, each in found
        for level in each.loads
    ]
    columns = ("calls in flight", "run", "turns", "p50", "p95", "95 % interval of the p95")
    return ChartTable("latency against calls in flight", columns, rows)


def capacity_rows(found: CapacityResult) -> list[Row]:
    """A row for each step of a search for capacity."""
    rows: list[Row] = []
    for step in found.steps:
        latency = step.voice_to_voice
        low, high = latency.p95_interval_s or (None, None)
        rows.append(
            {
                "run": "search for capacity",
                "calls": step.callers,
                "level": number(step.callers),
                "turns": step.turns,
                "p50": _in_ms(latency.p50_s),
                "p95": _in_ms(latency.p95_s),
                "lower": _in_ms(low),
                "upper": _in_ms(high),
                "p50_text": milliseconds(_in_ns(latency.p50_s)),
                "p95_text": milliseconds(_in_ns(latency.p95_s)),
            }
        )
    return rows


def capacity_table(found: CapacityResult) -> ChartTable:
    """The same as a table."""
    rows = [
        (
            number(step.callers),
            number(step.turns),
            milliseconds(_in_ns(step.voice_to_voice.p50_s)),
            milliseconds(_in_ns(step.voice_to_voice.p95_s)),
            step.status,
        )
        for step in found.steps
    ]
    return ChartTable("steps of the search for capacity", ("callers", "turns", "p50", "p95", "objectives"), rows)


def _in_ns(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * NS_PER_S


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else in_milliseconds(seconds * NS_PER_S)


def condition_spec(colors: Palette, conditions: Sequence[str], runs: Sequence[str], *, is_share: bool) -> Row:
    """A figure by the profile of the speech, clean first: p50 and p95 of voice-to-voice, or the rate of word (or
    character) errors, each with its interval."""
    base = alt.Chart(alt.NamedData("rows"))
    x = alt.X("condition:N", title=None, scale=alt.Scale(domain=list(conditions)), axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("run:N")
    shape, _ = _many("run", runs, colors)
    axis = alt.Axis(tickCount=5, format="~%") if is_share else alt.Axis(tickCount=5)
    y = alt.Y("lower:Q", title="error rate" if is_share else "ms", scale=alt.Scale(zero=True, nice=True), axis=axis)
    shared: list[Any] = [
        alt.Tooltip("run:N"),
        alt.Tooltip("condition:N"),
        alt.Tooltip("turns:Q"),
        alt.Tooltip("text:N"),
    ]
    layers: list[Any] = [
        base.transform_filter("datum.lower !== null").mark_rule(color=colors.p95, strokeWidth=2, opacity=0.6).encode(
            x=x, xOffset=offset, y=y, y2="upper:Q"
        ),
        base.transform_filter("datum.value !== null").mark_point(color=colors.p95, filled=True, size=60).encode(
            x=x, xOffset=offset, y="value:Q", shape=shape, tooltip=shared
        ),
    ]  # fmt: skip
    if not is_share:
        layers.append(
            base.transform_filter("datum.p50 !== null").mark_point(color=colors.p50, filled=True, size=60).encode(
                x=x, xOffset=offset, y="p50:Q", shape=shape, tooltip=shared
            )
        )  # fmt: skip
    else:
        # Where no word was heard wrongly, an axis of nothing but 0 would have it in the middle.
        layers.append(base.transform_aggregate(rows="count()").mark_rule(opacity=0).encode(y=alt.YDatum(LEAST_SHARE)))
    return finished(alt.layer(*layers).properties(height=HEIGHT), colors)


def latency_by_condition(found: Sequence[tuple[str, RunDetails]]) -> tuple[list[Row], ChartTable]:
    """Rows and table of voice-to-voice by profile."""
    rows: list[Row] = []
    shown: list[tuple[str, ...]] = []
    for name, details in found:
        for each in details.latencies:
            label = condition_label(each.noise_profile, each.snr_asked_db, each.channel_profile)
            figures = _latency(each)
            text = f"p50 {figures['p50_text']}, p95 {figures['p95_text']}"
            rows.append(
                {"run": name, "condition": label, "turns": each.turns, **figures, "value": figures["p95"], "text": text}
            )
            shown.append((label, name, number(each.turns), figures["p50_text"], figures["p95_text"], _between(each)))
    columns = ("profile", "run", "turns", "p50", "p95", "95 % interval of the p95")
    return rows, ChartTable("voice to voice by profile", columns, shown)


def word_errors_by_condition(found: Sequence[tuple[str, RunDetails]]) -> tuple[list[Row], ChartTable]:
    """Rows and table of the word (or character) error rate by profile."""
    rows: list[Row] = []
    shown: list[tuple[str, ...]] = []
    for name, details in found:
        for each in details.word_errors:
            label = condition_label(each.noise_profile, each.snr_asked_db, each.channel_profile)
            low, high = each.interval or (None, None)
            text = percent(each.wer)
            rows.append(
                {"run": name, "condition": label, "turns": each.turns, "value": each.wer, "lower": low, "upper": high,
                 "text": text}
            )  # fmt: skip
            between = DASH if each.interval is None else f"{percent(low)} to {percent(high)}"
            shown.append((label, name, number(each.turns), number(each.words), text, between))
    conditions = [each for _, details in found for each in details.word_errors]
    words, characters = (sum(getattr(each, name) for each in conditions) for name in ("words", "characters"))
    rate = error_rate_name(words, characters)
    columns = ("profile", "run", "turns", counted_units(words, characters), rate, "95 % interval")
    return rows, ChartTable(f"{rate} by profile", columns, shown)


def _latency(of: LoadLevel | ConditionLatency) -> Row:
    low, high = of.p95_interval or (None, None)
    values = {"p50": of.p50, "p95": of.p95, "lower": low, "upper": high}
    return {
        **{name: None if value is None else in_milliseconds(value) for name, value in values.items()},
        **{f"{name}_text": milliseconds(getattr(of, name)) for name in STATISTICS[:2]},
    }


def _between(of: LoadLevel | ConditionLatency) -> str:
    if of.p95_interval is None:
        return DASH
    return f"{milliseconds(of.p95_interval[0], unit=False)} to {milliseconds(of.p95_interval[1])}"


def _level(level: LoadLevel) -> str:
    return number(level.high) if level.low == level.high else f"{number(level.low)} to {number(level.high)}"
