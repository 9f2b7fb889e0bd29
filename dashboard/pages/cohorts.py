"""The Cohorts page: two cohorts beside each other, the verdict's sentence first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Final, cast, get_args

import streamlit as st

from dashboard import descriptions
from dashboard.charts import differences
from dashboard.charts.style import palette
from dashboard.components import frame, header, verdicts
from dashboard.components.chart import chart
from dashboard.components.frame import PageContext
from dashboard.components.markup import escape
from dashboard.components.objectives import State, chip
from dashboard.components.selectors import linked_select
from dashboard.links import NEWEST, Choice, choice_of
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.formatting import declared_percent
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.rollout.cohort_comparison import (
    CohortComparison,
    CohortFigure,
    CohortSize,
    ComparisonSentence,
    ComparisonState,
)
from telemetry.rollout.completeness import met_both, split_notes
from telemetry.rollout.progress import LoggedVerdict
from telemetry.store.answers import Filter, RunRecord, Summary
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
    st.html(verdict_parts(view, context.now_unix_ns, context.zone, link))
    if context.choice.cohort is not None:
        st.html('<div class="vp hint">The cohort that is chosen above does not narrow what is compared here.</div>')
    _choose(view, found)
    if not found.figures:
        st.html(header.empty("Nothing to compare", _NO_COMPARISON))
        st.html(soundness(found))
        return
    _latencies(found)
    ratios = [each for each in found.figures if each.group == "ratio"]
    st.html(figures_table(ratios, f"ratios: shares of what is bad, and costs, so that more is worse{_HOLDS}"))
    _slices(found)
    st.html('<div class="vp"><h2>Sample ratio and completeness</h2></div>')
    st.html(soundness(found))


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
    st.html(figures_table(latencies, "latencies; the share of turns beyond the margin decides, at every look"))
    # As of the primary: the first row may be of another quantile.
    rows = sorted((each.row for each in latencies), key=lambda row: row.name != found.primary)
    if note := verdicts.explanation(rows):
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
        differences.curve_rows(found.curves),
        differences.curve_spec(palette(st.context.theme.type), pair),
        f"Cumulative share of turns by voice to voice, {pair[0]} beside {pair[1]}",
        differences.curve_table(found.curves),
    )


def _slices(found: CohortComparison) -> None:
    st.html(
        f'<div class="vp"><h2>Slices: {escape(found.primary)} <span class="hint">where a difference is; they do not '
        "change the verdict. A slice is worse if its share of turns slower than the control is, after Holm's "
        f"correction for their number; {_SHOWN_INTERVALS}</span></h2></div>"
    )
    if found.slices:
        if len(differences.difference_rows(found.slices)) == len(found.slices):
            says = f"Differences of {found.primary} in each slice with 95 % intervals against the margin"
            _forest(found, found.slices, says, "slice")
        else:
            st.html(verdicts.check_table(found.slices, f"slices of {found.primary}", "slice"))
    if found.left_out or not found.slices:
        left_out = ", ".join(map(escape, found.left_out)) or "no turn names a noise, a length or a route"
        st.html(f'<div class="vp hint">Too few turns to compare: {left_out}</div>')


def _forest(found: CohortComparison, rows: Sequence[differences.CheckRow], says: str, first: str) -> None:
    drawn = differences.difference_rows(rows)
    if not drawn:
        st.html('<div class="vp hint">None of these has bounds yet: the tables say why.</div>')
        return
    chart(
        drawn,
        differences.difference_spec(
            palette(st.context.theme.type), [row["name"] for row in drawn], found.unit, found.margin, found.margin_text
        ),
        says,
        differences.difference_table(rows, says[0].lower() + says[1:], first),
    )


def _choose(view: CohortsAnswer, found: CohortComparison | None) -> None:
    """How much is compared, and which cohorts and turns, where there is something to choose. The link keeps it."""
    columns = st.columns([1.4, 1, 1, 1], gap="small", vertical_alignment="center")
    if found is not None:
        with columns[0]:
            st.html(sizes(found))
        pair = {CONTROL: found.control.cohort, CANDIDATE: found.candidate.cohort}
        cohorts = sorted({*view.cohorts, *pair.values()})
        if len(cohorts) > 2:
            for column, name in zip(columns[1:], pair, strict=False):
                with column:
                    _select(name, name.capitalize(), cohorts, pair[name], pair)
    if view.rollout is not None and view.rollout.verdict is not None:
        with columns[-1]:
            _select(TURNS, "Compared turns", list(_TURNS), view.turns, {})


def _select(name: str, label: str, options: Sequence[str], chosen: str, pair: Mapping[str, str]) -> None:
    """What is shown decides, also when it is not what was asked for."""

    def label_of(option: str) -> str:
        return _TURNS[option] if name == TURNS else option

    key = f"cohorts_{name}"
    linked_select(label, options, chosen, key=key, label_of=label_of, rewrite=_rewrite_link, name=name, pair=pair)


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


_STATES: Final[dict[ComparisonState, State]] = {"worse": "missed", "within": "met", "open": "unknown"}
_WORDS: Final[dict[ComparisonState, str]] = {"worse": "worse", "within": "within every margin", "open": "not decided"}


def verdict_parts(view: CohortsAnswer, now_unix_ns: int, zone: tzinfo, link: str) -> str:
    """What is first on the page: the rollout's verdict where there is one, and what the turns below come to where they
    are others than that verdict's."""
    parts: list[str] = []
    of = view.rollout
    if of is not None:
        page = f'<a href="{escape(link)}" target="_self">rollout {escape(of.name)}</a>'
        if of.faults:
            items = "".join(f"<li>{escape(fault)}</li>" for fault in of.faults)
            heading = chip("missed", "the log was changed by others: no verdict of it counts")
            parts.append(f'<div class="vp vp-note missed"><b>{heading}</b> {page}<ul>{items}</ul></div>')
        elif of.verdict is None:
            parts.append(f'<div class="vp hint">The {page} has no verdict yet.</div>')
        else:
            about = f"{page}: {_which_turns(of, of.verdict, zone)}"
            parts.append(verdicts.verdict(of.verdict, now_unix_ns, zone, about, cause=of.cause))
    if view.sentence is not None:
        parts.append(own_sentence(view.sentence, is_beside=of is not None and of.verdict is not None))
    return "".join(parts)


