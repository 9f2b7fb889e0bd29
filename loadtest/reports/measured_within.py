"""Between which two values the figures of a run truly lie, in words. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from loadtest.reports import figures
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED
from telemetry.store.answers import MetricStats, SpeechBoundErrors, Summary

_BOUNDED: Final = frozenset(metric.name for metric in BOUNDED)


def bounds_lines(summary: Summary, names: Iterable[str]) -> list[str]:
    """The measurement bounds of metrics, where they differ from the figures: `Voice to voice: p95 818 ms (measured
    within 806–818)`, a line for each; and a line of the turns whose bounds are not known."""
    measured = [(figures.label(name), summary.metrics[name]) for name in names if name in summary.metrics]
    return [*bounds_of(measured), *_unknown(measured)]


def bounds_of(named: Iterable[tuple[str, MetricStats | None]]) -> list[str]:
    """A line for each name whose figures have measurement bounds that differ from them."""
    return [
        f"{name}: {stated}"
        for name, stats in named
        if stats is not None and (stated := stats.stated_bounds) is not None
    ]


def _unknown(measured: Sequence[tuple[str, MetricStats]]) -> list[str]:
    of_turns = [
        (name, each.measured_within.turns_unknown, each.n)
        for name, each in measured
        if each.n and each.measured_within is not None and each.name in _BOUNDED
    ]
    unknown = [(name, some, n) for name, some, n in of_turns if some]
    if not unknown:
        return []
    if len({(some, n) for _, some, n in of_turns}) == 1:
        _, some, n = unknown[0]
        return [f"measurement bounds not known for {formatting.number(some)} of {formatting.turns(n)}"]
    if all(some == n for _, some, n in of_turns):
        return ["measurement bounds not known for any turn"]
    each = ", ".join(f"{name} {formatting.number(some)} of {formatting.turns(n)}" for name, some, n in unknown)
    return [f"measurement bounds not known: {each}"]


def bounds_sentence(summary: Summary) -> str:
    """Return how well it is known where the callers' speech ended and began."""
    bounds: SpeechBoundErrors = summary.speech_bounds
    if not bounds.turns:
        return "no turn was spoken"
    sides = (
        ("end", bounds.end_median_ns, bounds.end_worst_ns),
        ("start", bounds.start_median_ns, bounds.start_worst_ns),
    )
    parts = [
        f"{side} of speech exact"
        if not worst
        else f"{side} of speech known to"
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
