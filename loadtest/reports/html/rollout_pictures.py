"""The pictures of a rollout's report: stages on a line, bounds that close over time, and both cohorts' curves. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from loadtest.reports.html.svg import (
    LinearScale,
    Point,
    Size,
    circle,
    line,
    picture,
    polyline,
    rect,
    text,
    ticks,
)
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_MS, NS_PER_S, declared_percent, in_milliseconds
from telemetry.rollout.plan import Decision, Stage
from telemetry.rollout.progress import Funnel, FunnelPoint

# A funnel shows what happens around its limit; wider bounds run out of the picture.
_LIMITS_SHOWN: Final = 3.0
_DECISIONS: Final[dict[Decision, str]] = {"promote": "met", "hold": "open", "roll_back": "missed"}
_CURVE_POINTS: Final = 200
_SHOWN_SHARE: Final = 0.995


@dataclass(frozen=True, slots=True)
class CohortCurve:
    """Voice-to-voice of a cohort's turns in order, in ns; `turns` counts those that got no answer too."""

    name: str
    values_ns: tuple[float, ...]
    turns: int


def stages(plan_stages: Sequence[Stage], here: str, decision: Decision | None, size: Size) -> str:
    """The stages on a line: those behind, the one where the rollout is with its verdict, and those to come."""
    names = [stage.name for stage in plan_stages]
    position = names.index(here)
    left, right = (60.0, size.width - 60.0) if len(names) > 1 else (size.width / 2, size.width / 2)
    x = LinearScale(0.0, max(1.0, len(names) - 1.0), left, right)
    parts = [line((left, 34.0), (right, 34.0), "axis")]
    for number, stage in enumerate(plan_stages):
        at = x(float(number))
        css = "stage-done" if number < position else "stage-open"
        if number == position:
            css = f"stage-{'open' if decision is None else _DECISIONS[decision]}"
        parts.append(circle((at, 34.0), 9.0 if number == position else 7.0, f"stage {css}"))
        anchor = "middle"
        parts.append(text((at, 14.0), declared_percent(stage.share), "label strong", anchor))
        parts.append(text((at, 62.0), stage.name, "label strong" if number == position else "label soft", anchor))
    return picture(size, 70.0, parts, f"Stages: {', '.join(names)}; the rollout is at {here}")


def funnel(name: str, of: Funnel, size: Size) -> str:
    """The bounds of a check over time, against its limit and, where they are of a difference, against zero; below, what
    was decided at each look."""
    left, right, top, height = 92.0, size.width - 10.0, 8.0, 150.0
    looks, limit = of.points, of.limit or 0.0
    is_share = of.unit == "share"
    highest = min(1.0, _LIMITS_SHOWN * limit) if is_share else _LIMITS_SHOWN * limit
    lowest = 0.0 if is_share else -highest
    x = LinearScale(
        float(looks[0].at_unix_ns), float(max(looks[-1].at_unix_ns, looks[0].at_unix_ns + NS_PER_S)), left, right
    )
    y = LinearScale(lowest, highest, top + height, top)

    def place(at_unix_ns: int, value: float) -> Point:
        return x(float(at_unix_ns)), y(max(lowest, min(highest, value)))

    parts: list[str] = []
    for value in (each * limit for each in (-2, -1, 0, 1, 2) if lowest <= each * limit <= highest):
        css = "threshold" if value == limit else "zero" if value == 0 else "grid"
        parts.append(line((left, y(value)), (right, y(value)), css))
        parts.append(text((left - 6, y(value) + 4), of.text(value) if value else "0", "label soft", "end"))
    parts.append(text((right, y(limit) - 5), of.limit_text, "label halo threshold-label", "end"))
    for run in _runs(looks):
        upper = [place(at, high) for at, _, _, high in run]
        lower = [place(at, low) for at, low, _, _ in run]
        shape = " ".join(f"{px:.1f},{py:.1f}" for px, py in [*upper, *reversed(lower)])
        parts.append(f'<polygon class="funnel" points="{shape}"/>')
        parts.append(polyline([place(at, middle) for at, _, middle, _ in run], "curve candidate"))
    for stage, begin in _beginnings(looks):
        parts.append(line((x(float(begin)), top), (x(float(begin)), top + height + 14), "axis"))
        parts.append(text((x(float(begin)) + 4, top + height - 6), stage, "label halo soft"))
    for number, look in enumerate(looks):
        begin = x(float(look.at_unix_ns))
        end = x(float(looks[number + 1].at_unix_ns)) if number + 1 < len(looks) else begin + 4
        title = f"{clock_time(look.at_unix_ns)}: {look.decision.replace('_', ' ')}"
        css = f"decision-{_DECISIONS[look.decision]}"
        parts.append(rect((begin, top + height + 4), max(1.5, end - begin), 10.0, css, title))
    bottom = top + height + 30
    parts.append(text((left, bottom), clock_time(looks[0].at_unix_ns), "label soft"))
    parts.append(text((right, bottom), clock_time(looks[-1].at_unix_ns), "label soft", "end"))
    return picture(size, bottom + 8, parts, f"Bounds of {name} over time; the table has the last ones")


