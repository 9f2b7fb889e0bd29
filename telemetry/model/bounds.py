"""Bounds: the two values between which a timestamp, a metric or a statistic of a metric truly lies. Pure.

A turn carries how much earlier each arrival may really have been, how much later each frame may really have gone, how
far the annotation of its clip may be off, and how long our own lateness can have held the service up (`Turn`). A metric
between two moments is shortest where its end came earliest and its beginning latest, and longest the other way round.
What counts from the end of the caller's speech is shorter still by `held_up_ns`: the service heard the silence after
the speech that much later, and would have answered that much sooner; never later. Where a turn does not carry what a
bound depends on (another reporter, an older turn), the bounds are None: not known, which is not the same as exact.

A statistic taken over the lower bounds of all turns, and over the upper ones, has the true statistic between the two,
because order statistics keep the order of values that all moved the same way. That is about measuring, and not about
sampling: it does not shrink with more turns, and says nothing of turns that were not measured. A turn whose bounds are
not known may lie anywhere: it counts as minus and as plus infinity. Few of them among many turns still leave a median
known; where a statistic reaches one of them, nothing is stated.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal, Self

import msgspec

from telemetry.model import formatting
from telemetry.model.metrics import METRICS, TIMESTAMPS, Metric, MetricDefinition, timestamp
from telemetry.model.turns import Turn

Bounds = tuple[float, float]
# A timestamp of a turn, and two fields that say how far it may be off.
_Stamp = Callable[[Turn], tuple[int | None, int | None, int | None]]

# When a caller hangs up is our own doing, stamped as it is done.
_EXACT: Final = "hangup"
_SENT: Final[dict[str, _Stamp]] = {
    name: attrgetter(f"{name}_perf_ns", f"{name}_uncertainty_ns", f"{name}_later_ns")
    for name in ("speech_start", "speech_end")
}
_ARRIVED: Final[dict[str, _Stamp]] = {
    name: attrgetter(f"{name}_perf_ns", f"{name}_earlier_ns", "stamp_error_ns")
    for name in TIMESTAMPS
    if name not in _SENT and name != _EXACT
}


def timestamp_bounds(turn: Turn, name: str) -> tuple[int, int] | None:
    """The earliest and the latest time of a timestamp, in ns of the turn's monotonic clock; None if the timestamp or
    its bounds are not known. Raises AttributeError for a name not in TIMESTAMPS."""
    if name in _ARRIVED:
        moment, earlier, error = _ARRIVED[name](turn)
        if moment is None or earlier is None or error is None:
            return None
        return moment - earlier - error, moment + error
    if name in _SENT:
        moment, annotated, later = _SENT[name](turn)
        if moment is None or annotated is None or later is None:
            return None
        return moment - annotated, moment + annotated + later
    moment = timestamp(turn, name)
    return None if moment is None else (moment, moment)


def metric_bounds(turn: Turn, metric: Metric) -> Bounds | None:
    """The lowest and the highest possible value of a metric of the turn, in its unit; None if the metric has no value,
    or its bounds are not known. Counts, unlike times, are exact."""
    value = metric.value(turn)
    return None if value is None else bounds_of_value(turn, metric, value)


def bounds_of_value(turn: Turn, metric: Metric, value: float) -> Bounds | None:
    """The bounds of `metric_bounds` of a metric that has this value on the turn."""
    bounds = _BOUNDS.get(metric.name)
    return (value, value) if bounds is None else bounds(turn, value)


def measured_bounds(turn: Turn, metric: Metric) -> Bounds | None:
    """The bounds of `metric_bounds` if the annotation of the clip's speech were exact: those of our own measurement."""
    return metric_bounds(
        msgspec.structs.replace(turn, speech_start_uncertainty_ns=0, speech_end_uncertainty_ns=0), metric
    )


def _from_speech(name: str, since: str, held_up: str) -> Callable[[Turn, float], Bounds | None]:
    """The bounds of a latency that counts from the caller's speech."""
    held_up_of = attrgetter(held_up)

    def bounds(turn: Turn, value: float) -> Bounds | None:
        del value
        held_up_ns: int | None = held_up_of(turn)
        if held_up_ns is None:
            return None
        begin, end = timestamp_bounds(turn, since), timestamp_bounds(turn, name)
        if begin is None or end is None:
            return None
        return end[0] - begin[1] - held_up_ns, end[1] - begin[0]

    return bounds


