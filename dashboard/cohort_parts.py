"""Parts of the Cohorts page as HTML: what the comparison comes to, the figures, sample ratio and completeness."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from dashboard import descriptions, rollout_parts
from dashboard.markup import escape
from dashboard.objective_status import State, chip
from telemetry.model import formatting
from telemetry.rollout.cohort_comparison import CohortComparison, CohortFigure, CohortSize
from telemetry.rollout.comparison_sentence import ComparisonSentence, ComparisonState
from telemetry.rollout.incompleteness import met_both
from telemetry.rollout.progress import LoggedVerdict
from telemetry.rollout.sample_ratio import split_notes
from telemetry.store.questions.cohorts import CohortsAnswer, CoveringRollout

_STATES: Final[dict[ComparisonState, State]] = {"worse": "missed", "within": "met", "open": "unknown"}
_WORDS: Final[dict[ComparisonState, str]] = {
    "worse": "worse",
    "within": "within every margin",
    "open": "not decided",
}


def verdict(view: CohortsAnswer, now_unix_ns: int, zone: tzinfo, link: str) -> str:
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
            about = f"{page}: {_which(of, of.verdict, zone)}"
            parts.append(rollout_parts.verdict(of.verdict, now_unix_ns, zone, about, cause=of.cause))
    if view.sentence is not None:
        parts.append(own_sentence(view.sentence, is_beside=of is not None and of.verdict is not None))
    return "".join(parts)


def _which(of: CoveringRollout, newest: LoggedVerdict, zone: tzinfo) -> str:
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
    parts = [_size(found.candidate, "candidate"), _size(found.control, "control")]
    if found.one_in > 1:
        parts.append(
            f"<span>{formatting.APPROXIMATELY} taken over one in {formatting.number(found.one_in)} callers, the same "
            "ones each time: the bounds are as wide as that asks for</span>"
        )
    return f'<div class="vp vp-facts vp-wrapped">{"".join(parts)}</div>'


def _size(of: CohortSize, role: str) -> str:
    return f"<span><b>{formatting.turns(of.eligible)}</b> of {escape(of.cohort)} ({role})</span>"


def figures(rows: Sequence[CohortFigure], caption: str) -> str:
    """Figures of both cohorts with their differences, in their order."""
    with_beyond = any(each.row.beyond for each in rows)
    body = "".join(_figure(each, with_beyond=with_beyond) for each in rows)
    return rollout_parts.figure_table(body, caption, "figure", with_beyond=with_beyond)


def _figure(of: CohortFigure, *, with_beyond: bool) -> str:
    state = rollout_parts.status(of.row) if of.decides else rollout_parts.unjudged_status(of.row)
    return rollout_parts.figure_row(of.row, state, with_beyond=with_beyond, margin_note=_assumed(of))


def _assumed(of: CohortFigure) -> str:
    return ' <span class="hint">assumed</span>' if of.is_assumed else ""


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
