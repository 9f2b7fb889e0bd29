"""The five tiles of the Now page, as HTML. Each says its own state in a word and a shape besides its color."""

from collections.abc import Sequence
from typing import Final

from dashboard import descriptions
from dashboard.markup import css_percent, escape
from dashboard.objective_status import ObjectiveStatus
from telemetry.model import formatting
from telemetry.model.metrics import DEFINITIONS, HEADLINE
from telemetry.model.semconv import CACHE_TIERS, FALLBACKS, OUTCOME_LABELS
from telemetry.store.answers import CacheStats, MetricStats, ShareByName, Summary, TurnCounts

_UNANSWERED: Final = ("no_reply", "timeout", "error", "interrupted")


def tiles(summary: Summary, statuses: Sequence[ObjectiveStatus]) -> str:
    """All five in a row: latency, good turns, cache, fallbacks, abandonment."""
    headline = next((each for each in statuses if each.metric == HEADLINE), None)
    parts = (
        _latency(summary.metrics[HEADLINE], headline),
        _good(headline),
        _cache(summary.cache),
        _fallback(summary.fallback),
        _abandonment(summary.turns),
    )
    return f'<div class="vp vp-tiles">{"".join(parts)}</div>'


def _tile(name: str, value: str, sub: str, *, mark: str = "", known: bool = True, gauge: str = "") -> str:
    shown = "value" if known else "value unknown"
    return (
        f'<div class="vp-tile"><div class="top"><span class="name">{escape(name)}</span>{mark}</div>'
        f'<div class="{shown}">{escape(value)}</div>{gauge}'
        f'<div class="sub" title="{escape(sub)}">{escape(sub)}</div></div>'
    )


def _latency(stats: MetricStats, headline: ObjectiveStatus | None) -> str:
    value = descriptions.percentile(stats, "p95", with_unit=True)
    if stats.n == 0:
        value = descriptions.why_no_figures(stats) or value
    mark = headline.chip if headline else ""
    sub = f"{headline.promise} · {_budget(headline)}" if headline else "no objective for it"
    if stats.unanswered:
        sub = f"of the answered: {descriptions.values(stats)} turns · {sub}"
    return _tile(
        f"{DEFINITIONS[HEADLINE].label} p95", value, sub, mark=mark, known=stats.p95 is not None, gauge=_gauge(headline)
    )


def _budget(status: ObjectiveStatus) -> str:
    if status.verdict.budget_left is None:
        return "error budget not known"
    if status.verdict.budget_left < 0:
        return f"error budget overspent {formatting.factor(1 - status.verdict.budget_left)}"
    return f"{formatting.percent(status.verdict.budget_left)} of the error budget left"


def _gauge(status: ObjectiveStatus | None) -> str:
    if status is None or status.verdict.budget_left is None:
        return ""
    filled = max(0.0, min(1.0, status.verdict.budget_left))
    missed = " missed" if status.state == "missed" else ""
    return f'<div class="vp-gauge{missed}"><i style="width:{css_percent(filled, decimals=1)}"></i></div>'


def _good(headline: ObjectiveStatus | None) -> str:
    if headline is None or headline.verdict.ratio is None:
        why = (headline.verdict.reason or "") if headline else "no objective for voice to voice"
        return _tile("Good turns", "not known", why, known=False)
    good, eligible = formatting.number(headline.verdict.good), formatting.number(headline.verdict.eligible)
    sub = f"{good} of {eligible} within the objective"
    if not headline.verdict.is_judged:
        return _tile("Good turns", "not judged", headline.verdict.reason or "", known=False)
    if headline.state == "unknown":
        return _tile("Good turns", f"too few ({eligible})", sub, known=False)
    return _tile("Good turns", formatting.percent(headline.verdict.ratio), sub)


def _cache(cache: CacheStats) -> str:
    if cache.hit_rate is None:
        return _tile("Cache hits", descriptions.UNKNOWN, "the endpoint says nothing of a cache", known=False)
    tiers = [*CACHE_TIERS, *(tier for tier in cache.hits_by_tier if tier not in CACHE_TIERS)]
    parts = [f"{tier} {formatting.number(cache.hits_by_tier[tier])}" for tier in tiers if tier in cache.hits_by_tier]
    sub = " · ".join(parts) if parts else f"no hit in {formatting.turns(cache.reported)}"
    return _tile("Cache hits", formatting.percent(cache.hit_rate), sub)


def _fallback(fallback: ShareByName) -> str:
    if not fallback.reported:
        return _tile("Fallbacks", descriptions.UNKNOWN, "the endpoint says nothing of fallbacks", known=False)
    kinds = [*FALLBACKS, *(kind for kind in fallback.counts if kind not in FALLBACKS)]
    parts = [f"{kind} {formatting.number(fallback.counts[kind])}" for kind in kinds if kind in fallback.counts]
    sub = " · ".join(parts) if parts else f"none in {formatting.turns(fallback.reported)}"
    return _tile("Fallbacks", formatting.share(sum(fallback.counts.values()), fallback.reported), sub)


def _abandonment(turns: TurnCounts) -> str:
    if not turns.eligible:
        return _tile("Abandoned", "not known", "no eligible turn", known=False)
    others = [
        f"{OUTCOME_LABELS[name]} {formatting.number(turns.by_outcome[name])}"
        for name in _UNANSWERED
        if turns.by_outcome.get(name)
    ]
    abandoned = turns.by_outcome.get("abandoned", 0)
    sub = " · ".join(others) if others else f"every {'other ' if abandoned else ''}turn was answered"
    return _tile("Abandoned", formatting.share(abandoned, turns.eligible), sub)
