"""Pictures that compare: two cohorts by curves and differences, and runs by trend, load, profile and differences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt

from dashboard.charts.over_time import cohort_label
from telemetry.charts.drawing import (
    DASHES,
    ONCE,
    ROWS,
    SHAPES,
    ChartTable,
    Palette,
    Picture,
    Row,
    amount,
    finished,
    having,
    named_rule,
    scale_of,
    table_of,
    time_axis,
    tips,
    upright_rule,
)
from telemetry.charts.forest import forest
from telemetry.comparison.figures import STATISTICS
from telemetry.comparison.sentences import figure_row
from telemetry.comparison.verdict import RunComparison
from telemetry.model import formatting
from telemetry.model.formatting import (
    DASH,
    NS_PER_S,
    condition_label,
    declared_milliseconds,
    in_milliseconds,
    milliseconds,
    number,
)
from telemetry.rollout.cohort_comparison import CohortComparison, CurvePoint
from telemetry.rollout.progress import CheckRow
from telemetry.store.answers import WerByCondition
from telemetry.store.questions.run_figures import ConditionLatency, LoadLevel, RunDetails
from telemetry.store.run_folders.entries import RunTrend
from telemetry.store.run_folders.places import CapacityResult

_CURVE_HEIGHT: Final = 260
# Shares at which the curves are read off, each with the side of its rule that its name is on.
_READ_OFF: Final = ((0.5, "p50", -4), (0.95, "p95", 11), (0.99, "p99", -4))


def curves(found: Sequence[CurvePoint], cohorts: tuple[str, str], colors: Palette) -> Picture:
    """Draw cumulative curves of the control and the candidate, with the shares at which percentiles are read off."""
    rows: list[Row] = [
        {
            "cohort": cohort_label(each.cohort),
            "name": each.cohort,
            "ms": in_milliseconds(each.value_ns),
            "share": each.share,
            "within": milliseconds(each.value_ns),
            "of": formatting.percent(each.share),
            "text": f"{formatting.percent(each.share)} within {milliseconds(each.value_ns)}",
        }
        for each in found
    ]
    legend = alt.Legend(title=None, orient="top", direction="horizontal", padding=0, offset=4)
    names = [cohort_label(each) for each in cohorts]
    label: dict[str, Any] = {"labelExpr": "format(datum.value, ',')", "labelOverlap": True}
    line = ROWS.mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=alt.X(
            "ms:Q",
            title="voice to voice, ms",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(grid=False, tickCount=6, format="~s", **label),
        ),
        y=alt.Y(
            "share:Q",
            title="share of turns",
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
            scale=alt.Scale(domain=[0, 1.03], nice=False),
        ),
        color=alt.Color("cohort:N", scale=scale_of(names, colors.series), legend=legend),
        strokeDash=alt.StrokeDash("cohort:N", scale=scale_of(names, DASHES), legend=legend),
        tooltip=tips("cohort", "text|turns"),
    )
    read_off: list[alt.Chart] = []
    for share, name, dy in _READ_OFF:
        read_off.append(ONCE.mark_rule(color=colors.soft, strokeDash=[1, 3]).encode(y=alt.YDatum(share)))
        text = ONCE.mark_text(align="right", dx=-3, dy=dy, fontSize=10, color=colors.soft, text=name)
        read_off.append(text.encode(y=alt.YDatum(share), x=alt.value("width")))
    return Picture(
        rows,
        finished([*read_off, line], colors, _CURVE_HEIGHT),
        f"Cumulative share of turns by voice to voice, {cohorts[0]} beside {cohorts[1]}",
        table_of(
            "share of turns answered within a time",
            rows,
            {"cohort": "name", "within": "within", "share of turns": "of"},
        ),
    )


_NOT_WORSE: Final = "not shown to be worse"
_STATES: Final = {"worse": "worse", "": _NOT_WORSE, "within": "within the margin", "shown": "shown, not judged"}
_DIFFERENCE_COLUMNS: Final = ("beyond the margin", "candidate", "control", "difference", "bounds", "margin")


def differences(
    found: CohortComparison, rows: Sequence[CheckRow], colors: Palette, alternative: str, first: str
) -> Picture:
    """Draw each difference that is known, in the order of the rows, as a point with its bounds beside no difference and
    the margin."""
    known: list[Row] = [
        {
            "name": row.name,
            "estimate": row.difference_value,
            "lower": row.lower,
            "upper": row.upper,
            "verdict": _STATES.get(row.status, _NOT_WORSE),
            "text": f"{row.difference} ({row.bounds})",
        }
        for row in rows
        if row.lower is not None and row.upper is not None
    ]
    cells = [
        (
            *(row.name, row.beyond, row.candidate, row.control, row.difference, row.bounds, row.margin),
            *(number(row.turns), row.reason or _STATES.get(row.status, _NOT_WORSE)),
        )
        for row in rows
    ]
    table = ChartTable(
        alternative[0].lower() + alternative[1:],
        (first, *_DIFFERENCE_COLUMNS, "turns of the candidate", "state"),
        cells,
    )
    spec = forest(known, colors, found.unit, margin=found.margin, margin_text=found.margin_text)
    return Picture(known, spec, alternative, table)


HEIGHT: Final = 230
# An axis of shares goes at least so far.
LEAST_SHARE: Final = 0.05
_NAMES_BELOW_EACH_OTHER: Final = 4  # more of them take too much of the picture
Details = Sequence[tuple[str, RunDetails]]


def _many(field: str, names: Sequence[str], colors: Palette) -> tuple[alt.Shape, alt.StrokeDash]:
    """Several runs or groups of one figure: the figure has the color, shape and dashes tell them apart."""
    legend = None
    if len(names) > 1:
        # Names of runs are long: side by side they meet where a reader spaces letters, or the window is narrow.
        columns = 1 if len(names) <= _NAMES_BELOW_EACH_OTHER else 2
        symbol: dict[str, Any] = {"symbolStrokeColor": colors.p95, "symbolSize": 70}
        legend = alt.Legend(title=None, orient="top", columns=columns, labelLimit=260, rowPadding=0, **symbol)
    return (
        alt.Shape(f"{field}:N", scale=scale_of(names, SHAPES), legend=legend),
        alt.StrokeDash(f"{field}:N", scale=scale_of(names, DASHES), legend=legend),
    )


def trend(trends: Sequence[RunTrend], began: Mapping[str, str], colors: Palette) -> Picture:
    """Draw p95 of voice-to-voice from run to run, a line for each group that was asked the same; `began` is by the
    reference of a run."""
    rows: list[Row] = [
        {
            "label": of.label,
            "run": run.title,
            "began": in_milliseconds(run.began_unix_ns or 0),
            "began_text": began[run.reference],
            "p95": in_milliseconds(run.p95_ns or 0.0),
            "text": milliseconds(run.p95_ns),
            "state": run.state,
        }
        for of in trends
        for run in of.runs
    ]
    shape, dash = _many("label", [of.label for of in trends], colors)
    x, y = alt.X("began:T", title=None, axis=time_axis(6)), amount("p95", "p95, ms")
    shown = tips("run", "began:T|began|%d %b %H:%M", "text|p95", "state")
    layers = [
        ROWS.mark_line(color=colors.p95).encode(x=x, y=y, strokeDash=dash),
        ROWS.mark_point(color=colors.p95, filled=True, size=46).encode(x=x, y=y, shape=shape, tooltip=shown),
    ]
    columns = {"run": "run", "asked": "label", "began": "began_text", "p95": "text", "state": "state"}
    return Picture(
        rows,
        finished(layers, colors, HEIGHT),
        "p95 of voice to voice from run to run, a line for each group of runs that were asked the same",
        table_of("p95 of voice to voice by run", rows, columns),
    )


def run_differences(comparisons: Sequence[RunComparison], margin_ns: float, colors: Palette) -> Picture:
    """Draw the differences of the latencies of runs from a baseline with their intervals; zero as a line, the margin as
    a dashed one. An interval that nothing bounds on a side reaches as far as any other."""
    latencies = [(each, found) for each in comparisons for found in each.differences if found.figure.group == "latency"]
    bounds = [abs(bound) for _, of in latencies for bound in (of.lower, of.upper, of.value) if bound is not None]
    reach = max(filter(math.isfinite, bounds), default=0.0)
    rows: list[Row] = [
        {
            "name": found.figure.label,
            "group": each.candidate.label,
            "lower": max(found.lower, -reach) / NS_PER_S,
            "upper": min(found.upper, reach) / NS_PER_S,
            "estimate": (found.value or 0.0) / NS_PER_S,
            "verdict": "worse" if found.is_worse else "better" if found.is_worse is False else "no difference shown",
            "text": f"{figure_row(found)[3]} ({figure_row(found)[4]})",
        }
        for each, found in latencies
        if found.lower is not None and found.upper is not None
    ]
    cells = [
        (found.figure.label, each.candidate.label, *figure_row(found)[1:])
        for each, found in latencies
        if found.baseline is not None
    ]
    spec = forest(rows, colors, "s", margin=margin_ns / NS_PER_S, margin_text=declared_milliseconds(margin_ns))
    columns = ("figure", "run", "baseline", "this run", "difference", "95 % interval", "shown")
    alternative = (
        "Differences of the latencies from the baseline with their 95 % intervals, zero and the margin as lines"
    )
    return Picture(rows, spec, alternative, ChartTable("differences of the latencies", columns, cells))


_LEVEL_COLUMNS: Final = {
    "calls in flight": "level",
    "run": "run",
    "turns": "turns_text",
    "p50": "p50_text",
    "p95": "p95_text",
    "95 % interval of the p95": "between",
}


def load(
    found: Details, capacity: CapacityResult | None, objective_ms: float | None, colors: Palette
) -> Picture | None:
    """Draw p50 and p95 against the calls in flight, p95 with its interval, the objective across and the capacity that a
    search found as a rule; None where nothing of this is known."""
    rows: list[Row]
    if capacity is None:
        rows = [
            {**_latency(level), "run": name, "calls": level.high, "level": _level(level)}
            for name, each in found
            for level in each.loads
        ]
        table = table_of("latency against calls in flight", rows, _LEVEL_COLUMNS)
    else:
        rows = capacity_rows(capacity)
        columns = {"callers": "level", "turns": "turns_text", "p50": "p50_text", "p95": "p95_text"}
        table = table_of("steps of the search for capacity", rows, {**columns, "objectives": "status"})
    if not rows:
        return None
    runs = list(dict.fromkeys(row["run"] for row in rows))
    alternative = "p50 and p95 of voice to voice against the calls in flight, with the objective and the capacity found"
    return Picture(rows, load_spec(colors, runs, objective_ms, capacity), alternative, table)


def capacity_rows(found: CapacityResult) -> list[Row]:
    """A row for each step of a search for capacity."""
    rows: list[Row] = []
    for step in found.steps:
        latency = step.voice_to_voice
        low, high = latency.p95_interval_s or (None, None)
        values = {"p50": latency.p50_s, "p95": latency.p95_s, "lower": low, "upper": high}
        ns = {name: None if value is None else value * NS_PER_S for name, value in values.items()}
        rows.append(
            {
                "run": "search for capacity",
                "calls": step.callers,
                "level": number(step.callers),
                "turns": step.turns,
                "turns_text": number(step.turns),
                "status": step.status,
                **{name: None if value is None else in_milliseconds(value) for name, value in ns.items()},
                **{f"{name}_text": milliseconds(ns[name]) for name in STATISTICS[:2]},
            }
        )
    return rows


def load_spec(colors: Palette, runs: Sequence[str], objective_ms: float | None, capacity: CapacityResult | None) -> Row:
    """The specification of `load`."""
    zero = alt.Scale(zero=True, nice=True)
    x = alt.X("calls:Q", title="calls in flight", scale=zero, axis=alt.Axis(grid=False, tickMinStep=1))
    shape, dash = _many("run", runs, colors)
    shown = tips("run", "level|calls in flight", "turns:Q|turns", "p50_text|p50", "p95_text|p95")
    low = alt.Y("lower:Q", title="ms", scale=zero)
    painted = {"p50": colors.p50, "p95": colors.p95}
    layers: list[Any] = [
        having("lower").mark_rule(color=colors.p95, opacity=0.55).encode(x=x, y=low, y2="upper:Q"),
        *(
            having(name).mark_line(color=color).encode(x=x, y=f"{name}:Q", strokeDash=dash)
            for name, color in painted.items()
        ),
        *(
            having(name).mark_point(color=color, filled=True).encode(x=x, y=f"{name}:Q", shape=shape, tooltip=shown)
            for name, color in painted.items()
        ),
    ]
    if objective_ms is not None:
        words = f"objective {declared_milliseconds(objective_ms * formatting.NS_PER_MS)}"
        layers += named_rule(colors, objective_ms, words)
    if capacity is not None and capacity.callers_met is not None:
        place = {"dx": 5, "y": 2}
        layers += upright_rule(
            colors, capacity.callers_met, "capacity", color=colors.playing, strokeWidth=2, place=place
        )
    return finished(layers, colors, HEIGHT)


def latency_by_profile(found: Details, colors: Palette) -> Picture:
    """Draw p50 and p95 of voice-to-voice by the profile of the speech, clean first, p95 with its interval."""
    rows: list[Row] = [
        {
            **(figures := _latency(each)),
            "run": name,
            "condition": _profile(each),
            "value": figures["p95"],
            "text": f"p50 {figures['p50_text']}, p95 {figures['p95_text']}",
        }
        for name, details in found
        for each in details.latencies
    ]
    columns, runs = {"profile": "condition", **_LEVEL_COLUMNS}, [name for name, _ in found]
    del columns["calls in flight"]
    alternative = "p50 and p95 of voice to voice by the profile of the speech, clean first"
    table = table_of("voice to voice by profile", rows, columns)
    return Picture(rows, profile_spec(colors, _profiles(rows), runs, is_share=False), alternative, table)


def word_errors_by_profile(found: Details, colors: Palette) -> Picture:
    """Draw the rate of word (or character) errors by the profile of the speech, with its interval."""
    rows: list[Row] = []
    for name, details in found:
        for each in details.word_errors:
            low, high = each.interval or (None, None)
            rows.append(
                {
                    "run": name,
                    "condition": _profile(each),
                    "value": each.wer,
                    "lower": low,
                    "upper": high,
                    "turns": each.turns,
                    "turns_text": number(each.turns),
                    "words": number(each.words),
                    "text": formatting.percent(each.wer),
                    "between": DASH
                    if each.interval is None
                    else f"{formatting.percent(low)} to {formatting.percent(high)}",
                }
            )
    conditions, runs = [each for _, details in found for each in details.word_errors], [name for name, _ in found]
    words, characters = (sum(getattr(each, name) for each in conditions) for name in ("words", "characters"))
    rate, units = formatting.error_rate_name(words, characters), formatting.counted_units(words, characters)
    columns = {"profile": "condition", "run": "run", "turns": "turns_text", units: "words", rate: "text"}
    table = table_of(f"{rate} by profile", rows, {**columns, "95 % interval": "between"})
    alternative = f"{table.caption.capitalize()} of the speech, clean first"
    return Picture(rows, profile_spec(colors, _profiles(rows), runs, is_share=True), alternative, table)


def profile_spec(colors: Palette, profiles: Sequence[str], runs: Sequence[str], *, is_share: bool) -> Row:
    """The specification of a figure by profile."""
    x = alt.X("condition:N", title=None, scale=alt.Scale(domain=list(profiles)), axis=alt.Axis(labelAngle=0))
    at: dict[str, Any] = {"x": x, "xOffset": alt.XOffset("run:N")}
    shape, _ = _many("run", runs, colors)
    low = amount("lower", "error rate", format="~%") if is_share else amount("lower", "ms")
    figures = {"value": colors.p95} if is_share else {"value": colors.p95, "p50": colors.p50}
    layers: list[Any] = [
        having("lower").mark_rule(color=colors.p95, strokeWidth=2, opacity=0.6).encode(y=low, y2="upper:Q", **at),
        *(
            having(name)
            .mark_point(color=color, filled=True, size=60)
            .encode(y=f"{name}:Q", shape=shape, tooltip=tips("run", "condition", "turns:Q", "text"), **at)
            for name, color in figures.items()
        ),
    ]
    if is_share:
        # Where no word was recognized wrongly, an axis of nothing but 0 would have it in the middle.
        layers.append(ONCE.mark_rule(opacity=0).encode(y=alt.YDatum(LEAST_SHARE)))
    return finished(layers, colors, HEIGHT)


def _profiles(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["condition"] for row in rows))


def _profile(of: ConditionLatency | WerByCondition) -> str:
    return condition_label(of.noise_profile, of.snr_asked_db, of.channel_profile)


def _latency(of: LoadLevel | ConditionLatency) -> Row:
    low, high = of.p95_interval or (None, None)
    values = {"p50": of.p50, "p95": of.p95, "lower": low, "upper": high}
    between = DASH if low is None else f"{milliseconds(low, unit=False)} to {milliseconds(high)}"
    return {
        **{name: None if value is None else in_milliseconds(value) for name, value in values.items()},
        **{f"{name}_text": milliseconds(getattr(of, name)) for name in STATISTICS[:2]},
        "turns": of.turns,
        "turns_text": number(of.turns),
        "between": between,
    }


def _level(level: LoadLevel) -> str:
    return number(level.high) if level.low == level.high else f"{number(level.low)} to {number(level.high)}"
