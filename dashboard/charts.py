"""Charts of the store's answers: the rows, alternative text and table of each, for the specifications of
`telemetry.charts`.

The table of a chart is in a collapsed element below it, which stays open or closed over a refresh. Its rows are sent
when it is opened: otherwise unread rows would be half of what a browser builds for a page. A specification depends only
on what rarely changes, so that the browser keeps the drawing over a refresh.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard import descriptions
from dashboard.components.markup import Html, escape, hint, link_to, table
from dashboard.descriptions import Clock, time_of_day
from telemetry.charts import compared, over_time, turns
from telemetry.charts.drawing import ChartTable, Palette, Picture, Row, palette, table_of
from telemetry.charts.forest import forest
from telemetry.comparison.sentences import figure_row, forest_rows
from telemetry.comparison.verdict import RunComparison
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import DASH, NS_PER_S, declared_milliseconds, in_milliseconds, milliseconds, number
from telemetry.model.generator_health import NOT_REPORTED, HealthFigure, Unit
from telemetry.objectives.error_budgets import ErrorBudget
from telemetry.rollout.cohort_comparison import CohortComparison
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import CheckRow, Funnel
from telemetry.store.answers import WerByCondition
from telemetry.store.questions.instrument import GaugeSeries
from telemetry.store.questions.run_figures import ConditionLatency, RunDetails
from telemetry.store.questions.timelines import CohortLines, CountsOverTime
from telemetry.store.questions.turns import EDGES_MS, HeatCell, TurnsAnswer, band_limits_ms
from telemetry.store.run_folders.entries import RunTrend
from telemetry.store.run_folders.places import CapacityResult

# A browser lays out this many rows without a noticeable delay; a page's charts have fewer points.
MOST_ROWS: Final = 1_000
DECISIONS: Final[dict[Decision, str]] = {"promote": "promote", "hold": "hold", "roll_back": "roll back"}
_LONGEST_COHORT: Final = 24
# A line for a limit farther above all values would leave them too little height to be readable.
_FARTHEST_LIMIT: Final = 4
_AXES: Final[dict[Unit, str]] = {"ns": "ms", "bytes": "bytes", "share of a core": "cores"}
_NOT_WORSE: Final = "not shown to be worse"
_STATES: Final = {"worse": "worse", "within": "within the margin", "shown": "shown, not judged"}
_LATENCY_COLUMNS: Final = {
    "run": "run",
    "turns": "turns_text",
    "p50": "p50_text",
    "p95": "p95_text",
    "95 % interval of the p95": "between",
}
Details = Sequence[tuple[str, RunDetails]]


def colors() -> Palette:
    """The colors of the viewer's theme."""
    return palette(st.context.theme.type)


def draw(picture: Picture, *, key: str | None = None) -> Any:
    """Draw a picture with its table below. With a `key`, return what is selected in the chart, as `st.vega_lite_chart`
    does."""
    selecting: dict[str, Any] = {} if key is None else {"key": key, "on_select": "rerun"}
    drawn = st.vega_lite_chart(
        pd.DataFrame(picture.rows), dict(picture.spec), theme=None, width="stretch", alt=picture.alt, **selecting
    )
    table_below(picture.table, at_once=False)
    return drawn


def table_below(of: ChartTable, *, at_once: bool = True) -> None:
    """Draw the figures of a picture as a collapsed table; its rows are sent at once or when it is opened."""
    below = st.expander(f"Table: {of.caption}", on_change="ignore" if at_once else "rerun")
    if at_once or below.open:
        below.html(table_html(of))


def table_html(of: ChartTable) -> Html:
    """Return the table as HTML; the first cell of a row is its link, if it has one."""
    links = [*of.links, *[""] * (len(of.rows) - len(of.links))]
    rows = [
        (link_to(link, first) if link else first, *others)
        for (first, *others), link in zip(of.rows[:MOST_ROWS], links, strict=False)
    ]
    columns = (of.columns[0], *(f"#{column}" for column in of.columns[1:]))
    shown = table(of.caption, columns, rows, css="vp-chart-table", captioned=True)
    if not rows:
        return Html(shown + hint("no figures"))
    left_out = f"the first {len(rows)} of {len(of.rows)} rows"
    return Html(shown + hint(escape(left_out))) if len(of.rows) > len(rows) else shown


