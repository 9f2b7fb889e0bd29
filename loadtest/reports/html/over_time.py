"""Voice-to-voice over the time of a run, with the calls in flight below. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.reports.html.svg import LinearScale, Size, circle, line, picture, polyline, rect, text, ticks
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_S, in_milliseconds
from telemetry.model.stats import shown_percentile
from telemetry.store.questions.timelines import TimelinePoint

STATISTICS: Final = ("p50", "p95", "p99")
# A window has at least so many turns as its percentile needs; of more turns it has a part of them.
_FEWEST: Final = {"p50": 20, "p95": 20, "p99": 100}
_PARTS: Final = 12
_STRIP: Final = 44
# Few dots are large ones.
_RADII: Final = ((60, 3.4), (300, 2.6))
_TIME_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Curve:
    """One percentile over time: points of time (s since the begin) and value (ns), in runs without a gap."""

    name: str
    runs: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True, slots=True)
class OverTime:
    """What the picture shows, of a run that began at `began_unix_ns`. `dots` are single turns, None where a turn went
    unanswered; `threshold_ns` is the objective's."""

    curves: tuple[Curve, ...]
    dots: Sequence[tuple[float, float | None]]
    in_flight: Sequence[tuple[float, int]]
    threshold_ns: float | None
    window: str


