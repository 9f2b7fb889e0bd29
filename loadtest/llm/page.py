"""A bench as one HTML file: the stall and the verdict first, then pictures, then every table. Pure.

It loads nothing, has no script, and reads on a phone, on paper, in light and in dark. Foreign text is escaped.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from loadtest.exit_codes import ExitCode
from loadtest.llm.figures import Percentile
from loadtest.llm.plan import CACHE_TURNS
from loadtest.llm.report import BenchReport, sentences, tables
from loadtest.llm.voice import declared
from loadtest.reports.html.elements import folded, legend, prose, section, table
from loadtest.reports.html.svg import (
    NARROW,
    WIDE,
    LinearScale,
    Point,
    Size,
    circle,
    line,
    picture,
    polyline,
    text,
    text_of,
    ticks,
)

_NO_NETWORK: Final = "default-src 'none'; style-src 'unsafe-inline'"
# Targets differ by color and by dash, so that no picture hangs on color alone.
_COLORS: Final = ("llm", "asr", "tts", "playing", "speech", "unexplained")
_DASHES: Final = ("none", "7 3", "2 3", "9 3 2 3")
_HEIGHT: Final = 300.0
_TOP: Final = 16.0
_BOTTOM: Final = 36.0
_LEFT: Final = 62.0
_RIGHT: Final = 24.0
_LAST_NAMES: Final = {ExitCode.OK: "met", ExitCode.OBJECTIVE_MISSED: "missed", ExitCode.UNREACHABLE: "missed"}


@dataclass(frozen=True, slots=True)
class LogScale:
    """Maps values from `low` to `high`, all above 0, to places by their logarithms."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        span = math.log(self.high / self.low) or 1.0
        return self.begin + math.log(value / self.low) / span * (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class GraphLine:
    """One line of a picture: points, each with its interval upward, and how it is drawn."""

    name: str
    css: str
    points: Sequence[tuple[float, float]]
    whiskers: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A picture of curves; a logarithmic axis needs values above 0. `places` are the labels of x, by their value."""

    label: str
    unit: str
    curves: Sequence[GraphLine]
    places: Sequence[tuple[float, str]]
    is_log_x: bool = False
    is_log_y: bool = True

    def draw(self) -> list[str]:
        """For wide and for narrow screens."""
        return [self._draw(size) for size in (WIDE, NARROW)]

    def _draw(self, size: Size) -> str:
        ys = [y for curve in self.curves for _, y in curve.points]
        ys += [y for curve in self.curves for whisker in curve.whiskers for y in whisker[1:]]
        low, high = (0.9 * min(ys), 1.1 * max(ys)) if self.is_log_y else (0.0, 1.1 * max(ys))
        high = max(high, low * 1.2, 1e-6)
        x_of, y_of = self._x(size), self._y(low, high)
        parts: list[str] = []
        for value in log_ticks(low, high) if self.is_log_y else ticks(low, high, 6):
            parts.append(line((_LEFT, y_of(value)), (size.width - _RIGHT, y_of(value)), "grid"))
            parts.append(text((_LEFT - 6, y_of(value) + 4), f"{value:,.6g}", "soft", "end"))
        for place, words in self.places:
            parts.append(line((x_of(place), _TOP), (x_of(place), _HEIGHT - _BOTTOM), "grid"))
            parts.append(text((x_of(place), _HEIGHT - _BOTTOM + 17), words, "soft", "middle"))
        parts.append(text((4, _TOP - 4), self.unit, "soft"))
        for curve in self.curves:
            for x, from_y, to_y in curve.whiskers:
                parts.append(line((x_of(x), y_of(from_y)), (x_of(x), y_of(to_y)), f"whisker {curve.css}"))
            points: list[Point] = [(x_of(x), y_of(y)) for x, y in curve.points]
            parts.append(polyline(points, f"curve {curve.css}"))
            parts += [circle(point, 3, f"point {curve.css}") for point in points]
        return picture(size, _HEIGHT, parts, self.label)

    def _x(self, size: Size) -> LinearScale | LogScale:
        xs = [place for place, _ in self.places]
        scale = LogScale if self.is_log_x else LinearScale
        return scale(min(xs), max(xs), _LEFT + 14, size.width - _RIGHT - 14)

    def _y(self, low: float, high: float) -> LinearScale | LogScale:
        return (LogScale if self.is_log_y else LinearScale)(low, high, _HEIGHT - _BOTTOM, _TOP)


def log_ticks(low: float, high: float) -> list[float]:
    """The 1, 2 and 5 of each power of ten between two values; every one of them where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [factor * 10.0**power for power in powers for factor in (1, 2, 5) if low <= factor * 10.0**power <= high]
    return found if len(found) > 1 else ticks(low, high, 4)


def as_html(report: BenchReport) -> str:
    """The whole file."""
    style = files("loadtest.reports.html").joinpath("style.css").read_text(encoding="utf-8")
    names = report.found.targets
    title = f"Language models for a voice: {', '.join(names)}"
    body = "\n".join(part for part in (_head(report, title), *_pictures(report), _tables(report)) if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_NETWORK}">\n'
        f"<title>{text_of(title)}</title>\n<style>\n{style}{_style(len(names))}</style>\n</head>\n<body>\n"
        f"<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _style(targets: int) -> str:
    rules = ["svg .whisker { stroke-width: 5; stroke-opacity: .3; stroke-dasharray: none; }\n"]
    for place in range(targets):
        color, dash = _COLORS[place % len(_COLORS)], _DASHES[place // len(_COLORS) % len(_DASHES)]
        rules.append(
            f"svg .t{place} {{ stroke: var(--{color}); stroke-dasharray: {dash}; }} "
            f"svg .point.t{place} {{ fill: var(--{color}); }} .key.t{place} {{ background: var(--{color}); }}\n"
        )
    return "".join([*rules, "svg .curve.p90-of { stroke-width: 1.4; }\n"])


def _head(report: BenchReport, title: str) -> str:
    first, *others = report.headlines
    css = _LAST_NAMES.get(report.exit_code, "undecided") if report.verdicts else "undecided"
    others_shown = "".join(f"<p>{prose(each)}</p>" for each in others)
    below = "".join(f"<li>{prose(each)}</li>" for each in sentences(report))
    return (
        f'<header><p class="hint">voiceprobe llm · {prose(", ".join(report.plan.experiments))}</p>'
        f'<h1>{prose(title)}</h1><div class="verdict {css}"><p class="badge">{prose(first)}</p>{others_shown}</div>'
        f"<ul>{below}</ul></header>"
    )


def _keys(report: BenchReport) -> str:
    return legend((f"t{place}", name) for place, name in enumerate(report.found.targets))


def _ms(value: float) -> float:
    return value * 1e3


def _whiskers(of: Iterable[tuple[float, Percentile]]) -> list[tuple[float, float, float]]:
    """The intervals in ms; a side that n does not bound ends at the figure."""
    return [
        (
            x,
            _ms(each.value if each.lower is None else each.lower),
            _ms(each.value if each.upper is None else each.upper),
        )
        for x, each in of
    ]


def _pictures(report: BenchReport) -> list[str]:
    return [*_by_length(report), *_slope(report), *_chunks(report), *_cold_and_warm(report), *_goodput(report)]


def _by_length(report: BenchReport) -> list[str]:
    curves: list[GraphLine] = []
    for place, name in enumerate(report.found.targets):
        for statistic in ("p50", "p90"):
            known = [
                (float(row.tokens), each)
                for row in report.found.lengths
                if row.target == name and (each := row.figures["first_token_s"].at(statistic)) is not None
            ]
            if known:
                points = [(x, _ms(each.value)) for x, each in known]
                whiskers = _whiskers(known) if statistic == "p50" else []
                curves.append(GraphLine(name, f"t{place} {statistic}-of", points, whiskers))
    if not curves:
        return []
    graph = Graph(
        label="First token by output length, p50 and p90",
        unit="ms",
        curves=curves,
        places=[(float(tokens), f"{tokens:,}") for tokens in sorted(set(report.plan.lengths))],
        is_log_x=len(set(report.plan.lengths)) > 1,
    )
    hint = "both axes are logarithmic; of each target the lower line is p50 with its 95 % interval, the upper one p90"
    return [section("First token by output length (tokens)", [*graph.draw(), _keys(report)], hint)]


def _slope(report: BenchReport) -> list[str]:
    curves: list[GraphLine] = []
    for place, stall in enumerate(report.found.stalls):
        p50, p90 = (stall.first_sentence_s.at(name) for name in ("p50", "p90"))
        if p50 is not None and p90 is not None:
            points = [(0.0, _ms(p50.value)), (1.0, _ms(p90.value))]
            curves.append(GraphLine(stall.target, f"t{place}", points, _whiskers([(0.0, p50), (1.0, p90)])))
    if not curves:
        return []
    graph = Graph(
        label="First sentence: p50 and p90 of each target",
        unit="ms",
        curves=curves,
        places=[(0.0, "p50"), (1.0, "p90")],
    )
    steepest = max(curves, key=lambda curve: curve.points[1][1] / curve.points[0][1])
    times = steepest.points[1][1] / steepest.points[0][1]
    hint = f"the steeper, the less the median says of a call; steepest: {steepest.name}, p90 is {times:.1f} × p50"
    return [section("First sentence: p50 and p90", [*graph.draw(), _keys(report)], hint)]


def _chunks(report: BenchReport) -> list[str]:
    curves: list[GraphLine] = []
    names = ("p50", "p90", "p95", "p99")
    for place, name in enumerate(report.found.targets):
        rows = [row for row in report.found.lengths if row.target == name and row.figures["gap_s"].n]
        if rows:
            gaps = rows[-1].figures["gap_s"]
            known = [
                (float(at), max(_ms(value), 1e-3))
                for at, each in enumerate(names)
                if (value := gaps.value(each)) is not None
            ]
            curves.append(GraphLine(name, f"t{place}", known))
    if not curves:
        return []
    graph = Graph(
        label="Gaps between chunks of the longest answers",
        unit="ms",
        curves=curves,
        places=[(float(at), name) for at, name in enumerate(names)],
    )
    hint = "gaps of the longest answers that were measured; a gap before a chunk of several tokens is no stall"
    return [section("Chunks", [*graph.draw(), _keys(report)], hint)]


def _cold_and_warm(report: BenchReport) -> list[str]:
    curves: list[GraphLine] = []
    states = tuple(CACHE_TURNS)
    for place, name in enumerate(report.found.targets):
        for size in sorted({row.system_tokens for row in report.found.cache}):
            rows = {row.state: row for row in report.found.cache if (row.target, row.system_tokens) == (name, size)}
            known = [
                (float(at), each)
                for at, state in enumerate(states)
                if state in rows and (each := rows[state].first_token_s.at("p50")) is not None
            ]
            if len(known) > 1:
                curves.append(
                    GraphLine(
                        f"{name}, {size:,}", f"t{place}", [(x, _ms(each.value)) for x, each in known], _whiskers(known)
                    )
                )
    if not curves:
        return []
    graph = Graph(
        label="First token after a system prompt that is new, repeated, and at later turns",
        unit="ms",
        curves=curves,
        places=[(float(at), state) for at, state in enumerate(states)],
    )
    hint = "a line for each size of the system prompt; whether the cache answered is in the table below"
    return [section("Prefix cache: cold against warm, first token p50", [*graph.draw(), _keys(report)], hint)]


def _goodput(report: BenchReport) -> list[str]:
    curves: list[GraphLine] = []
    levels: set[float] = set()
    for place, name in enumerate(report.found.targets):
        rows = [row for row in report.found.load if row.target == name and row.kind == "closed"]
        known = [(row.level, row.goodput) for row in rows if row.goodput is not None]
        levels.update(level for level, _ in known)
        if known:
            whiskers = [(level, each.lower, each.upper) for level, each in known]
            curves.append(GraphLine(name, f"t{place}", [(level, each.value) for level, each in known], whiskers))
    if not curves:
        return []
    graph = Graph(
        label="Goodput over concurrency",
        unit="good answers/s",
        curves=curves,
        places=[(level, f"{level:g}") for level in sorted(levels)],
        is_log_x=len(levels) > 1,
        is_log_y=False,
    )
    hint = f"good: first token within {declared(report.plan.within_s)}; over callers at the same time, by batch means"
    return [section("Goodput over concurrency", [*graph.draw(), _keys(report)], hint)]


def _tables(report: BenchReport) -> str:
    shown = [(title, table(title, headings, rows)) for title, headings, rows in tables(report) if rows]
    # The ones that everybody asks for are open, the others when somebody does.
    parts = [f"<h3>{prose(title)}</h3>{body}" for title, body in shown[:3]]
    parts += [folded(title, body) for title, body in shown[3:]]
    return section(
        "Every figure", parts, "with 95 % intervals; a dash for a side that the number of samples does not bound"
    )
