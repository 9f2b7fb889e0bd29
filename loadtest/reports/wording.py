"""How figures are written for people: one rounding, one unit and one word for "not known" everywhere."""

from typing import Final

from telemetry.metrics import METRICS
from telemetry.store.answers import MetricStats

UNKNOWN: Final = "–"
TOO_FEW: Final = "too few"
NOT_OBSERVABLE: Final = "not observable"


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


def label(metric: str) -> str:
    """A metric's name for reading; the name itself stays recognisable."""
    return metric.replace("_", " ")