def _which_turns(of: CoveringRollout, newest: LoggedVerdict, zone: tzinfo) -> str:
    """Which turns the verdict is over."""
    begin = "the first turn" if newest.since_unix_ns is None else descriptions.day_and_time(newest.since_unix_ns, zone)
    late = f"; {formatting.turns(of.late_turns)} of them came in later" if of.late_turns else ""
    until = descriptions.day_and_time(newest.at_unix_ns, zone)
    return (
        f"over the turns of stage {escape(newest.stage)}, from {escape(begin)} to {escape(until)}, of every run{late}"
    )


def own_sentence(found: ComparisonSentence, *, is_beside: bool) -> str:
    """The comparison's own sentence; beside a rollout's verdict it is of a part of the turns, or of others."""
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in found.reasons)
    basis = f'<li class="hint">{escape(found.basis)}</li>'
    if is_beside:
        return (
            f'<div class="vp vp-note"><b>{chip("unknown", "no verdict")} of the turns that were chosen here: '
            f"{escape(found.sentence)}</b><ul>{reasons}{basis}"
            '<li class="hint">these are other turns than those of the verdict above, which stands</li></ul></div>'
        )
    state = _STATES[found.state]
    return (
        f'<div class="vp vp-note {state if state != "unknown" else ""} vp-verdict">'
        f"<b>{chip(state, _WORDS[found.state])} {escape(found.sentence)}</b><ul>{reasons}{basis}</ul></div>"
    )


def sizes(found: CohortComparison) -> str:
    """A line on how much is compared, and how it was drawn."""
    parts = [
        f"<span><b>{formatting.turns(of.eligible)}</b> of {escape(of.cohort)} ({role})</span>"
        for of, role in ((found.candidate, "candidate"), (found.control, "control"))
    ]
    if found.one_in > 1:
        parts.append(
            f"<span>{formatting.APPROXIMATELY} taken over one in {formatting.number(found.one_in)} callers, the same "
            "ones each time: the bounds are as wide as that asks for</span>"
        )
    return f'<div class="vp vp-facts vp-wrapped">{"".join(parts)}</div>'


def figures_table(rows: Sequence[CohortFigure], caption: str) -> str:
    """Figures of both cohorts with their differences, in their order."""
    with_beyond = any(each.row.beyond for each in rows)
    body = "".join(_figure(each, with_beyond=with_beyond) for each in rows)
    return verdicts.figure_table(body, caption, "figure", with_beyond=with_beyond)