def over_time(
    timeline: Sequence[TimelinePoint],
    dots: Sequence[tuple[int, float | None]],
    threshold_ns: float | None,
) -> OverTime:
    """Lay the run out: by windows that move over its turns while they are few, else by the store's slots of time."""
    begins = [each[0] for each in dots] or [point.start_unix_ns for point in timeline]
    zero = min([*begins, *(point.start_unix_ns for point in timeline)], default=0)
    in_flight = [
        ((point.start_unix_ns - zero) / NS_PER_S, point.calls_in_flight)
        for point in timeline
        if point.calls_in_flight is not None
    ]
    placed = [((at - zero) / NS_PER_S, value) for at, value in sorted(dots, key=lambda dot: dot[0])]
    if dots:
        answered = [(at, value) for at, value in placed if value is not None]
        size = max(_FEWEST["p50"], len(answered) // _PARTS)
        window = f"percentiles over windows of {formatting.turns(size)} that were answered"
        curves = tuple(Curve(name, _rolling(answered, name, max(size, _FEWEST[name]))) for name in STATISTICS)
    else:
        window = "percentiles by slots of time, of the turns that were answered"
        curves = tuple(Curve(name, _by_slots(timeline, name, zero)) for name in STATISTICS)
    return OverTime(tuple(curve for curve in curves if curve.runs), placed, in_flight, threshold_ns, window)


def _rolling(
    answered: Sequence[tuple[float, float]], name: str, size: int
) -> tuple[tuple[tuple[float, float], ...], ...]:
    points: list[tuple[float, float]] = []
    step = max(1, size // 4)
    last = len(answered) - size
    for begin in sorted({*range(0, last + 1, step), last} if last >= 0 else ()):
        window = answered[begin : begin + size]
        value = shown_percentile((each for _, each in window), name)
        if value is not None:
            points.append(((window[0][0] + window[-1][0]) / 2, value))
    return (tuple(points),) if points else ()


def _by_slots(timeline: Sequence[TimelinePoint], name: str, zero: int) -> tuple[tuple[tuple[float, float], ...], ...]:
    runs: list[list[tuple[float, float]]] = [[]]
    for point in timeline:
        value: float | None = getattr(point, name)
        if value is None:
            runs.append([])
        else:
            runs[-1].append(((point.start_unix_ns - zero) / NS_PER_S, value))
    return tuple(tuple(run) for run in runs if run)


def draw(shown: OverTime, size: Size) -> str:
    """The picture. Time goes from the begin of the run, latency from 0."""
    left, right, top, height = 46.0, size.width - 34.0, 22.0, 240.0 if size.is_narrow else 270.0
    times = [at for at, _ in shown.dots] + [at for curve in shown.curves for run in curve.runs for at, _ in run]
    times += [at for at, _ in shown.in_flight]
    values = [value for _, value in shown.dots if value is not None]
    values += [value for curve in shown.curves for run in curve.runs for _, value in run]
    values += [shown.threshold_ns] if shown.threshold_ns is not None else []
    x = LinearScale(0.0, max(times, default=1.0) or 1.0, left, right)
    y = LinearScale(min(0.0, *values) if values else 0.0, (max(values, default=1e9) or 1e9) * 1.06, top + height, top)
    parts = [*_axes(x, y, size), *_dots(shown, x, y, top)]
    if shown.threshold_ns is not None:
        at = y(shown.threshold_ns)
        parts.append(line((left, at), (right, at), "threshold"))
        words = f"objective {formatting.milliseconds(shown.threshold_ns)}"
        parts.append(text((left + 4, at - 5), words, "label halo threshold-label"))
    taken: list[float] = []
    for curve in shown.curves:
        parts += [polyline([(x(at), y(value)) for at, value in run], f"curve {curve.name}") for run in curve.runs]
        end = curve.runs[-1][-1]
        at = _free(y(end[1]) + 4, taken)
        parts.append(text((min(x(end[0]) + 5, right + 3), at), curve.name, f"label halo name-{curve.name}"))
    total = top + height + 34
    if shown.in_flight:
        parts += _strip(shown.in_flight, x, total)
        total += _STRIP + 18
    return picture(size, total, parts, "Voice to voice over time; the table below has its figures")


def time_ticks(until_s: float, most: int) -> list[float]:
    """At most `most` moments from 0 on that people count time by."""
    step = next((each for each in _TIME_STEPS_S if until_s / each < most), max(1, round(until_s / most)))
    return [float(index * step) for index in range(int(until_s // step) + 1)]


def _free(at: float, taken: list[float]) -> float:
    """A height for a label that no other label has."""
    while any(abs(at - other) < 13 for other in taken):
        at -= 13
    taken.append(at)
    return at


def _axes(x: LinearScale, y: LinearScale, size: Size) -> list[str]:
    parts = [text((x.begin, y.end - 9), "ms", "label soft", "end")]
    for value in ticks(in_milliseconds(y.low), in_milliseconds(y.high), 6):
        at = y(value * formatting.NS_PER_MS)
        parts.append(line((x.begin, at), (x.end, at), "grid"))
        parts.append(text((x.begin - 5, at + 4), formatting.number(value), "label soft", "end"))
    for value in time_ticks(x.high, 4 if size.is_narrow else 9):
        parts.append(line((x(value), y.begin), (x(value), y.begin + 4), "axis"))
        parts.append(text((x(value), y.begin + 17), formatting.clock(value), "label soft", "middle"))
    parts.append(line((x.begin, y(0.0)), (x.end, y(0.0)), "axis"))
    return parts


def _dots(shown: OverTime, x: LinearScale, y: LinearScale, top: float) -> list[str]:
    parts: list[str] = []
    radius = next((radius for most, radius in _RADII if len(shown.dots) <= most), 1.8)
    for at, value in shown.dots:
        if value is None:
            here = x(at)
            parts.append(line((here - 3, top - 3), (here + 3, top + 3), "unanswered"))
            parts.append(line((here - 3, top + 3), (here + 3, top - 3), "unanswered"))
        else:
            parts.append(circle((x(at), y(value)), radius, "dot"))
    return parts


def _strip(in_flight: Sequence[tuple[float, int]], x: LinearScale, top: float) -> list[str]:
    most = max((calls for _, calls in in_flight), default=1) or 1
    y = LinearScale(0.0, float(most), top + _STRIP, top + 6)
    width = max(1.0, (x.end - x.begin) / max(1, len(in_flight)) - 1)
    parts = [
        rect((min(x(at), x.end - width), y(calls)), width, y(0.0) - y(calls), "calls")
        for at, calls in in_flight
        if calls
    ]
    parts.append(line((x.begin, y(0.0)), (x.end, y(0.0)), "axis"))
    parts.append(text((x.begin - 5, y(float(most)) + 8), formatting.number(most), "label soft", "end"))
    return [*parts, text((x.begin, top + _STRIP + 14), "calls in flight", "label soft")]
