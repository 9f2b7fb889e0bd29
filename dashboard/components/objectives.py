"""An objective's verdict as the pages show it: the state in a word, a shape and a color, the promise in short."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import altair as alt

from dashboard.charts.style import ChartTable, Palette, Row, finished
from dashboard.components.markup import css_percent, escape
from telemetry.model import formatting
from telemetry.model.metrics import METRICS
from telemetry.objectives.error_budgets import SHOWN_WINDOWS, ErrorBudget, WindowBudget
from telemetry.objectives.slo import EligibleTurns, Objective, Verdict, judge, not_judged

State = Literal["met", "missed", "unknown"]

SYMBOLS: Final[dict[State, str]] = {"met": "✓", "missed": "✕", "unknown": "○"}


@dataclass(frozen=True, slots=True)
class ObjectiveStatus:
    """How one objective stands."""

    objective: Objective
    verdict: Verdict

    @property
    def metric(self) -> str | None:
        """The metric it is about, None when it is about something else than a metric."""
        return self.objective.metric

    @property
    def state(self) -> State:
        """Met, missed, or undecided."""
        return "unknown" if self.verdict.met is None else "met" if self.verdict.met else "missed"

    @property
    def chip(self) -> str:
        """The state as a small label; the whole verdict is its tooltip."""
        return chip(self.state, self._word(), self.verdict.sentence)

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

    def _word(self) -> str:
        return {"met": "met", "missed": "missed", "unknown": self._why()}[self.state]

    def _why(self) -> str:
        if not self.verdict.is_judged:
            return "not judged"
        if self.verdict.eligible and self.verdict.decided < self.verdict.minimum_turns:
            return f"too few ({self.verdict.decided})"
        return "undecided" if self.verdict.is_observable else "not observable"


def statuses(
    objectives: Sequence[Objective], count: Callable[[Objective], EligibleTurns], *, unjudged: str | None = None
) -> tuple[ObjectiveStatus, ...]:
    """Judge the objectives, each beside its verdict. `unjudged` says why no verdict may be given, if none may."""
    verdicts = judge(objectives, count)
    if unjudged is not None:
        verdicts = not_judged(objectives, verdicts, unjudged)
    return statuses_of(objectives, verdicts)


def statuses_of(objectives: Sequence[Objective], verdicts: Sequence[Verdict]) -> tuple[ObjectiveStatus, ...]:
    """The objectives, each beside its verdict, which are in the same order."""
    return tuple(ObjectiveStatus(o, v) for o, v in zip(objectives, verdicts, strict=True))


def chip(state: State, text: str, title: str = "") -> str:
    """A label whose shape, word and color say the same."""
    shown, hint = escape(text), escape(title)
    return f'<span class="vp-chip {state}" title="{hint}">{SYMBOLS[state]} {shown}</span>'


_HEIGHT: Final = 220
# What is overspent more is drawn at this share, and the axis says so: otherwise it flattens all days within the budget.
_LOWEST_DRAWN: Final = -2.0
_AXIS_LABEL: Final = f"datum.value <= {_LOWEST_DRAWN} ? '\u2264 ' + datum.label : datum.label"


def state_of(budget: ErrorBudget, *, claims_nothing: bool = False) -> State:
    """What the row says in a word, a shape and a color. Turns of runs that claim nothing show no objective as met."""
    if budget.fires or budget.is_met is False:
        return "missed"
    return "unknown" if budget.is_met is None or claims_nothing else "met"


def state_chip(budget: ErrorBudget, *, claims_nothing: bool = False) -> str:
    """The state, with the alert that fires."""
    firing = next((alert for alert in budget.alerts if alert.fires), None)
    if firing is not None:
        text = f"{firing.severity}: beyond ×{firing.factor:g}"
        return chip("missed", text, f"both the last {firing.long} and the last {firing.short} burn faster than that")
    if budget.is_met is None:
        eligible = budget.windows[-1].counts.eligible
        return chip(
            "unknown",
            f"too few ({eligible:,})",
            f"a verdict needs {formatting.count(budget.minimum_turns, budget.counted[:-1])}",
        )
    if not budget.is_met:
        return chip("missed", "used up")
    return chip("unknown", "not judged") if claims_nothing else chip("met", "within")


def left_text(left: float | None) -> str:
    """The share of the error budget that is left."""
    if left is None:
        return "not known"
    if left == float("-inf"):
        return "overspent"
    return f"overspent {formatting.factor(1 - left)}" if left < 0 else f"{formatting.percent(left)} left"


def budgets_table(budgets: Sequence[ErrorBudget], caption: str, *, claims_nothing: bool = False) -> str:
    """Every objective: its budget and the burn rate of each window."""
    heads = "".join(f'<th scope="col" class="num">{window}</th>' for window in SHOWN_WINDOWS)
    rows = "".join(_row(budget, claims_nothing=claims_nothing) for budget in budgets)
    return (
        f'<div class="vp vp-wide" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>"
        '<th scope="col">objective</th><th scope="col">state</th><th scope="col">error budget, 28 days</th>'
        f"{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(budget: ErrorBudget, *, claims_nothing: bool) -> str:
    cells = "".join(_cell(window, budget.counted) for window in budget.windows)
    left = budget.budget_left if budget.is_met is not None else None
    gauge = ""
    if left is not None and state_of(budget, claims_nothing=claims_nothing) != "unknown":
        missed = " missed" if left < 0 else ""
        gauge = f'<div class="vp-gauge{missed}"><i style="width:{css_percent(max(0.0, min(1.0, left)))}"></i></div>'
    state = state_chip(budget, claims_nothing=claims_nothing)
    return (
        f'<tr><th scope="row" class="vp-objective"><b>{escape(budget.title)}</b>'
        f'<span class="hint">{escape(budget.sentence)}</span></th>'
        f"<td>{state}</td><td>{gauge}{escape(left_text(left))}</td>{cells}</tr>"
    )


def _cell(window: WindowBudget, counted: str) -> str:
    counts = window.counts
    if window.burn_rate is None:
        return f'<td class="num few">no {counted}</td>'
    few = "" if window.is_enough else " few"
    title = f"{counts.bad:,} bad of {formatting.count(counts.eligible, counted[:-1])}"
    mark = " vp-burning" if window.burn_rate > 1 and window.is_enough else ""
    note = "" if window.is_enough else '<span class="hint"> few</span>'
    return (
        f'<td class="num{few}{mark}" title="{escape(title)}">{burn_text(window.burn_rate)}{note}'
        f'<span class="vp-below">{counts.bad:,} / {counts.eligible:,}</span></td>'
    )


def burn_text(rate: float) -> str:
    """A burn rate: `×1.5`; 1 uses the budget up exactly at the end of the period."""
    return formatting.factor(rate) if rate != float("inf") else "no budget"


def days_rows(budget: ErrorBudget) -> list[Row]:
    """What was left at the end of each day, as a share of the budget, oldest first; `text` has it in full."""
    return [
        {
            "day": -day.days_ago,
            "left": None if day.budget_left is None else max(_LOWEST_DRAWN, day.budget_left),
            "text": left_text(day.budget_left),
            "bad": day.counts.bad,
            "turns": day.counts.eligible,
        }
        for day in budget.days
    ]


def days_table(budget: ErrorBudget) -> ChartTable:
    """The same as text."""
    return ChartTable(
        "error budget left at the end of each day",
        ("days ago", "left", "bad turns", "turns"),
        [
            (str(day.days_ago), left_text(day.budget_left), f"{day.counts.bad:,}", f"{day.counts.eligible:,}")
            for day in budget.days
        ],
    )


def days_spec(colors: Palette) -> Row:
    """The budget left as a line over the days, from all of it to none (dotted) and beyond."""
    base = alt.Chart(alt.NamedData("rows"))
    x = alt.X("day:Q", title="days from now", axis=alt.Axis(grid=False, tickMinStep=1))
    tips = [
        alt.Tooltip("text:N", title="budget"),
        alt.Tooltip("bad:Q", title="bad turns"),
        alt.Tooltip("turns:Q", title="turns"),
    ]
    line = base.mark_line(interpolate="linear", color=colors.p95, point=alt.OverlayMarkDef(size=22)).encode(
        x=x,
        y=alt.Y(
            "left:Q",
            title="budget left",
            scale=alt.Scale(domainMax=1),
            axis=alt.Axis(format="%", tickCount=5, labelExpr=_AXIS_LABEL),
        ),
        tooltip=tips,
    )
    empty = (
        base.transform_aggregate(rows="count()").mark_rule(color=colors.ink, strokeDash=[2, 3]).encode(y=alt.YDatum(0))
    )
    return finished(alt.layer(line, empty).properties(height=_HEIGHT), colors)
