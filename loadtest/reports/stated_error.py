"""How far the figures of a run may be off, in words: the annotation of its clips and the instrument itself. Pure."""

from typing import Final

from loadtest.reports import figures
from telemetry.model import formatting
from telemetry.store.answers import MetricStats, SpeechBoundErrors, Summary

_STATISTICS: Final = ("p50", "p95", "p99", "max")


def error_line(stats: MetricStats) -> str | None:
    """Between what the figures of a metric lie, as one sentence; None where there is nothing to say."""
    error = stats.error
    if error is None or not stats.n:
        return None
    name = figures.label(stats.name)
    intervals = [(which, getattr(error, which)) for which in _STATISTICS]
    within = ", ".join(
        f"{which} {formatting.estimate_if(stats.approximate and which != 'max', _between(*each))}"
        for which, each in intervals
        if each is not None
    )
    parts = [f"{name} lies within {within}"] if within else []
    if error.turns_unknown:
        whose = "" if within else f"{name} "
        parts.append(f"{whose}± not known for {formatting.number(error.turns_unknown)} of {formatting.turns(stats.n)}")
    if within and error.instrument_ns is None:
        parts.append("the instrument's own error is not in it (not calibrated)")
    return "; ".join(parts)


def _between(low_ns: float, high_ns: float) -> str:
    return f"{formatting.milliseconds(low_ns, unit=False)} to {formatting.milliseconds(high_ns)}"


def bounds_sentence(summary: Summary) -> str:
    """How well it is known where the callers' speech ended and began."""
    bounds: SpeechBoundErrors = summary.speech_bounds
    if not bounds.turns:
        return "no turn was spoken"
    sides = (
        ("end", bounds.end_median_ns, bounds.end_worst_ns),
        ("start", bounds.start_median_ns, bounds.start_worst_ns),
    )
    parts = [
        f"{side} of speech known to"
        f" {formatting.estimate_if(bounds.approximate, '±' + formatting.milliseconds(middle))} (median),"
        f" ±{formatting.milliseconds(worst)} (worst)"
        for side, middle, worst in sides
        if middle is not None
    ]
    if bounds.turns_unknown:
        parts.append(
            f"± not known for {formatting.number(bounds.turns_unknown)} of {formatting.turns(bounds.turns)}:"
            " see voiceprobe corpus check"
        )
    return "; ".join(parts)
