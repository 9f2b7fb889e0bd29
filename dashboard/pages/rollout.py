"""The Rollout page: the gate's newest verdict with its reasons, the stages, the bounds over time, and the history."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts import differences
from dashboard.charts.style import palette
from dashboard.components import frame, header, objectives, verdicts
from dashboard.components.chart import chart
from dashboard.components.frame import DashboardPage, PageContext
from dashboard.components.markup import escape, scrolled
from dashboard.components.objectives import chip
from dashboard.components.refreshing import title
from dashboard.components.selectors import Selector, selector_row
from dashboard.components.trust import turns_details, turns_trust
from dashboard.links import LOOKS_LABELS, LOOKS_S, RolloutChoice, rollout_choice_of
from dashboard.source import Source, source_of
from telemetry.model import formatting
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import CheckRow, Funnel, RolloutProgress, StageProgress
from telemetry.store.questions.rollouts import RolloutPage

TITLE: Final = "Rollout"
_CHANGED: Final = "the log was changed by others: what it says cannot be trusted"
_NO_PLAN: Final = (
    "Write a plan (<code>rollout.toml</code>: cohorts, stages, margins) and give it to the sidecar: "
    "<code>voiceprobe sidecar --rollout rollout.toml</code>. It looks by itself, keeps each verdict, and this page "
    "shows them. <code>voiceprobe rollout check PLAN --store STORE</code> looks once; "
    "<code>voiceprobe demo --rollout</code> carries two rollouts through on this machine."
)


def page() -> None:
    """Draw the page; below the selectors it refreshes by itself."""
    PAGE.show()


def ask(source: Source, link: Mapping[str, str]) -> RolloutPage:
    """What a link asks for. Raises StoreError when the store cannot be read."""
    return source.reader.rollout_page(rollout_choice_of(link)[0].rollout, source.objectives)


def _offered(found: RolloutPage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rollouts and the stages to choose from."""
    progress = found.progress
    return found.names, () if progress is None else tuple(each.name for each in progress.stages)


def _selectors(found: RolloutPage, link: Mapping[str, str]) -> None:
    choice, faults = rollout_choice_of(link)
    names, stages = _offered(found)
    if names:
        in_sight = (
            Selector("rollout", names, lambda name: name or "newest rollout", choice.rollout),
            Selector("looks", list(LOOKS_S), lambda name: LOOKS_LABELS.get(name, "whole rollout"), choice.looks),
        )
        words: dict[str, str] = {**differences.DECISIONS}
        behind = (
            Selector("at_stage", stages, lambda name: name or "every stage", choice.at_stage),
            Selector("decision", list(words), lambda name: words.get(name, "any verdict"), choice.decision),
        )
        selector_row(TITLE, in_sight, behind, widths=(3.0, 1.6))
    else:
        title(TITLE)
    if faults:
        st.html(header.notes(faults, "the link"))


def _draw(found: RolloutPage, context: PageContext) -> None:
    frame.say_fault_of_objectives(context.link)
    if not found.names:
        st.html(header.empty("No rollout yet", _NO_PLAN))
        return
    choice, _ = rollout_choice_of(context.link)
    if found.name is None:
        wanted = f"The link asks for <code>{escape(choice.rollout)}</code>; choose another above."
        st.html(header.empty("That rollout is not in this store", wanted))
        return
    if found.faults:
        st.html(header.notes(found.faults, _CHANGED))
    if found.progress is None:
        st.html(header.empty(f"No verdict on {found.name} yet", "The first look shows here as soon as it is taken."))
        return
    _figures(found, found.progress, choice, context)


def _overview(found: RolloutPage) -> str:
    """One line: which rollout, of which cohorts, and how many turns of them there are."""
    parts = [header.fact("rollout", found.name or "")]
    if found.candidate is not None and found.control is not None:
        parts += [header.fact("candidate", found.candidate), header.fact("control", found.control)]
    if found.measured is not None:
        parts.append(f"<span><b>{formatting.turns(found.measured.counted.total)}</b> of both within 28 days</span>")
    return f'<div class="vp vp-facts">{"".join(parts)}</div>'


def _figures(found: RolloutPage, progress: RolloutProgress, choice: RolloutChoice, context: PageContext) -> None:
    zone, is_sound = context.zone, not found.faults
    if found.measured is None:
        st.html(_overview(found))
    else:
        frame.head(_overview(found), turns_trust(found.measured), turns_details(found.measured))
    newest, cause = progress.newest, progress.cause
    st.html(verdicts.verdict(newest, context.now_unix_ns, zone, cause=cause, is_sound=is_sound))
    st.html(stages(progress.stages))
    st.html(waiting(progress, zone))
    if progress.checks:
        st.html(verdicts.check_table(progress.checks, "checks, those that are worse first"))
        if note := verdicts.explanation(progress.checks):
            st.html(note)
    looks = choice.narrowed(progress)
    _funnel(progress.checks[0] if progress.checks else None, looks.funnel, zone, is_narrowed=choice.narrows)
    if progress.slices:
        caption = "slices show where a difference is, corrected for their number; they do not change the verdict"
        st.html(verdicts.check_table(progress.slices, caption, "slice"))
    if looks.changes:
        st.html(history(looks, zone, is_sound=is_sound))
    elif looks.funnel.points:
        st.html('<div class="vp hint">The decision and the stage did not change at these looks.</div>')
    if found.budgets:
        caption = f"burn rates over the turns of {found.candidate}, at every stage"
        st.html(objectives.budgets_table(found.budgets, caption))


