"""The Rollout page: the gate's newest verdict with its reasons, the stages, the bounds over time, and the history."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts import DECISIONS, draw, funnel
from dashboard.components import frame, objectives, verdicts
from dashboard.components.frame import DashboardPage, PageContext
from dashboard.components.markup import (
    Html,
    TableCell,
    chip,
    empty,
    escape,
    fact,
    fact_line,
    hint,
    section,
    table,
)
from dashboard.components.selectors import Selector, SelectorRow
from dashboard.components.trust import turns_trust
from dashboard.links import LOOKS, TIME_LABELS, RolloutChoice
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.rollout.progress import CheckRow, Funnel, RolloutProgress, StageProgress
from telemetry.store.questions.rollouts import RolloutPage

_NO_PLAN: Final = (
    "Write a plan (<code>rollout.toml</code>: cohorts, stages, margins) and give it to the sidecar: "
    "<code>voiceprobe sidecar --rollout rollout.toml</code>. It looks by itself, keeps each verdict, and this page "
    "shows them. <code>voiceprobe rollout check PLAN --store STORE</code> looks once; "
    "<code>voiceprobe demo --rollout</code> carries two rollouts through on this machine."
)
_SLICES: Final = "slices show where a difference is, corrected for their number; they do not change the verdict"
_HISTORY: Final = "the verdict's history: where the decision or the stage changed"


def ask(source: Source, link: Mapping[str, str]) -> RolloutPage:
    """Answer a link. Raises StoreError if the store cannot be read."""
    return source.reader.rollout_page(RolloutChoice.of(link)[0].rollout, source.objectives)


def _offered(answer: RolloutPage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rollouts and the stages to choose from."""
    return answer.names, () if answer.progress is None else tuple(stage.name for stage in answer.progress.stages)


def _selectors(answer: RolloutPage, context: PageContext) -> tuple[SelectorRow, list[str]]:
    choice, faults = RolloutChoice.of(context.link)
    names, stages = _offered(answer)
    if not names:
        return SelectorRow(), faults
    in_sight = (
        (Selector("rollout", names, choice.rollout, "newest rollout"), 3.0),
        (Selector("looks", LOOKS, choice.looks, "whole rollout", TIME_LABELS), 1.6),
    )
    labels: dict[str, str] = {**DECISIONS}
    behind = (
        Selector("at_stage", stages, choice.at_stage, "every stage"),
        Selector("decision", list(labels), choice.decision, "any verdict", labels),
    )
    return SelectorRow(in_sight, behind), faults


def _draw(answer: RolloutPage, context: PageContext) -> None:
    if not answer.names:
        st.html(empty("No rollout yet", _NO_PLAN))
        return
    choice, _ = RolloutChoice.of(context.link)
    if answer.name is None:
        wanted = f"The link asks for <code>{escape(choice.rollout)}</code>; choose another above."
        st.html(empty("That rollout is not in this store", wanted))
        return
    if answer.progress is None:
        st.html(empty(f"No verdict on {answer.name} yet", "The first look shows here as soon as it is taken."))
        return
    _figures(answer, answer.progress, choice, context)


def _overview(answer: RolloutPage) -> Html:
    """One line: the rollout, its cohorts, and the number of their turns."""
    parts = [fact("rollout", answer.name or "")]
    if answer.candidate is not None and answer.control is not None:
        parts += [fact("candidate", answer.candidate), fact("control", answer.control)]
    if answer.measured is not None:
        parts.append(
            Html(f"<span><b>{formatting.turns(answer.measured.counted.total)}</b> of both within 28 days</span>")
        )
    return fact_line(parts)


def _figures(answer: RolloutPage, progress: RolloutProgress, choice: RolloutChoice, context: PageContext) -> None:
    zone = context.zone
    if answer.measured is None:
        st.html(_overview(answer))
    else:
        frame.head(_overview(answer), turns_trust(answer.measured))
    newest, cause = progress.newest, progress.cause
    st.html(verdicts.verdict(newest, context.now_unix_ns, zone, cause=cause))
    st.html(stages(progress.stages))
    st.html(waiting(progress, zone))
    if progress.checks:
        st.html(verdicts.check_table(progress.checks, "checks, those that are worse first"))
        if remark := verdicts.explanation(progress.checks):
            st.html(remark)
    looks = choice.narrowed(progress)
    _bounds(progress.checks[0] if progress.checks else None, looks.funnel, zone, is_narrowed=choice.narrows)
    if progress.slices:
        st.html(verdicts.check_table(progress.slices, _SLICES, "slice"))
    if looks.changes:
        st.html(history(looks, zone))
    elif looks.funnel.points:
        st.html(hint("The decision and the stage did not change at these looks."))
    if answer.budgets:
        caption = f"burn rates over the turns of {answer.candidate}, at every stage"
        st.html(objectives.budgets_table(answer.budgets, caption))


