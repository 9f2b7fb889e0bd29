"""The three large numbers of the Now page, as HTML. Each says its own state in a word and a shape besides its color."""

from collections.abc import Sequence

from dashboard import descriptions
from dashboard.components.markup import css_percent, escape
from dashboard.components.objectives import ObjectiveStatus
from telemetry.model import formatting
from telemetry.model.metrics import DEFINITIONS, HEADLINE
from telemetry.model.semconv import OUTCOME_LABELS, UNANSWERED, Source
from telemetry.store.answers import MetricStats, Summary, TurnCounts
from telemetry.store.questions.filters import source_of


def tiles(summary: Summary, statuses: Sequence[ObjectiveStatus]) -> str:
    """In a row: latency, good turns, turns that were not answered."""
    headline = next((each for each in statuses if each.metric == HEADLINE), None)
    parts = (
        _latency(summary.metrics[HEADLINE], headline, source_of(summary.filter)),
        _good(headline),
        _answered(summary.turns, summary.metrics[HEADLINE].unanswered),
    )
    return f'<div class="vp vp-tiles">{"".join(parts)}</div>'


def tile(name: str, value: str, sub: str, *, mark: str = "", known: bool = True, gauge: str = "") -> str:
    """A large number with its name, and with what there is to know of it below; `mark` and `gauge` are HTML."""
    shown = "value" if known else "value unknown"
    return (
        f'<div class="vp-tile"><div class="top"><span class="name">{escape(name)}</span>{mark}</div>'
        f'<div class="{shown}">{escape(value)}</div>{gauge}'
        f'<div class="sub" title="{escape(sub)}">{escape(sub)}</div></div>'
    )


def _latency(stats: MetricStats, headline: ObjectiveStatus | None, source: Source) -> str:
    value = descriptions.percentile(stats, "p95", with_unit=True)
    if stats.n == 0:
        value = descriptions.why_no_figures(stats, source) or value
    mark = headline.chip if headline else ""
    sub = f"{headline.promise} · {_budget(headline)}" if headline else "no objective for it"
    if (within := stats.within("p95")) is not None:
        sub = f"{within} · {sub}"
    if stats.unanswered:
        sub = f"of the answered: {descriptions.values(stats)} turns · {sub}"
    return tile(
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
        return tile("Good turns", "not known", why, known=False)
    verdict = headline.verdict
    good, decided = formatting.number(verdict.good), formatting.number(verdict.decided)
    sub = f"{good} of {decided} within {formatting.declared_figure(headline.objective.threshold or 0, 'ns')}"
    if not verdict.is_judged:
        return tile("Good turns", "not judged", (verdict.reason or "").removeprefix("not judged: "), known=False)
    if headline.state == "unknown" and verdict.decided < verdict.minimum_turns:
        return tile("Good turns", f"too few ({decided})", sub, known=False)
    if headline.state == "unknown":
        why = (verdict.reason or "").removeprefix("undecided: ")
        return tile("Good turns", "undecided", f"{sub}; {why}" if why else sub, known=False)
    return tile("Good turns", formatting.percent(verdict.ratio, verdict.target), sub)


def _answered(turns: TurnCounts, unanswered: int) -> str:
    """The turns to which no answer was heard, as the reports count them, and what they ended as where that is all."""
    if not turns.eligible:
        return tile("Not answered", "not known", "no eligible turn", known=False)
    sub = "every turn was answered"
    if unanswered:
        kinds = {name: n for name in UNANSWERED if (n := turns.by_outcome.get(name))}
        named = [f"{OUTCOME_LABELS[name]} {formatting.number(n)}" for name, n in kinds.items()]
        counted = f"{formatting.number(unanswered)} of {formatting.turns(turns.eligible)}"
        # A turn that ended in an error may have been answered before.
        sub = " · ".join([counted, *named]) if sum(kinds.values()) == unanswered else counted
    return tile("Not answered", formatting.share(unanswered, turns.eligible), sub)