def cohort_label(cohort: str | None) -> str:
    """A cohort's name in a picture: short, on one line."""
    return "all turns" if cohort is None else one_line(cohort, _LONGEST_COHORT)


def latency_lines(
    cohort_lines: CohortLines, name: str, clock: Clock, *, objective_ms: float | None, missed_ns: int | None
) -> Picture:
    """Draw p95 over time: a line per cohort with its own color, dash pattern and marker, gaps where there are too few
    turns, few turns also as dots, and rules for the objective and for the time since when it is missed."""
    nothing = dict.fromkeys(
        ("cohort", "value", "n", "n_text", "value_text", "from_text", "to_text", "onset_text", "dot")
    )
    points: list[Row] = [
        {
            **nothing,
            "time": in_milliseconds(point.end_unix_ns),
            "cohort": cohort_label(line.cohort),
            "value": None if point.value is None else in_milliseconds(point.value),
            "n": point.n,
            "n_text": number(point.n),
            "value_text": "too few" if point.value is None else milliseconds(point.value),
            "from_text": clock(point.end_unix_ns - cohort_lines.window_ns),
            "to_text": clock(point.end_unix_ns),
        }
        for line in cohort_lines.lines
        for point in line.points
    ]
    moments: list[Row] = [
        {**nothing, "time": in_milliseconds(dot.started_unix_ns), "dot": in_milliseconds(dot.value)}
        for dot in cohort_lines.dots
    ]
    if missed_ns is not None:
        words = f"missed since {clock(missed_ns)}"
        moments.append({**nothing, "time": in_milliseconds(missed_ns), "onset_text": words})
    if cohort_lines.load:
        moments.append({**nothing, "time": in_milliseconds(cohort_lines.load[0].start_unix_ns)})
    cohorts = tuple(dict.fromkeys(row["cohort"] for row in points))
    columns = {"window from": "from_text", "cohort": "cohort", "turns": "n_text", "p95": "value_text"}
    return Picture(
        [*points, *moments],
        over_time.latency_lines(colors(), cohorts, objective_ms),
        f"{name} over time, p95 by cohort against the objective",
        table_of(f"{name} over time", points, columns),
    )


def load_strip(cohort_lines: CohortLines, clock: Clock) -> Picture:
    """Draw the calls in flight as a separate strip, over the same time as the lines above it."""
    rows: list[Row] = [
        {"time": in_milliseconds(point.start_unix_ns), "calls": point.calls} for point in cohort_lines.load
    ]
    last_ns = max((point.end_unix_ns for line in cohort_lines.lines for point in line.points), default=0)
    if rows and in_milliseconds(last_ns) > rows[-1]["time"]:
        rows.append({**rows[-1], "time": in_milliseconds(last_ns)})
    shown = [(clock(point.start_unix_ns), number(point.calls)) for point in cohort_lines.load]
    figures = ChartTable("Calls in flight over time", ("from", "calls in flight"), shown)
    return Picture(rows, over_time.load_strip(colors()), "Calls in flight over the same time", figures)


def _series_rows(starts_unix_ns: Sequence[int], values: Mapping[str, Sequence[float | None]]) -> list[Row]:
    """One row per bucket and name; `order` is the position of the name in the stack of bars."""
    return [
        {"time": in_milliseconds(start), "name": name, "value": value, "order": order}
        for order, (name, name_values) in enumerate(values.items())
        for start, value in zip(starts_unix_ns, name_values, strict=True)
    ]


def _series_table(
    caption: str, starts_unix_ns: Sequence[int], texts: Mapping[str, Sequence[str]], zone: tzinfo
) -> ChartTable:
    begins = [descriptions.day_and_second(start, zone) for start in starts_unix_ns]
    rows = [tuple(cells) for cells in zip(begins, *texts.values(), strict=True)]
    return ChartTable(f"{caption} over time", ("from", *texts), rows)