def _bounds(primary: CheckRow | None, looks: Funnel, zone: tzinfo, *, is_narrowed: bool) -> None:
    """The bounds at each look over time."""
    if is_narrowed and not looks.points:
        st.html(hint("No look matches the filter; widen it above."))
        return
    name = "" if primary is None else primary.name
    what = f"difference, against the {looks.limit_text}"
    if looks.unit == "share":
        beyond = "" if primary is None else f" by more than {primary.margin}"
        what = f"share of the candidate's turns beyond the control's{beyond}, where {looks.limit_text}"
    picture = funnel(looks, zone, f"{name} over time, with bounds that close: {what}")
    if picture is None:
        which = "of these looks" if is_narrowed else "look yet"
        st.html(hint(f"The primary check could not be compared at any {which}."))
        return
    st.html(section(f"{name}: {what}"))
    draw(picture)


# The state of a stage as a shape and a word.
_STAGES: Final = {
    "done": ("✓", "done"),
    "here": ("●", "now"),
    "ahead": ("○", "to come"),
    "rolled_back": ("✕", "rolled back"),
}


def stages(stage_progress: Sequence[StageProgress]) -> Html:
    """The stages on one line; the current one is marked for screen readers."""
    items: list[str] = []
    for stage in stage_progress:
        shape, word = _STAGES[stage.state]
        current = ' aria-current="step"' if stage.state in ("here", "rolled_back") else ""
        share = escape(formatting.declared_percent(stage.share))
        items.append(
            f'<li class="{stage.state}"{current}><span class="dot">{shape}</span><b>{share}</b>'
            f'<span>{escape(stage.name)}</span><span class="hint">{word}</span></li>'
        )
    return Html(f'<div class="vp"><ol class="vp-stages" aria-label="stages of the rollout">{"".join(items)}</ol></div>')


def waiting(progress: RolloutProgress, zone: tzinfo) -> Html:
    """The turns still needed, and when they will have arrived at the current traffic."""
    verdict, needed = progress.newest.verdict, progress.turns_needed
    cohorts = verdict.cohorts
    both = () if cohorts is None else ((cohorts.candidate, "candidate"), (cohorts.control, "control"))
    parts = [f"<b>{formatting.turns(cohort.turns)}</b> of {escape(cohort.name)} ({role})" for cohort, role in both]
    if progress.newest.decision == "hold":
        if needed is None:
            parts.append("how many more turns are needed is not known")
        elif needed:
            parts.append(f"<b>{formatting.turns(needed)}</b> more of the candidate are needed")
        if progress.ready_unix_ns is not None:
            when = descriptions.day_and_time(progress.ready_unix_ns, zone)
            parts.append(f"there about <b>{escape(when)}</b> at this traffic")
        elif needed:
            parts.append("when they will be there cannot be said: hardly any arrive at present")
    remarks: list[str] = []
    if (pace := progress.turns_per_hour) is not None:
        remarks.append(f"the candidate gets {formatting.number(pace)} turns an hour")
    if (ratio := verdict.sample_ratio) is not None:
        share, planned = formatting.percent(ratio.share), formatting.declared_percent(ratio.expected_share)
        remarks.append(f"sample ratio {share} of calls or users on the candidate, {planned} planned")
    return fact_line(
        [*(f"<span>{part}</span>" for part in parts), *(f'<span class="hint">{remark}</span>' for remark in remarks)]
    )


def history(progress: RolloutProgress, zone: tzinfo) -> Html:
    """The verdicts at which the decision or the stage changed, the newest first."""
    rows = [
        (
            descriptions.day_and_time(look.at_unix_ns, zone),
            look.stage,
            chip(verdicts.STATES[look.decision], DECISIONS[look.decision]),
            f"{look.candidate_turns:,}",
            TableCell(look.verdict.sentence, css="vp-long"),
        )
        for look in progress.changes
    ]
    return table(_HISTORY, ("when", "stage", "verdict", "#turns", "why"), rows, captioned=True)


PAGE: Final = DashboardPage(
    "Rollout", ask, _draw, _selectors, offered=_offered, least_s=lambda _found: frame.REFRESH_LIVE_S
)
page: Final = PAGE.show