def _funnel(primary: CheckRow | None, funnel: Funnel, zone: tzinfo, *, is_narrowed: bool) -> None:
    if is_narrowed and not funnel.points:
        st.html('<div class="vp hint">No look matches the filter; widen it above.</div>')
        return
    rows = differences.funnel_rows(funnel)
    if not rows or funnel.limit is None:
        which = "of these looks" if is_narrowed else "look yet"
        st.html(f'<div class="vp hint">The primary check could not be compared at any {which}.</div>')
        return
    name = "" if primary is None else primary.name
    what = f"difference, against the {funnel.limit_text}"
    if funnel.unit == "share":
        beyond = "" if primary is None else f" by more than {primary.margin}"
        what = f"share of the candidate's turns beyond the control's{beyond}, where {funnel.limit_text}"
    st.html(f'<div class="vp"><h2>{escape(name)}: {escape(what)}</h2></div>')
    chart(
        rows,
        differences.funnel_spec(palette(st.context.theme.type), funnel.unit, funnel.limit, funnel.limit_text),
        f"{name} over time, with bounds that close: {what}",
        differences.funnel_table(funnel, zone),
    )
    if funnel.unlike:
        looks = formatting.count(funnel.unlike, "look")
        st.html(f'<div class="vp hint">{looks} of an earlier version compared quantiles: not in this chart.</div>')


_STAGE_WORDS: Final = {"done": "done", "here": "now", "ahead": "to come", "rolled_back": "rolled back"}
_STAGE_SHAPES: Final = {"done": "✓", "here": "●", "ahead": "○", "rolled_back": "✕"}


def stages(found: Sequence[StageProgress]) -> str:
    """The stages on a line."""
    items = "".join(
        f'<li class="{each.state}"{current(each)}><span class="dot">{_STAGE_SHAPES[each.state]}</span>'
        f"<b>{escape(formatting.declared_percent(each.share))}</b><span>{escape(each.name)}</span>"
        f'<span class="hint">{_STAGE_WORDS[each.state]}</span></li>'
        for each in found
    )
    return f'<div class="vp"><ol class="vp-stages" aria-label="stages of the rollout">{items}</ol></div>'


def current(stage: StageProgress) -> str:
    """Marks the stage at which the rollout is, for screen readers."""
    return ' aria-current="step"' if stage.state in ("here", "rolled_back") else ""


def waiting(progress: RolloutProgress, zone: tzinfo) -> str:
    """The turns still needed, and when they will be there at this traffic."""
    found = progress.newest.verdict
    cohorts = found["cohorts"]
    parts = [
        f"<span><b>{formatting.turns(cohorts[role]['turns'])}</b> of {escape(cohorts[role]['name'])} ({role})</span>"
        for role in ("candidate", "control")
    ]
    pace = progress.turns_per_hour
    if progress.newest.decision == "hold":
        needed = progress.turns_needed
        if needed is None:
            parts.append("<span>how many more turns are needed is not known</span>")
        elif needed:
            parts.append(f"<span><b>{formatting.turns(needed)}</b> more of the candidate are needed</span>")
        if progress.ready_unix_ns is not None:
            when = descriptions.day_and_time(progress.ready_unix_ns, zone)
            parts.append(f"<span>there about <b>{escape(when)}</b> at this traffic</span>")
        elif needed:
            parts.append("<span>when they will be there cannot be said: hardly any arrive at present</span>")
    if pace is not None:
        parts.append(f'<span class="hint">the candidate gets {formatting.number(pace)} turns an hour</span>')
    ratio = found["sample_ratio"]
    if ratio is not None:
        parts.append(
            f'<span class="hint">sample ratio {formatting.percent(ratio["share"])} of calls or users on the candidate, '
            f"{formatting.declared_percent(ratio['expected_share'])} planned</span>"
        )
    return f'<div class="vp vp-facts">{"".join(parts)}</div>'


def history(progress: RolloutProgress, zone: tzinfo, *, is_sound: bool = True) -> str:
    """The verdicts at which the decision or the stage changed, the newest first; those of a log that is not `is_sound`
    decide nothing."""
    rows = "".join(
        f"<tr><th scope='row'>{escape(descriptions.day_and_time(each.at_unix_ns, zone))}</th>"
        f"<td>{escape(each.stage)}</td><td>{_decision(each.decision, is_sound)}</td>"
        f'<td class="num">{each.candidate_turns:,}</td>'
        f'<td class="vp-long">{escape(each.verdict["sentence"])}</td></tr>'
        for each in progress.changes
    )
    caption = "the verdict's history: where the decision or the stage changed"
    table = (
        f"<table><caption>{caption}</caption>"
        '<thead><tr><th scope="col">when</th><th scope="col">stage</th><th scope="col">verdict</th>'
        '<th scope="col" class="num">turns</th><th scope="col">why</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    return f'<div class="vp vp-wide">{scrolled(caption, table)}</div>'


def _decision(decision: Decision, is_sound: bool) -> str:
    return chip(verdicts.STATES[decision] if is_sound else "unknown", differences.DECISIONS[decision])


PAGE: Final = DashboardPage(
    TITLE,
    lambda link: ask(source_of(link), link),
    selectors=_selectors,
    offered=_offered,
    least_s=lambda _found: frame.REFRESH_LIVE_S,
    draw=_draw,
)