def count_bars(title: str, counts: CountsOverTime, zone: tzinfo) -> Picture:
    """Draw the counts of each name per bucket as stacked bars."""
    starts, names = counts.starts_unix_ns, list(counts.counts)
    texts = {name: [number(n) for n in values] for name, values in counts.counts.items()}
    return Picture(
        _series_rows(starts, counts.counts),
        over_time.count_bars(names, in_milliseconds(counts.width_ns), colors()),
        f"{title}: bars of {formatting.seconds(counts.width_ns)}, stacked by {', '.join(names)}",
        _series_table(title, starts, texts, zone),
    )


def _drawn(unit: Unit, value: float | None) -> float | None:
    return None if value is None else in_milliseconds(value) if unit == "ns" else value


def _gauge_text(unit: Unit, value: float | None) -> str:
    if value is None:
        return NOT_REPORTED
    if unit == "ns":
        return formatting.fine_milliseconds(value)
    return formatting.percent(value) if unit == "share of a core" else f"{number(value)} bytes"


def has_far_limit(figure: HealthFigure, series: GaugeSeries) -> bool:
    """Return whether the limit of a gauge is so far above all of its values that it is not drawn."""
    most = max((value for of in series.values.values() for value in of if value is not None), default=0.0)
    return figure.limit_ns is not None and figure.limit_ns > _FARTHEST_LIMIT * most


def gauge_lines(figure: HealthFigure, series: GaugeSeries, zone: tzinfo) -> Picture:
    """Draw a line per process with gaps where there is no value, and the limit as a rule if values come near it."""
    title, axis = figure.chart_heading or figure.label, _AXES[figure.unit]
    drawn = {name: [_drawn(figure.unit, value) for value in values] for name, values in series.values.items()}
    texts = {name: [_gauge_text(figure.unit, value) for value in values] for name, values in series.values.items()}
    limited, caption, rule = "", title, None
    if figure.limit_ns is not None:
        is_far, text = has_far_limit(figure, series), declared_milliseconds(figure.limit_ns)
        limited = f", {'all far below' if is_far else 'against'} the limit of {text}"
        caption = f"{title} (limit {text})"
        rule = None if is_far else (in_milliseconds(figure.limit_ns), f"limit {text}")
    return Picture(
        _series_rows(series.starts_unix_ns, drawn),
        over_time.gauge_lines(list(drawn), axis, colors(), rule),
        f"{title} over time in {axis}, a line for each of {', '.join(drawn)}{limited}",
        _series_table(caption, series.starts_unix_ns, texts, zone),
    )


def left_text(left: float | None) -> str:
    """The share of the error budget that is left."""
    if left is None:
        return "not known"
    if left == float("-inf"):
        return "overspent"
    return f"overspent {formatting.factor(1 - left)}" if left < 0 else f"{formatting.percent(left)} left"


def budget_days(budget: ErrorBudget) -> Picture:
    """Draw the error budget left at the end of each day, from the whole budget to zero (dotted) and below."""
    rows: list[Row] = [
        {
            "day": -day.days_ago,
            "ago": str(day.days_ago),
            "left": None if day.budget_left is None else max(over_time.LOWEST_DRAWN, day.budget_left),
            "text": left_text(day.budget_left),
            "bad": f"{day.counts.bad:,}",
            "turns": f"{day.counts.eligible:,}",
        }
        for day in budget.days
    ]
    columns = {"days ago": "ago", "left": "text", "bad turns": "bad", "turns": "turns"}
    return Picture(
        rows,
        over_time.budget_days(colors()),
        f"Error budget of {budget.title} over 28 days: {left_text(budget.budget_left)} now",
        table_of("error budget left at the end of each day", rows, columns),
    )


