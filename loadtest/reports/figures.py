"""Statistics of a metric as written on a terminal: the figure, or why it is missing."""

from collections.abc import Mapping, Sequence
from typing import Final

from telemetry.model.formatting import DASH, count, counted_units, error_rate_name, estimate_if, number
from telemetry.model.metrics import DEFINITIONS
from telemetry.store.answers import MetricStats, Summary, WerByCondition

TOO_FEW: Final = "too few"
NOT_OBSERVABLE: Final = "not observable"
ANSWERED_MARK: Final = "*"
ANSWERED_NOTE: Final = f"{ANSWERED_MARK} of the answered turns only: a turn without an answer is in no percentile"


def turns_and_spans(turn_count: int, span_count: int) -> str:
    """An amount of telemetry, in turns and in spans: a turn is a span with the spans of its stages."""
    return f"{count(turn_count, 'turn')} ({count(span_count, 'span')})"


def statistic(stats: MetricStats, which: str) -> str:
    """p50, p95, p99 or max of a metric, or the words for why it is missing."""
    if stats.n == 0:
        return DASH
    value: float | None = getattr(stats, which)
    if value is None:
        return TOO_FEW
    text = DEFINITIONS[stats.name].format(value)
    return estimate_if(stats.approximate and which != "max", text)


def answered(stats: MetricStats) -> str:
    """Return how many values a metric has, `17 of 40` where turns went unanswered: its percentiles are of the
    others."""
    return f"{number(stats.n)} of {number(stats.n + stats.unanswered)}" if stats.unanswered else number(stats.n)


def of_the_answered(stats: MetricStats, which: str) -> str:
    """As `statistic`, marked where it is of the answered turns only; the mark is explained by `ANSWERED_NOTE`."""
    text = statistic(stats, which)
    return f"{text}{ANSWERED_MARK}" if stats.unanswered and getattr(stats, which) is not None else text


def counts(named: Mapping[str, int]) -> str:
    """Numbers by name: `cache 45, cloud 126`."""
    return ", ".join(f"{name} {number(how_many)}" for name, how_many in named.items())


def label(metric: str) -> str:
    """A metric's name for people. Raises KeyError for an unknown metric."""
    return DEFINITIONS[metric].label


def stage_label(metric: str, summary: Summary) -> str:
    """As `label`; the rate of word errors says where its units are characters."""
    found = summary.wer_by_condition
    return rate_name(found).capitalize() if metric == "wer" and found else label(metric)


def rate_name(found: Sequence[WerByCondition]) -> str:
    """Return what the rate of word errors of some conditions is called: by the units of their texts."""
    return error_rate_name(sum(each.words for each in found), sum(each.characters for each in found))


def units_name(found: Sequence[WerByCondition]) -> str:
    """Return what those units are: words, characters, or both."""
    return counted_units(sum(each.words for each in found), sum(each.characters for each in found))