def curves(candidate: CohortCurve, control: CohortCurve, size: Size) -> str:
    """The share of turns answered within a time, of both cohorts; a turn without an answer never is."""
    left, right, top, height = 48.0, size.width - 10.0, 14.0, 190.0
    high = max(_at_share(each, _SHOWN_SHARE) for each in (candidate, control))
    x, y = LinearScale(0.0, high, left, right), LinearScale(0.0, 1.0, top + height, top)
    parts: list[str] = []
    for share in (0.0, 0.25, 0.5, 0.75, 0.95):
        parts.append(line((left, y(share)), (right, y(share)), "zero" if share == 0.95 else "grid"))
        parts.append(text((left - 6, y(share) + 4), declared_percent(share), "label soft", "end"))
    parts += [
        text((x(value * NS_PER_MS), top + height + 16), formatting.number(value), "label soft", "middle")
        for value in ticks(0.0, in_milliseconds(high), 4 if size.is_narrow else 9)
    ]
    for css, each in (("control", control), ("candidate", candidate)):
        step = max(1, len(each.values_ns) // _CURVE_POINTS)
        numbers = [*range(0, len(each.values_ns), step), len(each.values_ns) - 1]
        points = [
            (x(each.values_ns[number]), y((number + 1) / each.turns))
            for number in numbers
            if each.values_ns[number] <= high
        ]
        parts.append(polyline(points, f"curve {css}"))
    parts.append(text((right, top + height + 32), "ms", "label soft", "end"))
    label = f"Cumulative curves of voice to voice: {candidate.name} and {control.name}"
    return picture(size, top + height + 38, parts, label)


def clock_time(unix_ns: int) -> str:
    """A moment on the axis of time, in UTC."""
    return datetime.fromtimestamp(unix_ns / NS_PER_S, UTC).strftime("%m-%d %H:%M:%S")


def _runs(looks: Sequence[FunnelPoint]) -> list[list[tuple[int, float, float, float]]]:
    """Looks with bounds, parted where the stage changes or nothing was comparable."""
    runs: list[list[tuple[int, float, float, float]]] = [[]]
    stage = ""
    for look in looks:
        if look.stage != stage or look.lower is None or look.estimate is None or look.upper is None:
            stage = look.stage
            runs.append([])
        if look.lower is not None and look.estimate is not None and look.upper is not None:
            runs[-1].append((look.at_unix_ns, look.lower, look.estimate, look.upper))
    return [run for run in runs if run]


def _beginnings(looks: Sequence[FunnelPoint]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for look in looks:
        if not found or found[-1][0] != look.stage:
            found.append((look.stage, look.at_unix_ns))
    return found


def _at_share(curve: CohortCurve, share: float) -> float:
    return curve.values_ns[min(len(curve.values_ns) - 1, int(share * len(curve.values_ns)))]
