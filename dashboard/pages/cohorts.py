"""The Cohorts page: two cohorts compared, the verdict's sentence first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Final, cast, get_args

import streamlit as st

from dashboard import charts, descriptions
from dashboard.components import frame, verdicts
from dashboard.components.frame import PageContext
from dashboard.components.markup import (
    Html,
    State,
    chip,
    empty,
    escape,
    fact_line,
    hint,
    link_to,
    listed,
    note,
    section,
)
from dashboard.components.selectors import linked_select, parameter_select
from dashboard.links import Choice
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.rollout.cohort_comparison import CohortComparison, CohortFigure, ComparisonSentence, ComparisonState
from telemetry.rollout.progress import CheckRow, LoggedVerdict
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.cohorts import CohortsAnswer, CohortsQuestion, ComparedTurns, CoveringRollout

CONTROL: Final = "control"
CANDIDATE: Final = "candidate"
TURNS: Final = "turns"
_TURNS: Final[dict[str, str]] = {"verdict": "of the rollout's verdict", "chosen": "of the run and time above"}
_NO_COHORTS: Final = (
    "Turns name their cohort where the callers do, <code>voiceprobe run … --cohort canary</code>, or the service: "
    "the attribute <code>feature_flag.result.variant</code> of its spans."
)
_NO_COMPARISON: Final = (
    "One of the cohorts has no turn among these. Choose other turns above, or see what share the flag gives it."
)
_NARROWS_NOTHING: Final = "The cohort that is chosen above does not narrow what is compared here."
_STATES: Final[dict[ComparisonState, tuple[State, str]]] = {
    "worse": ("missed", "worse"),
    "within": ("met", "within every margin"),
    "open": ("unknown", "not decided"),
}
# Each is of one look: what is judged is the share of turns beyond the margin.
_SHOWN_INTERVALS: Final = "differences with 95 % intervals, which decide nothing"


def ask(source: Source, link: Mapping[str, str]) -> CohortsAnswer:
    """Answer a link. Raises StoreError if the store cannot be read."""
    turns = link.get(TURNS)
    return source.reader.cohorts_page(
        CohortsQuestion(
            view=Choice.of(link)[0].view(source.objectives),
            control=link.get(CONTROL) or None,
            candidate=link.get(CANDIDATE) or None,
            turns=cast("ComparedTurns", turns) if turns in get_args(ComparedTurns) else None,
        )
    )


def _figures(view: CohortsAnswer, _run: RunRecord, _summary: Summary, context: PageContext) -> None:
    comparison = view.comparison
    if comparison is None:
        named = f"Only <code>{escape(view.cohorts[0])}</code> is there." if view.cohorts else "No turn names a cohort."
        st.html(empty("Nothing to compare", named, _NO_COHORTS))
        _choose(view, None)
        return
    rollout = "" if view.rollout is None else view.rollout.name
    link = replace(Choice(), store=context.choice.store).link("rollout", rollout=rollout)
    st.html(verdict_parts(view, context.now_unix_ns, context.zone, link))
    if context.choice.cohort is not None:
        st.html(hint(_NARROWS_NOTHING))
    _choose(view, comparison)
    if not comparison.figures:
        st.html(empty("Nothing to compare", _NO_COMPARISON) + verdicts.soundness(comparison))
        return
    _latencies(comparison)
    ratios = [figure for figure in comparison.figures if figure.group == "ratio"]
    caption = "ratios: shares of what is bad, and costs, so that more is worse; bounds hold at every look"
    st.html(figures_table(ratios, caption))
    _slices(comparison)
    st.html(section("Sample ratio and completeness") + verdicts.soundness(comparison))


def _latencies(comparison: CohortComparison) -> None:
    with st.container(key="halves"):
        left, right = st.columns([1.5, 1], gap="medium")
    with left:
        st.html(section("Voice to voice: share of turns answered within a time"))
        fewest, needed = min(comparison.control.eligible, comparison.candidate.eligible), MIN_COUNT_FOR["p95"]
        if not comparison.curves:
            st.html(hint("No turn of these was answered."))
        elif fewest < needed:
            st.html(hint(f"Too few turns to draw: {fewest} of the {needed} that a p95 needs."))
        else:
            charts.draw(charts.curves(comparison))
    with right:
        headline_rows = [
            figure.row if figure.decides else replace(figure.row, status="shown")
            for figure in comparison.figures
            if figure.statistic is not None
        ]
        st.html(section(f"Voice to voice: {_SHOWN_INTERVALS}"))
        says = "Differences of voice to voice with 95 % intervals against the margin"
        _differences(comparison, headline_rows, says, "figure")
    latencies = [figure for figure in comparison.figures if figure.group == "latency"]
    st.html(figures_table(latencies, "latencies; the share of turns beyond the margin decides, at every look"))
    # As of the primary: the first row may be of another quantile.
    rows = sorted((figure.row for figure in latencies), key=lambda row: row.name != comparison.primary)
    if remark := verdicts.explanation(rows):
        st.html(remark)


def _slices(comparison: CohortComparison) -> None:
    remark = (
        "where a difference is; they do not change the verdict. A slice is worse if its share of turns slower than "
        f"the control is, after Holm's correction for their number; {_SHOWN_INTERVALS}"
    )
    st.html(section(f"Slices: {comparison.primary}", remark))
    if comparison.slices and all(row.lower is not None and row.upper is not None for row in comparison.slices):
        says = f"Differences of {comparison.primary} in each slice with 95 % intervals against the margin"
        _differences(comparison, comparison.slices, says, "slice")
    elif comparison.slices:
        st.html(verdicts.check_table(comparison.slices, f"slices of {comparison.primary}", "slice"))
    if comparison.left_out or not comparison.slices:
        left_out = ", ".join(comparison.left_out) or "no turn names a noise, a length or a route"
        st.html(hint(f"Too few turns to compare: {left_out}"))


def _differences(comparison: CohortComparison, rows: Sequence[CheckRow], says: str, first: str) -> None:
    picture = charts.differences(comparison, rows, says, first)
    if picture.rows:
        charts.draw(picture)
    else:
        st.html(hint("None of these has bounds yet: the tables say why."))


def _choose(view: CohortsAnswer, comparison: CohortComparison | None) -> None:
    """Draw how much is compared, and selectors of cohorts and turns if there is a choice. The link stores the
    selection."""
    columns = st.columns([1.4, 1, 1, 1], gap="small", vertical_alignment="center")
    if comparison is not None:
        with columns[0]:
            st.html(sizes(comparison))
        pair = {CONTROL: comparison.control.cohort, CANDIDATE: comparison.candidate.cohort}
        cohorts = sorted({*view.cohorts, *pair.values()})
        if len(cohorts) > 2:
            for column, name in zip(columns[1:], pair, strict=False):
                with column:
                    linked_select(
                        name.capitalize(),
                        cohorts,
                        pair[name],
                        key=f"cohorts_{name}",
                        label_of=str,
                        rewrite=_rewrite_link,
                        name=name,
                        pair=pair,
                    )
    if view.rollout is not None and view.rollout.verdict is not None:
        with columns[-1]:
            parameter_select(TURNS, "Compared turns", list(_TURNS), view.turns, _TURNS.__getitem__)


def _rewrite_link(name: str, pair: Mapping[str, str]) -> None:
    """Write the pair into the link; choosing the same cohort twice swaps the two."""
    changed = {**pair, name: st.session_state[f"cohorts_{name}"]}
    if changed[CONTROL] == changed[CANDIDATE]:
        changed = {CONTROL: pair[CANDIDATE], CANDIDATE: pair[CONTROL]}
    st.query_params.update(changed)


def _says_limit(view: CohortsAnswer) -> str:
    """Return the note that the rollout's plan limits the share of invalid turns; empty without a rollout."""
    if view.rollout is None or view.comparison is None or view.summary is None or view.summary.limit is None:
        return ""
    allowed = formatting.declared_percent(view.comparison.limits.invalid_turns)
    decides = f"the plan of the rollout {view.rollout.name} decides, which allows {allowed} invalid turns"
    return note("judged by its plan", [view.summary.limit.reason, decides])


