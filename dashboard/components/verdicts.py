"""A verdict of the gate with its reasons, tables of what is checked, and how sound a comparison is, as HTML."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from dashboard import descriptions
from dashboard.charts import DECISIONS
from dashboard.components.markup import Html, State, chip, escape, hint, listed, table
from telemetry.model import formatting
from telemetry.rollout.cohort_comparison import CohortComparison
from telemetry.rollout.completeness import met_both, split_notes
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import STATUS_WORDS, CheckRow, LoggedVerdict, explanation_of

STATES: Final[dict[Decision, State]] = {"promote": "met", "hold": "unknown", "roll_back": "missed"}
_STATUS_STATES: Final[dict[str, State]] = {"within": "met", "worse": "missed"}
_FIGURES: Final = ("#candidate", "#control", "#difference", "#bounds", "#margin")


def sentence(state: State, word: str, text: str, parts: str, when: str = "") -> Html:
    """A sentence with its state, and below it a list of items, which are HTML."""
    at = f'<span class="hint">{escape(when)}</span>' if when else ""
    css = "" if state == "unknown" else f" {state}"
    return Html(
        f'<div class="vp vp-note vp-verdict{css}"><div class="vp-head"><b>{chip(state, word)} {escape(text)}</b>{at}'
        f"</div><ul>{parts}</ul></div>"
    )


def verdict(
    newest: LoggedVerdict,
    now_unix_ns: int,
    zone: tzinfo,
    about: str = "",
    *,
    cause: LoggedVerdict | None = None,
) -> Html:
    """A verdict with its reasons and what it waits for. `about` is HTML on the turns that it covers, `cause` the
    earlier verdict that rolled back."""
    newest_verdict = newest.verdict
    # The sentence holds the first reason.
    reasons = newest_verdict.reasons[1:]
    if cause is not None:
        reasons = (f"{descriptions.day_and_time(cause.at_unix_ns, zone)}: {cause.verdict.sentence}", *reasons)
    notes = listed(newest_verdict.notes, "hint") + (f'<li class="hint">{about}</li>' if about else "")
    age = descriptions.ago((now_unix_ns - newest.at_unix_ns) / formatting.NS_PER_S)
    when = f"look {newest_verdict.looks:,}, {descriptions.day_and_time(newest.at_unix_ns, zone)}, {age}"
    return sentence(
        STATES[newest.decision], DECISIONS[newest.decision], newest_verdict.sentence, listed(reasons) + notes, when
    )


def check_table(rows: Sequence[CheckRow], caption: str, first: str = "check") -> Html:
    """A table of every check with its figures, bounds and margin; the worse ones first."""
    order = {"worse": 0, "unknown": 2, "within": 3}
    ordered = sorted(rows, key=lambda row: order.get(row.status, 1))
    return figure_table([(row, status(row), "") for row in ordered], caption, first)


def figure_table(rows: Sequence[tuple[CheckRow, str, str]], caption: str, first: str) -> Html:
    """A table of figures, each with its state and a remark on its margin, which are HTML; for checks of quantiles also
    the shares that decide."""
    beyond = any(row.beyond for row, _, _ in rows)
    cells = [
        (
            *((row.name, row.beyond) if beyond else (row.name,)),
            *(row.candidate, row.control, row.difference, row.bounds),
            *(Html(f"{escape(row.margin)}{remark}"), state),
        )
        for row, state, remark in rows
    ]
    columns = (first, *(("#beyond the margin",) if beyond else ()), *_FIGURES, "state")
    return table(caption, columns, cells, css="vp-verdict-last", captioned=True)


def explanation(rows: Sequence[CheckRow]) -> str:
    """Explain the shares of a table; "" if it has none."""
    text = explanation_of(rows)
    return "" if text is None else hint(text)


def status(row: CheckRow, *, is_judged: bool = True) -> Html:
    """The status of a check, with the reason if it has no verdict; for a figure that is not checked, that it is
    informational."""
    if is_judged:
        word, state = STATUS_WORDS.get(row.status, row.status), _STATUS_STATES.get(row.status, "unknown")
        shown = chip(state, word, row.reason or "")
    else:
        shown = f'<span class="hint">{"cannot be compared" if row.status == "unknown" else "shown, not judged"}</span>'
    below = "; ".join(part for part in (row.used, row.reason) if part)
    return Html(f'{shown}<span class="vp-below">{escape(below)}</span>' if below else shown)


def sample_ratio(comparison: CohortComparison) -> str:
    """The callers of both cohorts against the planned shares, the probability of that split, and the consequence."""
    ratio, sides = comparison.sample_ratio, (comparison.candidate, comparison.control)
    if ratio is None:
        callers = " and ".join(f"{formatting.count(side.callers, 'caller')} on {side.cohort}" for side in sides)
        return _check("unknown", "not tested", f"Sample ratio: {callers}; {_not_tested(comparison)}.")
    split = (
        f"Sample ratio: {ratio.split('the candidate')} at stage {comparison.stage or ''}; "
        f"p = {ratio.p_value:.2g} (exact binomial test), "
        f"{'below' if ratio.is_mismatch else 'at least'} {ratio.limit:g}: "
    )
    if ratio.is_mismatch:
        follows = "the split does not fit the plan: callers are lost on the way to one of them, and the rollout holds"
        return _check("missed", "mismatch", f"{split}{follows}.")
    (remark,) = split_notes(ratio, "the candidate", "the control", are_named=True)
    if ratio.is_open:
        return _check("unknown", "not known", f"Sample ratio: {remark}.")
    return _check("met", "fits", f"{split}the split fits the plan; {remark}.")


def _not_tested(comparison: CohortComparison) -> str:
    if comparison.plan is None:
        return "no plan states the shares"
    if comparison.stage is None:
        return "these turns may be of several stages, with other shares each"
    if comparison.unit_name == "user" and comparison.units.unnamed_calls:
        return "users are assigned, and none is known"
    return f"there is no split to compare with at stage {comparison.stage}"


def completeness(comparison: CohortComparison) -> str:
    """Lost telemetry, invalid turns, and units in both cohorts, each against its limit."""
    lost, limits, counts = comparison.telemetry_lost, comparison.limits, comparison.units
    allowed = limits.telemetry_loss
    if lost is None:
        text = "Telemetry: these turns carry no sequence numbers, so nothing says whether any is missing."
        checks = [_check("unknown", "not known", text)]
    else:
        may = f"at most {formatting.declared_percent(allowed)} may be" if allowed else "none may be"
        missing = formatting.percent(lost, allowed) if lost else "none"
        text = f"Telemetry: {missing} of the turns is missing by their sequence numbers; {may}."
        checks = [_within(lost <= allowed, "few" if lost else "no gap", text, "incomplete")]
    for of in (comparison.candidate, comparison.control):
        share, most = formatting.percent(of.invalid_share, limits.invalid_turns), limits.invalid_turns
        many = f"{formatting.number(of.invalid)} of {formatting.number(of.turns)} ({share})"
        text = f"Invalid turns of {of.cohort}: {many}; at most {formatting.declared_percent(most)} may be."
        checks.append(_within(of.invalid_share <= most, "sound", text))
    if counts.units:
        share, most = (
            formatting.percent(counts.contaminated_share, limits.contaminated_units),
            limits.contaminated_units,
        )
        both = f"{met_both(counts, comparison.unit_name)} ({share})"
        text = f"Both cohorts: {both}; at most {formatting.declared_percent(most)} may."
        checks.append(_within(counts.contaminated_share <= most, "apart", text))
    return "".join(checks)


def _within(is_sound: bool, word: str, text: str, otherwise: str = "too many") -> str:
    return _check("met", word, text) if is_sound else _check("missed", otherwise, text)


def _check(state: State, word: str, text: str) -> str:
    """A list item that begins with its state."""
    return f"<li>{chip(state, word)} <span>{escape(text)}</span></li>"


def soundness(comparison: CohortComparison) -> Html:
    """Sample ratio and completeness as a list."""
    return Html(
        f'<div class="vp"><ul class="vp-checks">{sample_ratio(comparison)}{completeness(comparison)}</ul></div>'
    )
