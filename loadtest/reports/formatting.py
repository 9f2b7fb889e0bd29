"""How figures are written for people: one rounding, one unit and one word for "not known" everywhere."""

from typing import Final

from telemetry.model.metrics import METRICS
from telemetry.store.answers import MetricStats

UNKNOWN: Final = "–"
TOO_FEW: Final = "too few"
NOT_OBSERVABLE: Final = "not observable"
ANSWERED_MARK: Final = "*"
ANSWERED_NOTE: Final = f"{ANSWERED_MARK} of the answered turns only: a turn without an answer is in no percentile"


def milliseconds(value_ns: float | None) -> str:
    """A duration in ms: whole from 10 ms on, one decimal below."""
    if value_ns is None:
        return UNKNOWN
    value_ms = value_ns / 1e6
    return f"{value_ms:z,.1f} ms" if abs(value_ms) < 9.95 else f"{value_ms:,.0f} ms"


def percent(ratio: float | None) -> str:
    """A ratio as a percentage with one decimal, which never rounds up to 100 or down to 0."""
    if ratio is None:
        return UNKNOWN
    text = f"{ratio * 100:.1f}"
    if text == "100.0" and ratio < 1:
        text = "99.9"
    if text == "0.0" and ratio > 0:
        return "< 0.1 %"
    return f"{text.removesuffix('.0')} %"


def number(count: int) -> str:
    """A whole number with thousands apart."""
    return f"{count:,}"


def turns(count: int) -> str:
    """How many turns, in words."""
    return "1 turn" if count == 1 else f"{number(count)} turns"


def turns_and_spans(turn_count: int, span_count: int) -> str:
    """Telemetry by what it tells of, and by its size: a turn is a span with the spans of its stages."""
    return f"{turns(turn_count)} ({number(span_count)} span{'' if span_count == 1 else 's'})"


def clock(seconds: float) -> str:
    """A length of time as m:ss."""
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


def value(metric: str, figure: float) -> str:
    """A figure of a metric with its unit."""
    unit = METRICS[metric].unit if metric in METRICS else "ns"
    if unit == "ns":
        return milliseconds(figure)
    if metric == "wer":
        return percent(figure)
    return {"per_s": f"{figure:,.1f}/s", "ratio": f"{figure:,.2f}", "count": f"{figure:,.0f}"}[unit]


def statistic(stats: MetricStats, which: str) -> str:
    """p50, p95, p99 or max of a metric, or the words for why there is none."""
    if stats.n == 0:
        return UNKNOWN
    figure: float | None = getattr(stats, which)
    return TOO_FEW if figure is None else value(stats.name, figure)


def answered(stats: MetricStats) -> str:
    """How many values a metric has, `17 of 40` where turns went unanswered: its percentiles know nothing of those."""
    return f"{number(stats.n)} of {number(stats.n + stats.unanswered)}" if stats.unanswered else number(stats.n)


def of_the_answered(stats: MetricStats, which: str) -> str:
    """As `statistic`, marked where it is of the answered turns only; the mark is explained by `ANSWERED_NOTE`."""
    text = statistic(stats, which)
    return f"{text}{ANSWERED_MARK}" if stats.unanswered and getattr(stats, which) is not None else text


def label(metric: str) -> str:
    """A metric's name for reading; the name itself stays recognizable."""
    return metric.replace("_", " ")
