"""What a search for capacity found, rung by rung: the terminal's table, the sentence and the JSON object. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadtest.exit_codes import ExitCode
from loadtest.reports import wording
from telemetry.slo import Verdict
from telemetry.stats import quantile_interval, shown_percentile, wilson_interval

Standing = Literal["met", "missed", "generator-limited", "refused", "too few"]
Stopped = Literal["generator", "interrupted"]
SCHEMA_VERSION: Final = 1
BAR_WIDTH: Final = 10
BEND_MIN_RUNGS: Final = 4
BEND_MIN_DISTANCE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One number of callers, measured. `voice_to_voice_ns` are the raw values of its valid turns after the ramp.

    `sure` is False where the share of good turns is so near a target that its interval (Wilson, 95 %) holds both
    answers after the longest measurement allowed: the rung is then judged by the share itself, and says so.
    """

    callers: int
    run_ids: tuple[str, ...]
    turns: int
    invalid: int
    ok_share: float | None
    voice_to_voice_ns: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    standing: Standing
    sure: bool
    measured_s: float
    reason: str | None = None

    @property
    def p50_ns(self) -> float | None:
        """Median voice-to-voice."""
        return shown_percentile(self.voice_to_voice_ns, "p50")

    @property
    def p95_ns(self) -> float | None:
        """p95 voice-to-voice, None from fewer than 20 turns."""
        return shown_percentile(self.voice_to_voice_ns, "p95")

    @property
    def p99_ns(self) -> float | None:
        """p99 voice-to-voice, None from fewer than 100 turns."""
        return shown_percentile(self.voice_to_voice_ns, "p99")

    @property
    def p95_interval_ns(self) -> tuple[float, float] | None:
        """Where the true p95 lies with 95 % confidence, whatever the distribution; None where n cannot say it."""
        return quantile_interval(self.voice_to_voice_ns, 0.95)

    @property
    def met(self) -> bool | None:
        """Whether the endpoint served so many callers; None where the rung says nothing of the endpoint."""
        return {"met": True, "missed": False, "refused": False}.get(self.standing)