def funnel(looks: Funnel, zone: tzinfo, alternative: str) -> Picture | None:
    """Draw the figure at each look with its bounds, which narrow over time, the verdict of each look, the limit, and
    zero if the figure is a difference; None if no look has bounds."""
    rows: list[Row] = [
        {
            "time": in_milliseconds(point.at_unix_ns),
            "stage": point.stage,
            "estimate": point.estimate,
            "lower": point.lower,
            "upper": point.upper,
            "when": descriptions.day_and_time(point.at_unix_ns, zone),
            "figure": looks.text(point.estimate),
            "bounds": looks.bounds_text(point),
            "text": f"{looks.text(point.estimate)}, {looks.bounds_text(point)}",
            "verdict": DECISIONS[point.decision],
        }
        for point in looks.points
    ]
    if looks.limit is None or not any(row["lower"] is not None and row["upper"] is not None for row in rows):
        return None
    what = "share" if looks.unit == "share" else "difference"
    columns = {"when": "when", "stage": "stage", what: "figure", "bounds": "bounds", "verdict": "verdict"}
    known = table_of("bounds at each look", [row for row in rows if row["estimate"] is not None], columns)
    return Picture(rows, over_time.funnel(colors(), looks.unit, looks.limit, looks.limit_text), alternative, known)


def curves(comparison: CohortComparison) -> Picture:
    """Draw the cumulative distributions of control and candidate, with rules at the shares of the percentiles."""
    rows: list[Row] = [
        {
            "cohort": cohort_label(point.cohort),
            "name": point.cohort,
            "ms": in_milliseconds(point.value_ns),
            "share": point.share,
            "within": milliseconds(point.value_ns),
            "of": formatting.percent(point.share),
            "text": f"{formatting.percent(point.share)} within {milliseconds(point.value_ns)}",
        }
        for point in comparison.curves
    ]
    cohorts = (comparison.control.cohort, comparison.candidate.cohort)
    columns = {"cohort": "name", "within": "within", "share of turns": "of"}
    return Picture(
        rows,
        compared.curves([cohort_label(cohort) for cohort in cohorts], colors()),
        f"Cumulative share of turns by voice to voice, {cohorts[0]} and {cohorts[1]}",
        table_of("share of turns answered within a time", rows, columns),
    )


def differences(comparison: CohortComparison, rows: Sequence[CheckRow], alternative: str, first: str) -> Picture:
    """Draw each known difference as a point with its bounds, in the order of the rows, with lines at zero and at the
    margin."""
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
    columns = (first, "beyond the margin", "candidate", "control", "difference", "bounds", "margin")
    figures = ChartTable(alternative[0].lower() + alternative[1:], (*columns, "turns of the candidate", "state"), cells)
    spec = forest(known, colors(), comparison.unit, margin=comparison.margin, margin_text=comparison.margin_text)
    return Picture(known, spec, alternative, figures)


def trend(trends: Sequence[RunTrend], began: Mapping[str, str]) -> Picture:
    """Draw p95 of voice-to-voice from run to run, a line per group of runs with the same settings; `began` maps the
    reference of a run to its start."""
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
    columns = {"run": "run", "asked": "label", "began": "began_text", "p95": "text", "state": "state"}
    return Picture(
        rows,
        compared.trend([of.label for of in trends], colors()),
        "p95 of voice to voice from run to run, a line for each group of runs that were asked the same",
        table_of("p95 of voice to voice by run", rows, columns),
    )


def run_differences(comparisons: Sequence[RunComparison], margin_ns: float) -> Picture:
    """Draw the latency differences of runs from a baseline with their intervals, a line at zero and a dashed line at
    the margin. An interval without a bound on one side extends as far as the widest one."""
    latencies = [
        (comparison, difference)
        for comparison in comparisons
        for difference in comparison.differences
        if difference.figure.group == "latency"
    ]
    rows = forest_rows([(difference, comparison.candidate.label) for comparison, difference in latencies])
    cells = [
        (difference.figure.label, comparison.candidate.label, *figure_row(difference)[1:])
        for comparison, difference in latencies
        if difference.baseline is not None
    ]
    columns = ("figure", "run", "baseline", "this run", "difference", "95 % interval", "shown")
    return Picture(
        rows,
        forest(rows, colors(), "s", margin=margin_ns / NS_PER_S, margin_text=declared_milliseconds(margin_ns)),
        "Differences of the latencies from the baseline with their 95 % intervals, zero and the margin as lines",
        ChartTable("differences of the latencies", columns, cells),
    )


