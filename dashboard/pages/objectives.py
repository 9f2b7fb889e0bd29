"""The Objectives page: how much of each error budget is left, and how fast it is spent; missed objectives first."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import streamlit as st

from dashboard.charts import budget_days, draw
from dashboard.components import frame, objectives
from dashboard.components.frame import DashboardPage, PageContext, start_a_run, why_no_turn
from dashboard.components.markup import Html, empty, escape, fact, fact_line, note
from dashboard.components.selectors import SelectorRow, parameter_select, run_selector, value_selector
from dashboard.components.trust import turns_trust
from dashboard.descriptions import day_and_time
from dashboard.links import Choice
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.store.questions.burn_rates import BurnRateAnswer, ObjectivesPage

OBJECTIVE: Final = "objective"
EVERY_RUN: Final = "every run of this store"
# The parameters that restrict the turns besides the run.
_NARROWING: Final = ("cohort", "length", "noise", "route")
_SOURCES: Final = {"client": "as callers heard it", "service": "as services report of themselves"}
_CAPTION: Final = "burn rate of each window: ×1 uses the budget up in 28 days"
_ALERTS: Final = (
    "an alert that pages at ×14.4 (1 h and 5 min) or ×6 (6 h and 30 min), one that opens a ticket at ×1 (3 d and 6 h)"
)


def ask(source: Source, link: Mapping[str, str]) -> ObjectivesPage:
    """Answer a link without its time and phase, which are for other pages. Raises StoreError if the store cannot be
    read."""
    f = replace(Choice.of(link)[0].view().filter, phase=None)
    return source.reader.objectives_page(source.objectives, f)


def _selectors(view: ObjectivesPage, context: PageContext) -> tuple[SelectorRow, list[str]]:
    choice, faults = Choice.of(context.link)
    elsewhere = () if context.source is None else context.source.elsewhere
    run = run_selector(view.runs, choice, EVERY_RUN, elsewhere, linked=view.run)
    in_sight = ((run, 3.0), (value_selector(view, choice, "cohort"), 1.6))
    return SelectorRow(in_sight, [value_selector(view, choice, name) for name in _NARROWING[1:]]), faults


def _draw(view: ObjectivesPage, context: PageContext) -> None:
    answer = view.burn
    if answer.newest_unix_ns is None:
        st.html(_nothing(view, context))
        return
    frame.head(_overview(view, context), turns_trust(view.measured))
    if answer.limited.turns:
        st.html(note("generator-limited runs are among them", [_limited(answer)]))
    st.html(objectives.budgets_table(answer.budgets, _CAPTION, claims_nothing=answer.claims_nothing))
    known = {budget.name: budget for budget in answer.budgets if budget.is_met is not None}
    if known:
        wanted = context.link.get(OBJECTIVE, "")
        chosen = wanted if wanted in known else next(iter(known))
        label_of = {name: budget.title for name, budget in known.items()}.__getitem__
        parameter_select(OBJECTIVE, "Error budget over 28 days", list(known), chosen, label_of)
        draw(budget_days(known[chosen]))


def _nothing(view: ObjectivesPage, context: PageContext) -> Html:
    """The content of the page if there are no figures."""
    choice = context.choice
    if choice.run is not None and view.run is None:
        return frame.unknown_run(choice.run)
    if view.burn.counted.invalid:
        turns = formatting.count(view.burn.counted.invalid, "turn matches", "turns match")
        return empty("No valid turn within 28 days", f"{turns} what is chosen above, all of them invalid.")
    if choice.run is None and not any(getattr(choice, name) for name in _NARROWING):
        return empty("No turns within 28 days", *why_no_turn(context.store, None), start_a_run())
    return empty("No turn within 28 days matches the filter", "Widen the filter above.")


def _overview(view: ObjectivesPage, context: PageContext) -> Html:
    answer, choice = view.burn, context.choice
    states = [objectives.state_of(budget, claims_nothing=answer.claims_nothing) for budget in answer.budgets]
    burning = sum(budget.fires for budget in answer.budgets)
    unknown = "not judged" if answer.claims_nothing else "with too few turns"
    labels = {"missed": "missed or burning", "met": "within their budget", "unknown": unknown}
    counted = [f"<b>{states.count(state)}</b> {words}" for state, words in labels.items() if state in states]
    newest = day_and_time(answer.newest_unix_ns or 0, context.zone)
    alerts = formatting.count(burning, "alert fires", "alerts fire") if burning else "no alert fires"
    # The turns that the figures cover, and the parameters of a link from another page that are ignored.
    narrowed = [(name, value) for name in _NARROWING if (value := getattr(choice, name)) is not None]
    ignored = " and ".join(name for name, value in (("time", choice.window), ("phase", choice.phase)) if value)
    whatever = f", whatever {ignored} the link names for other pages" if ignored else ""
    parts = [
        fact("run", choice.run or f"{EVERY_RUN} ({formatting.number(view.evidence.runs)})"),
        *(fact(name, value) for name, value in narrowed),
        f"<span>{' · '.join(counted)}</span><span>{escape(alerts)}</span>",
        f'<span class="hint">{_SOURCES[answer.source]}, newest turn {escape(newest)}; windows end at the current time'
        f"{whatever}; {_ALERTS}</span>",
    ]
    return fact_line(parts)


def _limited(answer: BurnRateAnswer) -> str:
    """A sentence on the turns of runs in which the load generator was the limit."""
    turns, runs = formatting.turns(answer.limited.turns), formatting.count(answer.limited.runs, "run")
    return (
        f"{turns} of these are of {runs} whose load generator was the limit, not the service. Such a run claims "
        "nothing; the budgets, as the counters that alerts read, count its valid turns all the same."
    )


PAGE: Final = DashboardPage(
    "Objectives",
    ask,
    _draw,
    _selectors,
    offered=lambda view: ([run.run_id for run in view.runs], view.choices),
    least_s=lambda _view: frame.REFRESH_STALE_S,
)
page: Final = PAGE.show