def stand(verdicts: Sequence[Verdict]) -> tuple[Standing, bool]:
    """The standing by the objectives, and whether it is sure.

    An objective that this wire cannot show is left out; one with too few turns leaves the rung "too few". A miss is
    sure when the whole interval of one objective lies below its target; a pass when each interval lies above its
    target, or not one turn was bad.
    """
    shown = [verdict for verdict in verdicts if verdict.reason is None or not verdict.reason.startswith("not obs")]
    if not shown or any(verdict.met is None for verdict in shown):
        return "too few", False
    intervals = [(verdict, wilson_interval(verdict.good, verdict.eligible)) for verdict in shown]
    if any(interval is not None and interval[1] < verdict.target for verdict, interval in intervals):
        return "missed", True
    above = all(
        verdict.good == verdict.eligible or (interval is not None and interval[0] >= verdict.target)
        for verdict, interval in intervals
    )
    return ("met" if all(verdict.met for verdict in shown) else "missed"), above


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The outcome of a search. `met` callers are served within the objectives, `missed` are not; None is not known."""

    target: str
    rungs: tuple[Rung, ...]
    met: int | None
    missed: int | None
    most: int
    stopped: Stopped | None = None
    reason: str | None = None
    calibration: str | None = None  # how well this machine measures at the highest rung

    @property
    def exit_code(self) -> ExitCode:
        """How the command ends."""
        if self.stopped == "interrupted":
            return ExitCode.INTERRUPTED
        if self.stopped == "generator":
            return ExitCode.GENERATOR_LIMITED
        return ExitCode.OBJECTIVE_MISSED if self.met is None else ExitCode.OK

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        served = f"the endpoint serves at least {_callers(self.met)}" if self.met is not None else "no rung was met"
        if self.stopped == "interrupted":
            return f"interrupted: {served}, as far as it was measured"
        if self.stopped == "generator":
            return f"the generator was the limit, not the endpoint: {served} ({self.reason})"
        if self.met is None:
            what = _callers(self.missed) if self.missed is not None else "any callers"
            return f"the objectives are not met with {what}" + (f" ({self.reason})" if self.reason else "")
        unsettled = f" ({self.reason})" if self.reason else ""
        if self.missed is None:
            return served + (unsettled or ", the most that were asked for")
        return f"the endpoint serves {_callers(self.met)} within its objectives, and {self.missed} no more{unsettled}"

    @property
    def bend_callers(self) -> int | None:
        """Where the p95 begins to run away: the rung farthest below the straight line from the first to the last.

        That is the knee by greatest distance from the chord, on axes scaled to 1; None with fewer than four rungs, or
        where the curve has no bend (a distance under 0.1).
        """
        points = sorted((rung.callers, rung.p95_ns) for rung in self.rungs if rung.p95_ns is not None)
        if len(points) < BEND_MIN_RUNGS or points[-1][1] <= points[0][1]:
            return None
        (first, low), (last, high) = points[0], points[-1]
        distances = [((at - first) / (last - first) - (p95 - low) / (high - low), at) for at, p95 in points]
        distance, at = max(distances)
        return at if distance >= BEND_MIN_DISTANCE else None


def _callers(count: int | None) -> str:
    return "1 caller" if count == 1 else f"{wording.number(count or 0)} callers"


def rungs_table(rungs: Sequence[Rung]) -> Table:
    """The rungs by callers, each with how well it was measured and a bar for its p95."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("callers", justify="right", no_wrap=True)
    for name in ("turns", "p50", "p95", "of p95", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("objectives", overflow="fold")
    highest = max((rung.p95_ns for rung in rungs if rung.p95_ns is not None), default=0.0)
    for rung in sorted(rungs, key=lambda each: each.callers):
        interval = rung.p95_interval_ns
        table.add_row(
            wording.number(rung.callers),
            wording.number(rung.turns),
            _figure(rung.p50_ns),
            _figure(rung.p95_ns),
            "–" if interval is None else f"{_figure(interval[0])} … {_figure(interval[1])}",
            _figure(rung.p99_ns),
            _bar(rung.p95_ns, highest),
            _standing(rung),
        )
    return table


def _figure(value_ns: float | None) -> str:
    return wording.TOO_FEW if value_ns is None else wording.milliseconds(value_ns)


def _bar(value_ns: float | None, highest_ns: float) -> str:
    return "" if value_ns is None or highest_ns <= 0 else "█" * max(1, round(BAR_WIDTH * value_ns / highest_ns))


def _standing(rung: Rung) -> Text:
    style = {"met": "green", "missed": "red", "refused": "red"}.get(rung.standing, "yellow")
    missed = [verdict.name for verdict in rung.verdicts if verdict.met is False]
    words: str = rung.standing
    if rung.standing == "missed" and missed:
        words = f"missed: {', '.join(missed)}"
    if rung.reason is not None:
        words += f" ({rung.reason})"
    elif not rung.sure and rung.met is not None:
        words += " (close: the interval holds both answers)"
    return Text(words, style=style)


def capacity_view(found: Capacity) -> RenderableType:
    """Everything the command prints at its end."""
    style = "bold green" if found.exit_code is ExitCode.OK else "bold yellow"
    lines: list[RenderableType] = [rungs_table(found.rungs), Text(), Text(found.sentence, style=style)]
    if found.bend_callers is not None:
        lines.append(Text(f"the curve of the p95 bends at {_callers(found.bend_callers)}", style="dim"))
    if found.calibration is not None:
        lines.append(Text(found.calibration, style="dim"))
    return Group(*lines)


def capacity_object(found: Capacity) -> dict[str, Any]:
    """The search as one JSON-ready object; durations are seconds, null is not known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "target": found.target,
        "callers_met": found.met,
        "callers_missed": found.missed,
        "callers_bend": found.bend_callers,
        "stopped_by": found.stopped,
        "sentence": found.sentence,
        "calibration": found.calibration,
        "exit_code": int(found.exit_code),
        "rungs": [_rung_object(rung) for rung in sorted(found.rungs, key=lambda each: each.callers)],
    }


def _rung_object(rung: Rung) -> dict[str, Any]:
    interval = rung.p95_interval_ns
    return {
        "callers": rung.callers,
        "run_ids": list(rung.run_ids),
        "measured_s": rung.measured_s,
        "turns": rung.turns,
        "invalid": rung.invalid,
        "ok_share": rung.ok_share,
        "voice_to_voice": {
            "n": len(rung.voice_to_voice_ns),
            "p50_s": _seconds(rung.p50_ns),
            "p95_s": _seconds(rung.p95_ns),
            "p95_interval_s": None if interval is None else [interval[0] / 1e9, interval[1] / 1e9],
            "p99_s": _seconds(rung.p99_ns),
        },
        "standing": rung.standing,
        "sure": rung.sure,
        "reason": rung.reason,
        "objectives": [
            {"name": each.name, "met": each.met, "good": each.good, "eligible": each.eligible, "target": each.target}
            for each in rung.verdicts
        ],
    }


def _seconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e9