def load(run_details: Details, capacity: CapacityResult | None, objective_ms: float | None) -> Picture | None:
    """Draw p50 and p95 against the calls in flight, p95 with its interval, and rules for the objective and the capacity
    that a search found; None if none of this is known."""
    rows: list[Row] = []

    if capacity is None:
        for name, details in run_details:
            for level in details.loads:
                low, high = number(level.low), number(level.high)
                calls = {"calls": level.high, "level": high if low == high else f"{low} to {high}"}
                rows.append({**_latency(level.turns, level.p50, level.p95, level.p95_interval), "run": name, **calls})
        columns = {"calls in flight": "level", **_LATENCY_COLUMNS}
        figures = table_of("latency against calls in flight", rows, columns)
    else:
        for step in capacity.steps:
            of = step.voice_to_voice
            p50, p95 = (None if value_s is None else value_s * NS_PER_S for value_s in (of.p50_s, of.p95_s))
            interval = None if of.p95_interval_s is None else tuple(bound_s * NS_PER_S for bound_s in of.p95_interval_s)
            calls = {"calls": step.callers, "level": number(step.callers), "status": step.status}
            rows.append({**_latency(step.turns, p50, p95, interval), "run": "search for capacity", **calls})
        columns = {"callers": "level", "turns": "turns_text", "p50": "p50_text", "p95": "p95_text"}
        figures = table_of("steps of the search for capacity", rows, {**columns, "objectives": "status"})
    if not rows:
        return None
    runs = list(dict.fromkeys(row["run"] for row in rows))
    met = None if capacity is None else capacity.callers_met
    alternative = "p50 and p95 of voice to voice against the calls in flight, with the objective and the capacity found"
    return Picture(rows, compared.load(runs, colors(), objective_ms, met), alternative, figures)


def latency_by_profile(run_details: Details) -> Picture:
    """Draw p50 and p95 of voice-to-voice by the profile of the speech, clean first, p95 with its interval."""
    rows: list[Row] = [
        {
            **(figures := _latency(latency.turns, latency.p50, latency.p95, latency.p95_interval)),
            "run": name,
            "condition": _profile(latency),
            "value": figures["p95"],
            "text": f"p50 {figures['p50_text']}, p95 {figures['p95_text']}",
        }
        for name, details in run_details
        for latency in details.latencies
    ]
    alternative = "p50 and p95 of voice to voice by the profile of the speech, clean first"
    known = table_of("voice to voice by profile", rows, {"profile": "condition", **_LATENCY_COLUMNS})
    return Picture(rows, _by_profile(rows, run_details, is_share=False), alternative, known)


def word_errors_by_profile(run_details: Details) -> Picture:
    """Draw the rate of word (or character) errors by the profile of the speech, with its interval."""
    conditions = [(name, condition) for name, details in run_details for condition in details.word_errors]
    rows: list[Row] = []
    for name, condition in conditions:
        low, high = condition.interval or (None, None)
        between = DASH if low is None else f"{formatting.percent(low)} to {formatting.percent(high)}"
        counted = {"turns": condition.turns, "turns_text": number(condition.turns), "words": number(condition.words)}
        figures = {"value": condition.wer, "text": formatting.percent(condition.wer), "lower": low, "upper": high}
        rows.append({"run": name, "condition": _profile(condition), "between": between, **counted, **figures})
    words, characters = (
        sum(getattr(condition, name) for _, condition in conditions) for name in ("words", "characters")
    )
    rate, units = formatting.error_rate_name(words, characters), formatting.counted_units(words, characters)
    columns = {"profile": "condition", "run": "run", "turns": "turns_text", units: "words", rate: "text"}
    known = table_of(f"{rate} by profile", rows, {**columns, "95 % interval": "between"})
    alternative = f"{known.caption.capitalize()} of the speech, clean first"
    return Picture(rows, _by_profile(rows, run_details, is_share=True), alternative, known)


