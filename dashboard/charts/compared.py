"""Pictures that compare: two cohorts by curves and differences, and runs by trend, load, profile and differences."""

from collections.abc import Mapping, Sequence
from typing import Final

from dashboard.charts.over_time import cohort_label
from telemetry.charts import compared
from telemetry.charts.drawing import (
    ChartTable,
    Palette,
    Picture,
    Row,
    table_of,
)
from telemetry.charts.forest import forest
from telemetry.comparison.figures import STATISTICS
from telemetry.comparison.sentences import figure_row, forest_rows
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
    return Picture(
        rows,
        compared.curves([cohort_label(each) for each in cohorts], colors),
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


Details = Sequence[tuple[str, RunDetails]]


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
    columns = {"run": "run", "asked": "label", "began": "began_text", "p95": "text", "state": "state"}
    return Picture(
        rows,
        compared.trend([of.label for of in trends], colors),
        "p95 of voice to voice from run to run, a line for each group of runs that were asked the same",
        table_of("p95 of voice to voice by run", rows, columns),
    )


def run_differences(comparisons: Sequence[RunComparison], margin_ns: float, colors: Palette) -> Picture:
    """Draw the differences of the latencies of runs from a baseline with their intervals; zero as a line, the margin as
    a dashed one. An interval that nothing bounds on a side reaches as far as any other."""
    latencies = [(each, found) for each in comparisons for found in each.differences if found.figure.group == "latency"]
    rows = forest_rows([(found, each.candidate.label) for each, found in latencies])
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
    return Picture(
        rows,
        compared.load(runs, colors, objective_ms, None if capacity is None else capacity.callers_met),
        alternative,
        table,
    )


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
    return Picture(rows, compared.by_profile(_profiles(rows), runs, colors, is_share=False), alternative, table)


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
    return Picture(rows, compared.by_profile(_profiles(rows), runs, colors, is_share=True), alternative, table)


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