def _figure(of: CohortFigure, *, with_beyond: bool) -> str:
    state = verdicts.status(of.row) if of.decides else verdicts.unjudged_status(of.row)
    assumed = ' <span class="hint">assumed</span>' if of.is_assumed else ""
    return verdicts.figure_row(of.row, state, with_beyond=with_beyond, margin_note=assumed)


def sample_ratio(found: CohortComparison) -> str:
    """Callers of both cohorts against the planned shares, how likely that split is, and what follows."""
    ratio = found.sample_ratio
    if ratio is None:
        callers = " and ".join(
            f"{formatting.count(each.callers, 'caller')} on {escape(each.cohort)}"
            for each in (found.candidate, found.control)
        )
        return _check("unknown", "not tested", f"Sample ratio: {callers}; {_not_tested(found)}.")
    split = (
        f"Sample ratio: {escape(ratio.split('the candidate'))} at stage {escape(found.stage or '')}; "
        f"p = {ratio.p_value:.2g} (exact binomial test), "
        f"{'below' if ratio.is_mismatch else 'at least'} {ratio.limit:g}: "
    )
    if ratio.is_mismatch:
        follows = "the split does not fit the plan: callers are lost on the way to one of them, and the rollout holds"
        return _check("missed", "mismatch", f"{split}{follows}.")
    (note,) = split_notes(ratio, "the candidate", "the control", are_named=True)
    if ratio.is_open:
        return _check("unknown", "not known", f"Sample ratio: {escape(note)}.")
    return _check("met", "fits", f"{split}the split fits the plan; {escape(note)}.")


def _not_tested(found: CohortComparison) -> str:
    if found.plan is None:
        return "no plan states the shares"
    if found.stage is None:
        return "these turns may be of several stages, with other shares each"
    if found.unit_name == "user" and found.units.unnamed_calls:
        return "users are assigned, and none is known"
    return f"there is no split to compare with at stage {escape(found.stage)}"


def completeness(found: CohortComparison) -> str:
    """Lost telemetry and invalid turns against what may be."""
    lost, limits = found.telemetry_lost, found.limits
    allowed = limits.telemetry_loss
    may = f"at most {formatting.declared_percent(allowed)} may be" if allowed else "none may be"
    if lost is None:
        text = "Telemetry: these turns carry no sequence numbers, so nothing says whether any is missing."
        telemetry = _check("unknown", "not known", text)
    else:
        is_sound = lost <= limits.telemetry_loss
        text = f"Telemetry: {formatting.percent(lost, allowed) if lost else 'none'} of the turns is missing by their "
        word = "no gap" if not lost else "few" if is_sound else "incomplete"
        telemetry = _check("met" if is_sound else "missed", word, f"{text}sequence numbers; {may}.")
    invalid = "".join(_invalid(each, limits.invalid_turns) for each in (found.candidate, found.control))
    return telemetry + invalid + _contaminated(found)


def _contaminated(found: CohortComparison) -> str:
    counts, limit = found.units, found.limits.contaminated_units
    if not counts.units:
        return ""
    is_sound = counts.contaminated_share <= limit
    text = (
        f"Both cohorts: {escape(met_both(counts, found.unit_name))} "
        f"({formatting.percent(counts.contaminated_share, limit)}); at most {formatting.declared_percent(limit)} may."
    )
    return _check("met" if is_sound else "missed", "apart" if is_sound else "too many", text)


def _invalid(of: CohortSize, limit: float) -> str:
    is_sound = of.invalid_share <= limit
    text = (
        f"Invalid turns of {escape(of.cohort)}: {formatting.number(of.invalid)} of {formatting.number(of.turns)} "
        f"({formatting.percent(of.invalid_share, limit)}); at most {formatting.declared_percent(limit)} may be."
    )
    return _check("met" if is_sound else "missed", "sound" if is_sound else "too many", text)


def _check(state: State, word: str, text: str) -> str:
    """A line of HTML behind its state."""
    return f"<li>{chip(state, word)} <span>{text}</span></li>"


def soundness(found: CohortComparison) -> str:
    """Sample ratio and completeness as a list."""
    return f'<div class="vp"><ul class="vp-checks">{sample_ratio(found)}{completeness(found)}</ul></div>'