def _by_profile(rows: Sequence[Row], run_details: Details, *, is_share: bool) -> Row:
    profiles = list(dict.fromkeys(row["condition"] for row in rows))
    return compared.by_profile(profiles, [name for name, _ in run_details], colors(), is_share=is_share)


def _profile(of: ConditionLatency | WerByCondition) -> str:
    return formatting.condition_label(of.noise_profile, of.snr_asked_db, of.channel_profile)


def _latency(turns: int, p50: float | None, p95: float | None, interval: Sequence[float] | None) -> Row:
    """Convert figures in ns to numbers in ms and to text."""
    low, high = interval or (None, None)
    values = {"p50": p50, "p95": p95, "lower": low, "upper": high}
    return {
        **{name: None if value is None else in_milliseconds(value) for name, value in values.items()},
        "p50_text": milliseconds(p50),
        "p95_text": milliseconds(p95),
        "turns": turns,
        "turns_text": number(turns),
        "between": DASH if low is None else f"{milliseconds(low, unit=False)} to {milliseconds(high)}",
    }


def band_label(band: int) -> str:
    """A band of latencies in words: `500 ms to 600 ms`."""
    low, high = (
        None if ms is None else f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:g} s" for ms in band_limits_ms(band)
    )
    if low is None:
        return "before the end of speech"
    return f"from {low}" if high is None else f"{low} to {high}"


def shown_bands(answer: TurnsAnswer) -> list[int]:
    """The bands from the lowest to the highest that has a turn, highest first."""
    known = [band for band, n in enumerate(answer.distribution) if n]
    return [] if not known else list(range(known[-1], known[0] - 1, -1))


def heat_map(
    answer: TurnsAnswer, clock: Clock = time_of_day, link: Callable[[HeatCell], str] = lambda _: ""
) -> Picture:
    """Draw a heat map of the turns by time and latency, with the slowest turns as points as well. A click on a cell or
    a point is reported; `link` leads to the turns of a cell."""
    nothing = dict.fromkeys(("from", "to", "n", "since", "trace", "turn", "at", "value"))
    cells: list[Row] = [
        {
            **nothing,
            "band": band_label(cell.band),
            "number": cell.band,
            "from": in_milliseconds(cell.start_unix_ns),
            "from_text": clock(cell.start_unix_ns),
            "to": in_milliseconds(cell.start_unix_ns + answer.width_ns),
            "since": cell.start_unix_ns // NS_PER_S,
            "n": cell.n,
            "n_text": f"{cell.n:,}",
        }
        for cell in answer.cells
    ]
    points: list[Row] = [
        {
            **nothing,
            "band": band_label(band := sum(in_milliseconds(turn.value_ns) >= edge for edge in EDGES_MS)),
            "number": band,
            "at": in_milliseconds(turn.started_unix_ns),
            "trace": turn.trace_id,
            "turn": turn.turn_index,
            "value": milliseconds(turn.value_ns),
        }
        for turn in answer.outliers
        if turn.value_ns is not None
    ]
    columns = {"from": "from_text", "voice to voice": "band", "turns": "n_text"}
    return Picture(
        [*cells, *points],
        turns.heat_map([band_label(band) for band in shown_bands(answer)], colors()),
        "Turns by the time when they began and by voice to voice; the slowest ones as points",
        table_of("turns by time and latency", cells, columns, [link(cell) for cell in answer.cells]),
    )


def distribution(answer: TurnsAnswer, link: Callable[[int], str] = lambda _: "") -> Picture:
    """Draw the number of turns in each band."""
    bands, total = shown_bands(answer), max(1, sum(answer.distribution))
    rows: list[Row] = []
    for band in bands:
        n = answer.distribution[band]
        rows.append({"band": band_label(band), "n": n, "n_text": f"{n:,}", "share": formatting.share(n, total)})
    columns = {"voice to voice": "band", "turns": "n_text", "share": "share"}
    return Picture(
        rows,
        turns.distribution([band_label(band) for band in bands], colors()),
        "How many turns each band of voice to voice has",
        table_of("turns by latency", rows, columns, [*map(link, bands)]),
    )
