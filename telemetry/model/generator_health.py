"""The health of the load generator: one row per figure, with everything that is shown of it; and why turns are invalid.

A row gives the OTel gauge that each process sends, how the store combines processes and turns, the key in the JSON
summary, and where terminal and page show it. A new figure is a row here, and a value in the worker's report.

A turn is invalid where it was not said as recorded, or where a fault of ours spoiled it. How wide the bounds of a
figure are (telemetry.model.bounds) never makes it so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from telemetry.model import formatting
from telemetry.model.formatting import NOT_REPORTED, number

GAUGE_PREFIX: Final = "voice.generator."
# Beyond what a jitter buffer absorbs. A turn is invalid if one of its frames is later: from the first speech sample
# until the answer is heard.
FRAME_LATENESS_LIMIT_NS: Final = 60_000_000

Unit = Literal["ns", "bytes", "frames", "calls", "share of a core"]
_OTEL_UNITS: Final = {"ns": "ns", "bytes": "By", "frames": "{frame}", "calls": "{call}", "share of a core": "1"}
# How values of one process, and then of all, become one: the largest; the p99 over turns; the sum over processes of
# what each has counted; the one farthest from 0, with its sign; the newest.
Combine = Literal["max", "p99", "sum", "farthest", "newest"]
Number = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFigure:
    """One figure of the generator's health. `name` is its name in the store's answer; the unit is in it."""

    name: str
    label: str  # as terminal and page write it before the figure
    unit: Unit
    definition: str
    combine: Combine
    gauge: str | None = None  # what each process reports of itself, by its name behind GAUGE_PREFIX
    turn_column: str | None = None  # what each turn carries as evidence
    key: str | None = None  # in JSON, where it is not the name with its unit in seconds
    terminal_row: Literal["pacing", "receiving", "sockets", "process"] | None = None
    page_line: Literal["generator", "its process"] | None = None
    chart_heading: str | None = None  # above its chart over time, where a page draws one
    limit_ns: int | None = None  # beyond it turns are invalid, as `limit_rule` says with the limit in place of {}
    limit_rule: str = ""
    in_summary: bool = True  # False: a gauge for other questions than the summary's
    hidden_when_zero: bool = False

    @property
    def json_key(self) -> str:
        """The key in the JSON summary, where durations are seconds."""
        return self.key or (f"{self.name.removesuffix('_ns')}_s" if self.unit == "ns" else self.name)

    @property
    def json_type(self) -> str:
        """The type of the value in the JSON summary."""
        return "number" if self.unit in ("ns", "share of a core") else "integer"

    @property
    def metric(self) -> str | None:
        """The name of the OTel gauge."""
        return None if self.gauge is None else GAUGE_PREFIX + self.gauge

    @property
    def limit_sentence(self) -> str:
        """The rule of the limit, for people; empty where there is none."""
        return "" if self.limit_ns is None else self.limit_rule.format(formatting.declared_milliseconds(self.limit_ns))

    @property
    def otel_unit(self) -> str:
        """The unit of the OTel gauge, in UCUM."""
        return _OTEL_UNITS[self.unit]

    def merge(self, before: Number, now: Number) -> Number:
        """The value of one process for two intervals that are read at once."""
        match self.combine:
            case "newest":
                return now
            case "farthest":
                return now if abs(now) >= abs(before) else before
            case _:
                return max(before, now)

    def json_value(self, value: Number | None) -> Number | None:
        """The value as the JSON summary has it."""
        return value / formatting.NS_PER_S if value is not None and self.unit == "ns" else value

    def describe(self, value: Number | None, *, is_estimate: bool = False, too_few: int | None = None) -> str:
        """The figure with its label, for people: `loop lag ≤ 2.0 ms`, `pacing p99 ≈ 1.2 ms`. `too_few` is the number
        of turns that report it, where those are too few for its percentile."""
        if value is None:
            return f"{self.label} {NOT_REPORTED if too_few is None else f'too few ({formatting.number(too_few)})'}"
        return f"{self.label} {formatting.estimate_if(is_estimate, self._text(value))}"

    def _text(self, value: Number) -> str:
        if self.unit == "share of a core":
            return f"≤ {formatting.percent(value)} of a core"
        if self.combine == "farthest":
            return formatting.signed_milliseconds(value)
        text = formatting.milliseconds(value) if self.unit == "ns" else formatting.number(value)
        bound = "≤ " if self.combine == "max" else ""
        return f"{bound}{text} bytes" if self.unit == "bytes" else f"{bound}{text}"


_ALL: Final[tuple[HealthFigure, ...]] = (
    HealthFigure(
        name="frame_lateness_p99_ns",
        label="pacing p99",
        unit="ns",
        definition="Lateness of audio frames: p99 over turns of the worst frame of each.",
        combine="p99",
        turn_column="frame_lateness_worst_ns",
        key="pacing_p99_s",
        terminal_row="pacing",
        page_line="generator",
    ),
    HealthFigure(
        name="frame_lateness_worst_ns",
        label="pacing",
        unit="ns",
        definition="Worst lateness of an audio frame.",
        combine="max",
        gauge="frame_lateness_worst_ns",
        chart_heading="Pacing: worst lateness of a frame",
        limit_ns=FRAME_LATENESS_LIMIT_NS,
        limit_rule="A turn is invalid if a frame is more than {} late between the first speech and the answer.",
        turn_column="frame_lateness_worst_ns",
        key="pacing_worst_s",
        terminal_row="pacing",
    ),
    HealthFigure(
        name="loop_lag_worst_ns",
        label="loop lag",
        unit="ns",
        definition="Longest delay of the event loop.",
        combine="max",
        gauge="loop_lag_worst_ns",
        chart_heading="Event loop lag",
        turn_column="loop_lag_worst_ns",
        terminal_row="pacing",
        page_line="generator",
    ),
    HealthFigure(
        name="receive_lag_worst_ns",
        label="receive lag",
        unit="ns",
        definition="Longest time from the kernel receiving a chunk to the program seeing it.",
        combine="max",
        turn_column="receive_lag_worst_ns",
        terminal_row="receiving",
    ),
    HealthFigure(
        name="arrival_uncertainty_worst_ns",
        label="arrival uncertainty",
        unit="ns",
        definition="Longest time that a chunk can have come before its stamp: user space gave it, or several share it.",
        combine="max",
        turn_column="arrival_uncertainty_worst_ns",
        terminal_row="receiving",
        hidden_when_zero=True,
    ),
    HealthFigure(
        name="drift_worst_ns",
        label="drift",
        unit="ns",
        definition="How much an utterance was stretched or squeezed at the worst.",
        combine="max",
        turn_column="drift_worst_ns",
    ),
    HealthFigure(
        name="start_late_worst_ns",
        label="start delay",
        unit="ns",
        definition="Longest delay of a call after its intended start.",
        combine="max",
        turn_column="start_late_ns",
    ),
    HealthFigure(
        name="cpu_ratio_worst",
        label="CPU",
        unit="share of a core",
        definition="CPU time of a process, as a share of one core; over all turns, of the busiest.",
        combine="max",
        gauge="cpu_ratio",
        chart_heading="CPU of each process",
        terminal_row="process",
        page_line="generator",
    ),
    HealthFigure(
        name="gc_pause_worst_ns",
        label="GC pauses",
        unit="ns",
        definition="Longest pause for the garbage collector.",
        combine="max",
        gauge="gc_pause_worst_ns",
        chart_heading="Garbage collector pauses",
        terminal_row="process",
        page_line="its process",
    ),
    HealthFigure(
        name="unsent_worst_bytes",
        label="socket backlog",
        unit="bytes",
        definition="Most bytes that one caller had waiting for its socket.",
        combine="max",
        gauge="unsent_worst_bytes",
        chart_heading="Unsent bytes in a socket",
        turn_column="unsent_bytes_at_speech_end",
        terminal_row="sockets",
        page_line="its process",
    ),
    HealthFigure(
        name="frames_held_up",
        label="frames held up",
        unit="frames",
        definition="Frames that a full socket did not take at once.",
        combine="sum",
        gauge="frames_held_up",
        terminal_row="sockets",
        page_line="its process",
        hidden_when_zero=True,
    ),
    HealthFigure(
        name="send_blocked_worst_ns",
        label="full socket",
        unit="ns",
        definition="Longest time for which a full socket did not take a frame that counts.",
        combine="max",
        turn_column="send_blocked_worst_ns",
        terminal_row="sockets",
        hidden_when_zero=True,
    ),
    HealthFigure(
        name="clock_offset_drift_worst_ns",
        label="clock moved",
        unit="ns",
        definition="How far the wall clock moved against the monotonic clock.",
        combine="farthest",
        gauge="clock_offset_drift_ns",
        chart_heading="Wall clock against monotonic clock",
        terminal_row="process",
        page_line="its process",
    ),
    HealthFigure(
        name="calls_in_flight",
        label="calls in flight",
        unit="calls",
        definition="Calls in progress.",
        combine="newest",
        gauge="calls_in_flight",
        in_summary=False,
    ),
    HealthFigure(
        name="frames_sent",
        label="frames sent",
        unit="frames",
        definition="Audio frames sent since the process began.",
        combine="sum",
        gauge="frames_sent",
        in_summary=False,
    ),
)

HEALTH_FIGURES: Final[dict[str, HealthFigure]] = {figure.name: figure for figure in _ALL}
SUMMARY_FIGURES: Final[tuple[HealthFigure, ...]] = tuple(figure for figure in _ALL if figure.in_summary)
# By what a process reports: the name of the gauge.
GAUGES: Final[dict[str, HealthFigure]] = {figure.gauge: figure for figure in _ALL if figure.gauge is not None}


def gauge_metric(gauge: str) -> str:
    """The OTel name of a gauge of GAUGES. Raises KeyError for another."""
    return GAUGE_PREFIX + (GAUGES[gauge].gauge or "")


FRAME_LATENESS: Final = "frame lateness"  # beyond generator_health.FRAME_LATENESS_LIMIT_NS
DRIFT: Final = "drift"
# The reasons of turns that were not said as recorded. Every other reason is a fault of ours.
NOT_AS_RECORDED: Final = (FRAME_LATENESS, DRIFT)


def is_not_as_recorded(invalid_reasons: Collection[str]) -> bool:
    """Return whether a turn with these reasons was not spoken as recorded, whatever else went wrong."""
    return any(reason in NOT_AS_RECORDED for reason in invalid_reasons)


def invalid_text(not_as_recorded: int, faults: int, by_reason: Mapping[str, int]) -> str:
    """Invalid turns by what made them so: `4 not said as recorded (frame lateness 3, drift 2), 1 by a fault of the
    generator (clock step 1)`; empty where there are none. A turn may have several reasons."""
    parts: list[str] = []
    recorded = {name: n for name, n in by_reason.items() if name in NOT_AS_RECORDED}
    others = {name: n for name, n in by_reason.items() if name not in NOT_AS_RECORDED}
    if not_as_recorded:
        also = f"; also {_counted_reasons(others)}" if others and not faults else ""
        parts.append(f"{number(not_as_recorded)} not said as recorded ({_counted_reasons(recorded)}{also})")
    if faults:
        reasons = f" ({_counted_reasons(others)})" if others else ""
        parts.append(f"{number(faults)} by {'a fault' if faults == 1 else 'faults'} of the generator{reasons}")
    return ", ".join(parts)


def _counted_reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number(n)}" for name, n in reasons.items())
