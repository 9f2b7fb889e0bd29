"""Objectives as the pages show them: an objective with its verdict, and error budgets with their burn rates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dashboard.charts import left_text
from dashboard.components.markup import Html, State, TableCell, chip, css_percent, escape, table
from telemetry.model import formatting
from telemetry.model.metrics import METRICS
from telemetry.objectives.error_budgets import SHOWN_WINDOWS, ErrorBudget, WindowBudget
from telemetry.objectives.slo import EligibleTurns, Objective, Verdict, judge, not_judged


@dataclass(frozen=True, slots=True)
class ObjectiveStatus:
    """An objective and its verdict."""

    objective: Objective
    verdict: Verdict

    @property
    def metric(self) -> str | None:
        """The objective's metric, None if it is not about a metric."""
        return self.objective.metric

    @property
    def state(self) -> State:
        """Met, missed, or undecided."""
        return "unknown" if self.verdict.met is None else "met" if self.verdict.met else "missed"

    @property
    def chip(self) -> Html:
        """The state as a small label; the whole verdict is its tooltip."""
        return chip(self.state, self._why() if self.state == "unknown" else self.state, self.verdict.sentence)

    @property
    def promise(self) -> str:
        """`95 % ≤ 800 ms`, for a line that names the metric already."""
        o = self.objective
        if o.metric is None or o.threshold is None:
            return o.sentence
        metric = METRICS.get(o.metric)
        kind = "ns" if metric is None else metric.kind
        bound = "≥" if metric is not None and metric.higher_is_better else "≤"
        return f"{formatting.declared_percent(o.target)} {bound} {formatting.declared_figure(o.threshold, kind)}"

    def _why(self) -> str:
        if not self.verdict.is_judged:
            return "not judged"
        if self.verdict.eligible and self.verdict.decided < self.verdict.minimum_turns:
            return f"too few ({self.verdict.decided})"
        return "undecided" if self.verdict.is_observable else "not observable"


def statuses(
    objectives: Sequence[Objective], count: Callable[[Objective], EligibleTurns], *, unjudged: str | None = None
) -> tuple[ObjectiveStatus, ...]:
    """Judge the objectives. `unjudged` says why no verdict may be given, if none may."""
    verdicts = judge(objectives, count)
    if unjudged is not None:
        verdicts = not_judged(objectives, verdicts, unjudged)
    return statuses_of(objectives, verdicts)


def statuses_of(objectives: Sequence[Objective], verdicts: Sequence[Verdict]) -> tuple[ObjectiveStatus, ...]:
    """Pair the objectives with their verdicts, which are in the same order."""
    return tuple(ObjectiveStatus(o, v) for o, v in zip(objectives, verdicts, strict=True))


def gauge(share: float | None, *, missed: bool) -> Html:
    """A bar of the error budget that is left; empty if that is not known."""
    if share is None:
        return Html()
    width = css_percent(max(0.0, min(1.0, share)), decimals=1)
    return Html(f'<div class="vp-gauge{" missed" if missed else ""}"><i style="width:{width}"></i></div>')


def state_of(budget: ErrorBudget, *, claims_nothing: bool = False) -> State:
    """Return the state of a row. For turns of runs without a verdict, no objective is met."""
    if budget.fires or budget.is_met is False:
        return "missed"
    return "unknown" if budget.is_met is None or claims_nothing else "met"


def state_chip(budget: ErrorBudget, *, claims_nothing: bool = False) -> Html:
    """A chip with the state, and with the alert that fires."""
    firing = next((alert for alert in budget.alerts if alert.fires), None)
    if firing is not None:
        title = f"both the last {firing.long} and the last {firing.short} burn faster than that"
        return chip("missed", f"{firing.severity}: beyond ×{firing.factor:g}", title)
    if budget.is_met is None:
        title = f"a verdict needs {formatting.count(budget.minimum_turns, budget.counted[:-1])}"
        return chip("unknown", f"too few ({budget.windows[-1].counts.eligible:,})", title)
    if not budget.is_met:
        return chip("missed", "used up")
    return chip("unknown", "not judged") if claims_nothing else chip("met", "within")


def budgets_table(budgets: Sequence[ErrorBudget], caption: str, *, claims_nothing: bool = False) -> Html:
    """A table of every objective: its error budget, and the burn rate of each window."""
    columns = ("objective", "state", "error budget, 28 days", *(f"#{window}" for window in SHOWN_WINDOWS))
    rows: list[tuple[str | TableCell, ...]] = []
    for budget in budgets:
        left, state = (
            budget.budget_left if budget.is_met is not None else None,
            state_of(budget, claims_nothing=claims_nothing),
        )
        bar = gauge(None if state == "unknown" else left, missed=left is not None and left < 0)
        name = Html(f'<b>{escape(budget.title)}</b><span class="hint">{escape(budget.sentence)}</span>')
        rows.append(
            (
                TableCell(name, css="vp-objective"),
                state_chip(budget, claims_nothing=claims_nothing),
                Html(f"{bar}{escape(left_text(left))}"),
                *(_burn(window, budget.counted) for window in budget.windows),
            )
        )
    return table(caption, columns, rows, captioned=True)


def _burn(window: WindowBudget, counted: str) -> TableCell:
    counts, rate = window.counts, window.burn_rate
    if rate is None:
        return TableCell(f"no {counted}", css="few")
    burning = "vp-burning" if rate > 1 and window.is_enough else "" if window.is_enough else "few"
    few = "" if window.is_enough else '<span class="hint"> few</span>'
    shown = formatting.factor(rate) if rate != float("inf") else "no budget"
    text = Html(f'{shown}{few}<span class="vp-below">{counts.bad:,} / {counts.eligible:,}</span>')
    return TableCell(text, f"{counts.bad:,} bad of {formatting.count(counts.eligible, counted[:-1])}", burning)
