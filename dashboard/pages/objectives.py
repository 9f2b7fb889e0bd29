"""The Objectives page: what is left of each error budget, and how fast it goes; missed ones first."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import streamlit as st

from dashboard.charts.style import palette
from dashboard.components import frame, header, objectives
from dashboard.components.chart import chart
from dashboard.components.frame import DashboardPage, PageContext, start_a_run, why_no_turn
from dashboard.components.markup import escape
from dashboard.components.selectors import run_selector, selector_row, value_selector
from dashboard.components.trust import turns_details, turns_trust
from dashboard.descriptions import day_and_time
from dashboard.links import Choice, choice_of
from dashboard.source import Source, source_of, store_of
from telemetry.model import formatting
from telemetry.objectives.error_budgets import ErrorBudget
from telemetry.store.questions.burn_rates import BurnRateAnswer, ObjectivesPage

TITLE: Final = "Objectives"
_OBJECTIVE: Final = "objective"
EVERY_RUN: Final = "every run of this store"
# What narrows the turns beside the run.
_NARROWING: Final = ("cohort", "length", "noise", "route")
_SOURCES: Final = {"client": "as callers heard it", "service": "as services report of themselves"}


def page() -> None:
    """Draw the page; below the selectors it refreshes by itself."""
    PAGE.show()


def ask(source: Source, link: Mapping[str, str]) -> ObjectivesPage:
    """What a link asks for; its time and its phase are for other pages. Raises StoreError when the store cannot be
    read."""
    f = replace(choice_of(link)[0].view().filter, phase=None)
    return source.reader.objectives_page(source.objectives, f)


def _offered(view: ObjectivesPage) -> tuple[list[str], Mapping[str, tuple[str, ...]]]:
    return [each.run_id for each in view.runs], view.choices


def _selectors(view: ObjectivesPage, link: Mapping[str, str]) -> None:
    choice, faults = choice_of(link)
    run = run_selector(view.runs, choice, EVERY_RUN, view.run)
    behind = [value_selector(view, choice, name, f"any {name}") for name in ("length", "noise", "route")]
    cohort = value_selector(view, choice, "cohort", "every cohort")
    selector_row(TITLE, [run, cohort], behind, widths=(3.0, 1.6))
    if faults:
        st.html(header.notes(faults, "the link"))


def _draw(view: ObjectivesPage, context: PageContext) -> None:
    frame.say_fault_of_objectives(context.link)
    if view.burn.newest_unix_ns is None:
        st.html(_nothing(view, context))
        return
    frame.head(_overview(view, context), turns_trust(view.measured), turns_details(view.measured))
    answer = view.burn
    if answer.limited.turns:
        st.html(header.notes([_limited(answer)], "generator-limited runs are among them"))
    caption = "burn rate of each window: ×1 uses the budget up in 28 days"
    st.html(objectives.budgets_table(answer.budgets, caption, claims_nothing=answer.claims_nothing))
    _over_time(answer)


def _nothing(view: ObjectivesPage, context: PageContext) -> str:
    """Why there is no figure, as HTML."""
    choice = context.choice
    if choice.run is not None and view.run is None:
        return frame.unknown_run(choice.run)
    if view.burn.counted.invalid:
        turns = formatting.count(view.burn.counted.invalid, "turn matches", "turns match")
        return header.empty("No valid turn within 28 days", f"{turns} what is chosen above, all of them invalid.")
    if not _narrowed(choice):
        return header.empty("No turns within 28 days", *why_no_turn(store_of(context.link), None), start_a_run())
    return header.empty("No turn within 28 days matches the filter", "Widen the filter above.")


def _overview(view: ObjectivesPage, context: PageContext) -> str:
    answer = view.burn
    states = [objectives.state_of(each, claims_nothing=answer.claims_nothing) for each in answer.budgets]
    burning = sum(each.fires for each in answer.budgets)
    unknown = "not judged" if answer.claims_nothing else "with too few turns"
    labels = {"missed": "missed or burning", "met": "within their budget", "unknown": unknown}
    counted = [f"<b>{states.count(state)}</b> {words}" for state, words in labels.items() if state in states]
    newest = f"{day_and_time(answer.newest_unix_ns or 0, context.zone)}"
    alerts = formatting.count(burning, "alert fires", "alerts fire") if burning else "no alert fires"
    return (
        f'<div class="vp vp-facts">{_scope(view, context.choice)}'
        f"<span>{' · '.join(counted)}</span><span>{escape(alerts)}</span>"
        f'<span class="hint">{_SOURCES[answer.source]}, newest turn {escape(newest)}; every window ends now'
        f"{_ignored(context.choice)}; an alert that pages at ×14.4 (1 h and 5 min) or ×6 (6 h and 30 min), one that "
        "opens a ticket at ×1 (3 d and 6 h)</span></div>"
    )


def _scope(view: ObjectivesPage, choice: Choice) -> str:
    """Which turns the figures are of: a link may have narrowed them."""
    of_run = choice.run or f"{EVERY_RUN} ({formatting.number(view.evidence.runs)})"
    narrowed = [
        ("run", of_run),
        *((name, value) for name in _NARROWING if (value := getattr(choice, name)) is not None),
    ]
    return "".join(f'<span><span class="key">{name}</span>{escape(value)}</span>' for name, value in narrowed)


def _ignored(choice: Choice) -> str:
    """What of a link from another page is not looked at."""
    names = [name for name, value in (("time", choice.window), ("phase", choice.phase)) if value is not None]
    return f", whatever {' and '.join(names)} the link names for other pages" if names else ""


def _narrowed(choice: Choice) -> bool:
    return choice.run is not None or any(getattr(choice, name) is not None for name in _NARROWING)


def _limited(answer: BurnRateAnswer) -> str:
    """What part of the turns says nothing about the service where each run is judged by itself."""
    turns, runs = formatting.turns(answer.limited.turns), formatting.count(answer.limited.runs, "run")
    return (
        f"{turns} of these are of {runs} whose load generator was the limit, not the service. Such a run claims "
        "nothing; the budgets, as the counters that alerts read, count its valid turns all the same."
    )


def _over_time(answer: BurnRateAnswer) -> None:
    known: dict[str, ErrorBudget] = {each.name: each for each in answer.budgets if each.is_met is not None}
    if not known:
        return
    name = st.selectbox(
        "Error budget over 28 days", list(known), format_func=lambda each: known[each].title, key=_OBJECTIVE
    )
    shown = known.get(name) or next(iter(known.values()))
    chart(
        objectives.days_rows(shown),
        objectives.days_spec(palette(st.context.theme.type)),
        f"Error budget of {shown.title} over 28 days: {objectives.left_text(shown.budget_left)} now",
        objectives.days_table(shown),
    )


PAGE: Final = DashboardPage(
    TITLE,
    lambda link: ask(source_of(link), link),
    selectors=_selectors,
    offered=_offered,
    least_s=lambda _view: frame.REFRESH_STALE_S,
    draw=_draw,
)