def _between_arrivals(later: str, earlier: str) -> Callable[[Turn, float], Bounds | None]:
    """The bounds of a duration between two arrivals, whose stamps have the same error."""
    earlier_of = attrgetter(f"{earlier}_earlier_ns", f"{later}_earlier_ns")

    def bounds(turn: Turn, value: float) -> Bounds | None:
        early, late = earlier_of(turn)
        return None if early is None or late is None else (value - late, value + early)

    return bounds


def _rate_between(later: str, earlier: str) -> Callable[[Turn, float], Bounds | None]:
    """The bounds of a rate: a count divided by the time between two timestamps."""

    def bounds(turn: Turn, value: float) -> Bounds | None:
        begin, end = timestamp_bounds(turn, earlier), timestamp_bounds(turn, later)
        first, last = timestamp(turn, earlier), timestamp(turn, later)
        if begin is None or end is None or first is None or last is None:
            return None
        counted = value * (last - first)
        shortest, longest = end[0] - begin[1], end[1] - begin[0]
        return counted / longest, counted / shortest if shortest > 0 else math.inf

    return bounds


def _wall_rate(turn: Turn, value: float) -> Bounds | None:
    since = "asr_final" if turn.asr_final_perf_ns is not None else "speech_end"
    return _rate_between("llm_last_token", since)(turn, value)


def _within_the_reply(turn: Turn, value: float) -> Bounds | None:
    """The bounds of the playback of arriving chunks: no chunk arrived earlier by more than the worst uncertainty."""
    doubt_ns = turn.arrival_uncertainty_worst_ns
    if doubt_ns is None:
        return None if turn.stamp_error_ns is None else (value, value)
    return max(0, value - doubt_ns), value + doubt_ns


def _leading_silence(turn: Turn, value: float) -> Bounds | None:
    first, chunk = turn.first_audio_earlier_ns, turn.tts_first_chunk_earlier_ns
    return None if first is None or chunk is None else (max(0, value - first), value + chunk)


def _barge_in_stop(turn: Turn, value: float) -> Bounds | None:
    later, annotated, heard = turn.speech_start_later_ns, turn.speech_start_uncertainty_ns, turn.stamp_error_ns
    if later is None or annotated is None or heard is None:
        return None
    before = heard + (turn.arrival_uncertainty_worst_ns or 0)
    return value - annotated - later - before, value + annotated + heard


def _talk_over(turn: Turn, value: float) -> Bounds | None:
    stated = (turn.speech_start_later_ns, turn.speech_end_later_ns, turn.stamp_error_ns)
    known = [pair for pair in stated if pair is not None]
    if len(known) < len(stated):
        return None
    spoken, heard = timestamp_bounds(turn, "speech_end"), timestamp_bounds(turn, "first_audio")
    if not value and turn.turn_kind == "question" and spoken is not None and heard is not None and heard[0] > spoken[1]:
        return value, value  # the answer began when the caller had certainly finished
    off = sum(known) + (turn.arrival_uncertainty_worst_ns or 0)
    off += (turn.speech_start_uncertainty_ns or 0) + (turn.speech_end_uncertainty_ns or 0)
    return max(0, value - off), value + off


def _connect(turn: Turn, value: float) -> Bounds | None:
    earlier, error = turn.connect_earlier_ns, turn.stamp_error_ns
    return None if earlier is None or error is None else (value - earlier - error, value + error)


_BOUNDS: Final[dict[str, Callable[[Turn, float], Bounds | None]]] = {
    "voice_to_voice": _from_speech("first_audio", "speech_end", "held_up_ns"),
    "endpointing": _from_speech("endpoint", "speech_end", "held_up_ns"),
    "asr_partial_latency": _from_speech("asr_first_partial", "speech_start", "held_up_speaking_ns"),
    "asr_final_latency": _from_speech("asr_final", "speech_end", "held_up_ns"),
    "llm_first_token_latency": _from_speech("llm_first_token", "speech_end", "held_up_ns"),
    "llm_ttft": _between_arrivals("llm_first_token", "asr_final"),
    "tts_first_chunk_latency": _between_arrivals("tts_first_chunk", "llm_first_token"),
    "leading_silence": _leading_silence,
    "time_to_first_sentence": _from_speech("llm_first_sentence", "speech_end", "held_up_ns"),
    "connect": _connect,
    "barge_in_stop": _barge_in_stop,
    "talk_over": _talk_over,
    "underrun_worst": _within_the_reply,
    "underrun_total": _within_the_reply,
    "tokens_per_s": _rate_between("llm_last_token", "llm_first_token"),
    "tokens_per_s_wall": _wall_rate,
    "audio_rtfx": _rate_between("tts_last_chunk", "tts_first_chunk"),
}
# In the order of METRICS: those whose values may be off. All others are counted, and exact.
BOUNDED: Final[tuple[Metric, ...]] = tuple(metric for metric in METRICS.values() if metric.name in _BOUNDS)


