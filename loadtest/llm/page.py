"""A bench as one HTML file: the stall and the verdict first, then pictures, then every table. Pure.

It loads nothing, has no script, and reads on a phone, on paper, in light and in dark. Foreign text is escaped.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from loadtest.exit_codes import ExitCode
from loadtest.llm.figures import Percentile
from loadtest.llm.plan import CACHE_TURNS
from loadtest.llm.report import BenchReport, sentences, tables
from loadtest.llm.voice import declared
from loadtest.reports.html.elements import document, folded, prose, section, table
from telemetry.charts.compared import with_intervals
from telemetry.charts.drawing import Picture, Row
from telemetry.charts.static import PAGE, both_sizes

_CLASSES: Final = {ExitCode.OK: "met", ExitCode.OBJECTIVE_MISSED: "missed", ExitCode.UNREACHABLE: "missed"}
_GAPS: Final = ("p50", "p90", "p95", "p99")


def as_html(report: BenchReport) -> str:
    """The whole file."""
    title = f"Language models for a voice: {', '.join(report.rows.targets)}"
    pictures = (_by_length, _slope, _chunks, _cold_and_warm, _goodput)
    return document(title, [_head(report, title), *(draw(report) for draw in pictures), _tables(report)])


def _head(report: BenchReport, title: str) -> str:
    first, *others = report.headlines
    css = _CLASSES.get(report.exit_code, "undecided") if report.verdicts else "undecided"
    others_shown = "".join(f"<p>{prose(line)}</p>" for line in others)
    below = "".join(f"<li>{prose(sentence)}</li>" for sentence in sentences(report))
    return (
        f'<header><p class="hint">voiceprobe llm · {prose(", ".join(report.plan.experiments))}</p>'
        f'<h1>{prose(title)}</h1><div class="verdict {css}"><p class="badge">{prose(first)}</p>{others_shown}</div>'
        f"<ul>{below}</ul></header>"
    )


def _row(name: str, place: str, value_ms: float, percentile: Percentile | None = None, line: str = "") -> Row:
    """A value of a picture with its interval in ms; a side that n does not bound ends at the figure."""
    row: Row = {"name": name, "place": place, "value": value_ms, "line": line or name}
    if percentile is not None:
        lower, upper = (percentile.value if end is None else end for end in (percentile.lower, percentile.upper))
        row |= {"lower": lower * 1e3, "upper": upper * 1e3}
    return {**row, "text": f"{name}, {place}: {value_ms:,.4g}"}


def _drawn(report: BenchReport, rows: Sequence[Row], places: Sequence[str], alternative: str, *more: str) -> str:
    """The picture of rows; `more` is the unit of another axis than that of milliseconds, which is logarithmic."""
    unit = more[0] if more else "ms"
    spec = with_intervals(report.rows.targets, places, unit, PAGE, is_log=not more)
    return both_sizes(Picture(rows, spec, alternative))


def _by_length(report: BenchReport) -> str:
    rows = [
        _row(
            row.target,
            f"{row.tokens:,}",
            percentile.value * 1e3,
            percentile if statistic == "p50" else None,
            row.target + statistic,
        )
        for row in report.rows.lengths
        for statistic in ("p50", "p90")
        if (percentile := row.figures["first_token_s"].at(statistic)) is not None
    ]
    if not rows:
        return ""
    places = [f"{tokens:,}" for tokens in sorted(set(report.plan.lengths))]
    drawn = _drawn(report, rows, places, "First token by output length, p50 and p90")
    hint = "the axis is logarithmic; of each target the lower line is p50 with its 95 % interval, the upper one p90"
    return section("First token by output length (tokens)", [drawn], hint)


def _slope(report: BenchReport) -> str:
    both = [
        (stall.target, p50, p90)
        for stall in report.rows.stalls
        if (p50 := stall.first_sentence_s.at("p50")) is not None
        and (p90 := stall.first_sentence_s.at("p90")) is not None
    ]
    if not both:
        return ""
    rows = [
        _row(target, place, percentile.value * 1e3, percentile)
        for target, *values in both
        for place, percentile in zip(("p50", "p90"), values, strict=True)
    ]
    times, name = max((p90.value / p50.value, target) for target, p50, p90 in both)
    hint = f"the steeper, the less the median says of a call; steepest: {name}, p90 is {times:.1f} × p50"
    drawn = _drawn(report, rows, ("p50", "p90"), "First sentence: p50 and p90 of each target")
    return section("First sentence: p50 and p90", [drawn], hint)


def _chunks(report: BenchReport) -> str:
    longest = {row.target: row for row in report.rows.lengths if row.figures["gap_s"].n}
    rows = [
        _row(target, statistic, max(value * 1e3, 1e-3))
        for target, row in longest.items()
        for statistic in _GAPS
        if (value := row.figures["gap_s"].value(statistic)) is not None
    ]
    if not rows:
        return ""
    hint = "gaps of the longest answers that were measured; a gap before a chunk of several tokens is no stall"
    drawn = _drawn(report, rows, _GAPS, "Gaps between chunks of the longest answers")
    return section("Chunks", [drawn], hint)


def _cold_and_warm(report: BenchReport) -> str:
    def lines() -> Iterator[list[Row]]:
        for name, size in dict.fromkeys((row.target, row.system_tokens) for row in report.rows.cache):
            states = {row.state: row for row in report.rows.cache if (row.target, row.system_tokens) == (name, size)}
            yield [
                _row(name, state, percentile.value * 1e3, percentile, f"{name}, {size:,}")
                for state in CACHE_TURNS
                if state in states and (percentile := states[state].first_token_s.at("p50")) is not None
            ]

    rows = [row for line in lines() if len(line) > 1 for row in line]
    if not rows:
        return ""
    alternative = "First token after a system prompt that is new, repeated, and at later turns"
    hint = "a line for each size of the system prompt; whether the cache answered is in the table below"
    drawn = _drawn(report, rows, list(CACHE_TURNS), alternative)
    return section("Prefix cache: cold against warm, first token p50", [drawn], hint)


def _goodput(report: BenchReport) -> str:
    known = [
        (row.target, row.level, row.goodput)
        for row in report.rows.load
        if row.kind == "closed" and row.goodput is not None
    ]
    if not known:
        return ""
    rows = [
        {**_row(name, f"{level:g}", rate.value), "lower": rate.lower, "upper": rate.upper}
        for name, level, rate in known
    ]
    places = [f"{level:g}" for level in sorted({level for _, level, _ in known})]
    drawn = _drawn(report, rows, places, "Goodput over concurrency", "good answers/s")
    hint = f"good: first token within {declared(report.plan.within_s)}; over callers at the same time, by batch means"
    return section("Goodput over concurrency", [drawn], hint)


def _tables(report: BenchReport) -> str:
    shown = [(title, table(title, headings, rows)) for title, headings, rows in tables(report) if rows]
    # The ones that everybody asks for are open, the others when somebody does.
    parts = [f"<h3>{prose(title)}</h3>{body}" for title, body in shown[:3]]
    parts += [folded(title, body) for title, body in shown[3:]]
    return section(
        "Every figure", parts, "with 95 % intervals; a dash for a side that the number of samples does not bound"
    )
