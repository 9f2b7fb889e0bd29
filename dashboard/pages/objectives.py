"""The Objectives page: what is left of each error budget, and how fast it goes; missed ones first."""

import time
from collections.abc import Mapping
from datetime import tzinfo
from typing import Final

import streamlit as st

from dashboard import budget_tables, frame, header
from dashboard.accessible_chart import chart
from dashboard.asking_ahead import NextAnswer, next_answer
from dashboard.descriptions import day_and_time
from dashboard.markup import escape
from dashboard.objectives_in_force import objectives_in_force
from dashboard.opened_page import OpenedPage, PageContext, ended
from dashboard.palette import palette
from dashboard.source import Source, current_source, store_of
from dashboard.starting import start_a_run, why_no_turn
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.error_budgets import ErrorBudget
from telemetry.store.burn_rates import BurnRateAnswer

TITLE: Final = "Objectives"
# The windows end now: an answer is kept for so long though no turn has come.
_KEPT_S: Final = 30
_OBJECTIVE: Final = "objective"
_SOURCES: Final = {"client": "as callers heard it", "service": "as services report of themselves"}


def page() -> None:
    """Draw the page; it refreshes by itself."""
    frame.heading(TITLE)
    answers = next_answer(frame.REFRESH_STALE_S)
    st.fragment(lambda: _body(answers), run_every=frame.REFRESH_STALE_S)()


def ask(source: Source, link: Mapping[str, str]) -> BurnRateAnswer:
    """What the page asks, whatever the link. Raises StoreError when the store cannot be read."""
    del link
    objectives = tuple(source.objectives)
    key = ("burn_rates", time.time_ns() // (_KEPT_S * NS_PER_S))
    return source.ask(key, lambda reader: reader.burn_rates(objectives))


def _body(answers: NextAnswer) -> None:
    link = st.query_params.to_dict()
    try:
        store = store_of(link)
        answer = answers.after(
            lambda: ask(current_source(store), link), lambda: ask(current_source(store).ahead(), link)
        )
    except TelemetryError as error:
        frame.unreadable(error)
        return
    frame.say_fault_of_objectives(objectives_in_force(store))
    if answer.newest_unix_ns is None:
        if answer.faults:
            st.html(header.notes(answer.faults, frame.DAMAGED))
        st.html(header.empty("No turns within 28 days", *why_no_turn(store, None), start_a_run()))
        return
    for part in ended(_first(answer, PageContext(link, frame.viewer_zone(), time.time_ns()))):
        st.html(part)
    _over_time(answer)


def _first(answer: BurnRateAnswer, context: PageContext) -> list[str]:
    """All but the chart."""
    if answer.newest_unix_ns is None:
        return []
    found = [header.notes(answer.faults, frame.DAMAGED)] if answer.faults else []
    found.append(_overview(answer, context.zone))
    if answer.limited.turns:
        found.append(header.notes([_limited(answer)], "generator-limited runs are among them"))
    caption = "burn rate of each window: ×1 uses the budget up in 28 days"
    found.append(budget_tables.table(answer.budgets, caption, claims_nothing=answer.claims_nothing))
    return found


def _overview(answer: BurnRateAnswer, zone: tzinfo) -> str:
    states = [budget_tables.state_of(each, claims_nothing=answer.claims_nothing) for each in answer.budgets]
    burning = sum(each.fires for each in answer.budgets)
    unknown = "not judged" if answer.claims_nothing else "with too few turns"
    labels = {"missed": "missed or burning", "met": "within their budget", "unknown": unknown}
    counted = [f"<b>{states.count(state)}</b> {words}" for state, words in labels.items() if state in states]
    newest = f"{day_and_time(answer.newest_unix_ns or 0, zone)}"
    alerts = formatting.count(burning, "alert fires", "alerts fire") if burning else "no alert fires"
    return (
        f'<div class="vp vp-facts"><span>{" · ".join(counted)}</span><span>{escape(alerts)}</span>'
        f'<span class="hint">{_SOURCES[answer.source]}, newest turn {escape(newest)}; an alert that pages at ×14.4 '
        "(1 h and 5 min) or ×6 (6 h and 30 min), one that opens a ticket at ×1 (3 d and 6 h)</span></div>"
    )


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
        budget_tables.days_rows(shown),
        budget_tables.days_spec(palette(st.context.theme.type)),
        f"Error budget of {shown.title} over 28 days: {budget_tables.left_text(shown.budget_left)} now",
        budget_tables.days_table(shown),
    )


OPENED: Final = OpenedPage(TITLE, ask, _first)