Statistic = Literal["p50", "p95", "p99", "max"]
STATISTICS: Final[tuple[Statistic, ...]] = ("p50", "p95", "p99", "max")
# Bounds that are nearer to the figure go without saying.
_STATED_FROM: Final = 0.01
# One of the last digit that people read: of milliseconds below and from 100 ms on, and of the others.
_LAST_DIGIT_NS: Final = (100_000.0, 1_000_000.0)
_WHOLE_FROM_NS: Final = 100_000_000.0
_LAST_DIGIT: Final = {"per_s": 0.1, "ratio": 0.01, "count": 1.0, "share": 0.001}


@dataclass(frozen=True, slots=True)
class MeasuredWithin:
    """The measurement bounds of each statistic of a metric, in its unit; None without a statistic, or if turns with
    unknown bounds leave it open."""

    p50: Bounds | None
    p95: Bounds | None
    p99: Bounds | None
    max: Bounds | None
    turns_unknown: int = 0  # of the turns that have a value: those that do not state its bounds

    @classmethod
    def exactly(cls, p50: float | None, p95: float | None, p99: float | None, largest: float | None) -> Self:
        """The statistics of a count, which has no measurement error."""
        at = [None if value is None else (value, value) for value in (p50, p95, p99, largest)]
        return cls(p50=at[0], p95=at[1], p99=at[2], max=at[3])


def finite(lower: float | None, upper: float | None) -> Bounds | None:
    """Two values as bounds; None if one of them is not a finite number."""
    if lower is None or upper is None or not (math.isfinite(lower) and math.isfinite(upper)):
        return None
    return lower, upper


def measured_within(metric: MetricDefinition, figure: float | None, bounds: Bounds | None) -> str | None:
    """`measured within 806–818`, in the unit of the figure that it follows; None if the bounds are not known or differ
    from the figure by at most 1 %."""
    if figure is None or bounds is None:
        return None
    lower, upper = bounds
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return None
    if max(figure - lower, upper - figure) <= _STATED_FROM * abs(figure):
        return None
    return f"measured within {_bounds_text(metric, figure, bounds)}"


def turn_figures(turn: Turn, metrics: Iterable[Metric]) -> list[tuple[str, str]]:
    """The metrics of a turn that have values, by display name, each with its bounds if they are known and differ from
    the value: `818 ms, within 806–818`."""
    figures: list[tuple[str, str]] = []
    for metric in metrics:
        value, bounds = metric.value(turn), metric_bounds(turn, metric)
        if value is None:
            continue
        shown = metric.format(value)
        if bounds is None:
            shown += ", bounds not known"
        elif bounds != (value, value) and all(map(math.isfinite, bounds)):
            shown += f", within {_bounds_text(metric, value, bounds)}"
        figures.append((metric.label, shown))
    return figures


def turn_measured_within(turn: Turn, metric: Metric) -> str | None:
    """The text of `measured_within` for a metric's value on one turn."""
    return measured_within(metric, metric.value(turn), metric_bounds(turn, metric))


def _bounds_text(metric: MetricDefinition, figure: float, bounds: Bounds) -> str:
    """The bounds of a figure without their unit, rounded outward; a bound equal to the figure is written like it."""
    low, high = (
        # Digits after the sixth decimal come from calculating in floating point.
        metric.format(value if value == figure else rounded(round(value / digit, 6)) * digit, unit=False)
        for value, rounded, digit in zip(
            bounds, (math.floor, math.ceil), (_last_digit(metric.kind, bound) for bound in bounds), strict=True
        )
    )
    # A dash between two numbers must not be read as the sign of the second.
    return f"{low}{' to ' if formatting.MINUS in low + high else '–'}{high}"


def _last_digit(kind: str, value: float) -> float:
    if kind == "ns":
        return _LAST_DIGIT_NS[abs(value) >= _WHOLE_FROM_NS]
    return _LAST_DIGIT[kind]