def verdict_parts(view: CohortsAnswer, now_unix_ns: int, zone: tzinfo, link: str) -> Html:
    """The first part of the page: the rollout's verdict if there is one, and the comparison's own sentence if it covers
    other turns than that verdict."""
    parts: list[str] = []
    of, own = view.rollout, view.sentence
    if of is not None:
        page = link_to(link, f"rollout {of.name}")
        if of.verdict is None:
            parts.append(hint(Html(f"The {page} has no verdict yet.")))
        else:
            about = f"{page}: {_which_turns(of, of.verdict, zone)}"
            parts.append(verdicts.verdict(of.verdict, now_unix_ns, zone, about, cause=of.cause))
    if own is not None:
        parts.append(own_sentence(own, is_of_others=of is not None and of.verdict is not None))
    return Html("".join(parts))


def _which_turns(of: CoveringRollout, newest: LoggedVerdict, zone: tzinfo) -> Html:
    """Describe the turns that the verdict covers."""
    begin = "the first turn" if newest.since_unix_ns is None else descriptions.day_and_time(newest.since_unix_ns, zone)
    late = f"; {formatting.turns(of.late_turns)} of them came in later" if of.late_turns else ""
    until = descriptions.day_and_time(newest.at_unix_ns, zone)
    return escape(f"over the turns of stage {newest.stage}, from {begin} to {until}, of every run{late}")


def own_sentence(comparison: ComparisonSentence, *, is_of_others: bool) -> Html:
    """The comparison's own sentence; if a rollout has a verdict, the sentence is marked as one about other turns."""
    parts = listed(comparison.reasons) + listed([comparison.basis], "hint")
    if not is_of_others:
        return verdicts.sentence(*_STATES[comparison.state], comparison.sentence, parts)
    others = listed(["these are other turns than those of the verdict above, which is in force"], "hint")
    title = f"{chip('unknown', 'no verdict')} of the turns that were chosen here: {escape(comparison.sentence)}"
    return Html(f'<div class="vp vp-note"><b>{title}</b><ul>{parts}{others}</ul></div>')


def sizes(comparison: CohortComparison) -> Html:
    """One line on how many turns are compared and how they were sampled."""
    parts = [
        f"<span><b>{formatting.turns(of.eligible)}</b> of {escape(of.cohort)} ({role})</span>"
        for of, role in ((comparison.candidate, "candidate"), (comparison.control, "control"))
    ]
    if comparison.one_in > 1:
        one_in = formatting.number(comparison.one_in)
        drawn = f"{formatting.APPROXIMATELY} taken over one in {one_in} callers, the same ones"
        parts.append(f"<span>{drawn} each time: the bounds are as wide as that asks for</span>")
    return fact_line(parts)


def figures_table(rows: Sequence[CohortFigure], caption: str) -> Html:
    """A table of the figures of both cohorts and their differences, in their order."""
    assumed = ' <span class="hint">assumed</span>'
    cells = [
        (figure.row, verdicts.status(figure.row, is_judged=figure.decides), assumed if figure.is_assumed else "")
        for figure in rows
    ]
    return verdicts.figure_table(cells, caption, "figure")


PAGE: Final = frame.run_page("Cohorts", ask, _figures, says_limit=_says_limit)
page: Final = PAGE.show
