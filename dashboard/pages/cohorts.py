"""The Cohorts page: two cohorts beside each other, the verdict's sentence first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast, get_args

import streamlit as st

from dashboard import cohort_parts, difference_charts, frame, header, rollout_parts
from dashboard.accessible_chart import chart
from dashboard.filters import NEWEST, Choice, choice_of
from dashboard.frame import PageContext
from dashboard.markup import escape
from dashboard.palette import palette
from dashboard.source import Source
from telemetry.model.formatting import declared_percent
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.rollout.cohort_comparison import CohortComparison
from telemetry.store.answers import Filter, RunRecord, Summary
from telemetry.store.questions.cohorts import CohortsAnswer, CohortsQuestion, ComparedTurns

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


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    PAGE.show()


def ask(source: Source, link: Mapping[str, str]) -> CohortsAnswer:
    """What a link asks for. Raises StoreError when the store cannot be read."""
    return source.reader.cohorts_page(question(choice_of(link)[0], source, link))


def question(choice: Choice, source: Source, link: Mapping[str, str]) -> CohortsQuestion:
    """What a link asks for."""
    turns, view = link.get(TURNS), choice.view(source.objectives)
    if turns is None and choice.window == NEWEST and replace(view.filter, cohort=None) == Filter():
        turns = "verdict"  # nothing was chosen: the turns of a rollout's verdict go before the newest hour
    return CohortsQuestion(
        view=view,
        control=link.get(CONTROL) or None,
        candidate=link.get(CANDIDATE) or None,
        turns=cast("ComparedTurns", turns) if turns in get_args(ComparedTurns) else None,
    )


def _figures(view: CohortsAnswer, run: RunRecord, summary: Summary, context: PageContext) -> None:
    del run, summary
    found = view.comparison
    if found is None:
        named = f"Only <code>{escape(view.cohorts[0])}</code> is there." if view.cohorts else "No turn names a cohort."
        st.html(header.empty("Nothing to compare", named, _NO_COHORTS))
        _choose(view, None)
        return
    rollout = "" if view.rollout is None else view.rollout.name
    link = replace(Choice(), store=context.choice.store).link("rollout", rollout=rollout)
    st.html(cohort_parts.verdict(view, context.now_unix_ns, context.zone, link))
    if context.choice.cohort is not None:
        st.html('<div class="vp hint">The cohort that is chosen above does not narrow what is compared here.</div>')
    _choose(view, found)
    if not found.figures:
        st.html(header.empty("Nothing to compare", _NO_COMPARISON))
        st.html(cohort_parts.soundness(found))
        return
    _latencies(found)
    ratios = [each for each in found.figures if each.group == "ratio"]
    st.html(cohort_parts.figures(ratios, f"ratios: shares of what is bad, and costs, so that more is worse{_HOLDS}"))
    _slices(found)
    st.html('<div class="vp"><h2>Sample ratio and completeness</h2></div>')
    st.html(cohort_parts.soundness(found))


_HOLDS: Final = "; bounds hold at every look"
# Each is of one look: what is judged is the share of turns beyond the margin.
_SHOWN_INTERVALS: Final = "differences with 95 % intervals, which decide nothing"


def _latencies(found: CohortComparison) -> None:
    pair = (found.control.cohort, found.candidate.cohort)
    with st.container(key="halves"):
        left, right = st.columns([1.5, 1], gap="medium")
    with left:
        st.html('<div class="vp"><h2>Voice to voice: share of turns answered within a time</h2></div>')
        _curves(found, pair)
    with right:
        of_headline = [
            each.row if each.decides else replace(each.row, status="shown")
            for each in found.figures
            if each.statistic is not None
        ]
        st.html(f'<div class="vp"><h2>Voice to voice: {_SHOWN_INTERVALS}</h2></div>')
        _forest(found, of_headline, "Differences of voice to voice with 95 % intervals against the margin", "figure")
    latencies = [each for each in found.figures if each.group == "latency"]
    st.html(cohort_parts.figures(latencies, "latencies; the share of turns beyond the margin decides, at every look"))
    # As of the primary: the first row may be of another quantile.
    rows = sorted((each.row for each in latencies), key=lambda row: row.name != found.primary)
    if note := rollout_parts.explanation(rows):
        st.html(note)


def _curves(found: CohortComparison, pair: tuple[str, str]) -> None:
    if not found.curves:
        st.html('<div class="vp hint">No turn of these was answered.</div>')
        return
    fewest = min(found.control.eligible, found.candidate.eligible)
    if fewest < MIN_COUNT_FOR["p95"]:
        needed = MIN_COUNT_FOR["p95"]
        st.html(f'<div class="vp hint">Too few turns to draw: {fewest} of the {needed} that a p95 needs.</div>')
        return
    chart(
        difference_charts.curve_rows(found.curves),
        difference_charts.curve_spec(palette(st.context.theme.type), pair),
        f"Cumulative share of turns by voice to voice, {pair[0]} beside {pair[1]}",
        difference_charts.curve_table(found.curves),
    )


def _slices(found: CohortComparison) -> None:
    st.html(
        f'<div class="vp"><h2>Slices: {escape(found.primary)} <span class="hint">where a difference is; they do not '
        "change the verdict. A slice is worse if its share of turns slower than the control is, after Holm's "
        f"correction for their number; {_SHOWN_INTERVALS}</span></h2></div>"
    )
    if found.slices:
        if len(difference_charts.difference_rows(found.slices)) == len(found.slices):
            says = f"Differences of {found.primary} in each slice with 95 % intervals against the margin"
            _forest(found, found.slices, says, "slice")
        else:
            st.html(rollout_parts.check_table(found.slices, f"slices of {found.primary}", "slice"))
    if found.left_out or not found.slices:
        left_out = ", ".join(map(escape, found.left_out)) or "no turn names a noise, a length or a route"
        st.html(f'<div class="vp hint">Too few turns to compare: {left_out}</div>')


def _forest(found: CohortComparison, rows: Sequence[difference_charts.CheckRow], says: str, first: str) -> None:
    drawn = difference_charts.difference_rows(rows)
    if not drawn:
        st.html('<div class="vp hint">None of these has bounds yet: the tables say why.</div>')
        return
    chart(
        drawn,
        difference_charts.difference_spec(
            palette(st.context.theme.type), [row["name"] for row in drawn], found.unit, found.margin, found.margin_text
        ),
        says,
        difference_charts.difference_table(rows, says[0].lower() + says[1:], first),
    )


def _choose(view: CohortsAnswer, found: CohortComparison | None) -> None:
    """How much is compared, and which cohorts and turns, where there is something to choose. The link keeps it."""
    columns = st.columns([1.4, 1, 1, 1], gap="small", vertical_alignment="center")
    if found is not None:
        with columns[0]:
            st.html(cohort_parts.sizes(found))
        pair = {CONTROL: found.control.cohort, CANDIDATE: found.candidate.cohort}
        cohorts = sorted({*view.cohorts, *pair.values()})
        if len(cohorts) > 2:
            for column, name in zip(columns[1:], pair, strict=False):
                with column:
                    _select(name, name.capitalize(), {each: each for each in cohorts}, pair[name], pair)
    if view.rollout is not None and view.rollout.verdict is not None:
        with columns[-1]:
            _select(TURNS, "Compared turns", _TURNS, view.turns, {})


def _select(name: str, label: str, options: Mapping[str, str], chosen: str, pair: Mapping[str, str]) -> None:
    key = f"cohorts_{name}"
    if st.session_state.get(key) != chosen:
        st.session_state[key] = chosen  # what is shown decides, also when it is not what was asked for
    st.selectbox(
        label,
        list(options),
        format_func=lambda each: options[each],
        key=key,
        on_change=_rewrite_link,
        args=(name, pair),
    )


def _rewrite_link(name: str, pair: Mapping[str, str]) -> None:
    picked = st.session_state[f"cohorts_{name}"]
    changed = {**pair, name: picked}
    if pair and changed[CONTROL] == changed[CANDIDATE]:
        changed = {CONTROL: pair[CANDIDATE], CANDIDATE: pair[CONTROL]}
    st.query_params.update(changed)


def _says_limit(view: CohortsAnswer) -> str:
    """Where a rollout's plan covers the cohorts, what may be invalid is what it allows."""
    if view.rollout is None or view.comparison is None or view.summary is None or view.summary.limit is None:
        return ""
    allowed = declared_percent(view.comparison.limits.invalid_turns)
    decides = f"the plan of the rollout {view.rollout.name} decides, which allows {allowed} invalid turns"
    return header.notes([view.summary.limit.reason, decides], "judged by its plan")


PAGE: Final = frame.RunPage("Cohorts", ask, _figures, says_limit=_says_limit)
