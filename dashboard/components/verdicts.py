"""A verdict of the gate with its reasons, and tables of what is checked, as HTML."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from dashboard import descriptions
from dashboard.charts.differences import DECISIONS
from dashboard.components.markup import escape, scrolled
from dashboard.components.objectives import State, chip
from telemetry.model import formatting
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import STATUS_WORDS, CheckRow, LoggedVerdict, explanation_of

STATES: Final[dict[Decision, State]] = {"promote": "met", "hold": "unknown", "roll_back": "missed"}
_STATUS_STATES: Final[dict[str, State]] = {"within": "met", "worse": "missed"}


def verdict(
    newest: LoggedVerdict,
    now_unix_ns: int,
    zone: tzinfo,
    about: str = "",
    *,
    cause: LoggedVerdict | None = None,
    is_sound: bool = True,
) -> str:
    """A verdict, with its reasons and what it waits for. `about` is HTML on what it is over, `cause` the verdict that
    rolled back before it; one of a log that is not `is_sound` decides nothing."""
    found = newest.verdict
    state: State = STATES[newest.decision] if is_sound else "unknown"
    # The sentence holds the first reason.
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in found["reasons"][1:])
    if cause is not None:
        then = descriptions.day_and_time(cause.at_unix_ns, zone)
        reasons = f"<li>{escape(then)}: {escape(cause.verdict['sentence'])}</li>{reasons}"
    notes = "".join(f'<li class="hint">{escape(note)}</li>' for note in found["notes"])
    notes += f'<li class="hint">{about}</li>' if about else ""
    age = descriptions.ago((now_unix_ns - newest.at_unix_ns) / formatting.NS_PER_S)
    when = f"{descriptions.day_and_time(newest.at_unix_ns, zone)}, {age}"
    word = DECISIONS[newest.decision] if is_sound else f"not to be trusted: {DECISIONS[newest.decision]}"
    return (
        f'<div class="vp vp-note {state if state != "unknown" else ""} vp-verdict"><div class="vp-head">'
        f"<b>{chip(state, word)} {escape(found['sentence'])}</b>"
        f'<span class="hint">look {found["looks"]:,}, {escape(when)}</span></div>'
        f"<ul>{reasons}{notes}</ul></div>"
    )


def check_table(rows: Sequence[CheckRow], caption: str, first: str = "check") -> str:
    """Every check with its figures, bounds and margin; those that are worse first."""
    order = {"worse": 0, "unknown": 2, "within": 3}
    ordered = sorted(rows, key=lambda row: order.get(row.status, 1))
    with_beyond = any(row.beyond for row in rows)
    body = "".join(figure_row(row, status(row), with_beyond=with_beyond) for row in ordered)
    return figure_table(body, caption, first, with_beyond=with_beyond)


def figure_table(body: str, caption: str, first: str, *, with_beyond: bool) -> str:
    """A table of the rows of `figure_row`; `with_beyond`: with the shares that decide checks of quantiles."""
    names = (*(("beyond the margin",) if with_beyond else ()), "candidate", "control", "difference", "bounds", "margin")
    heads = "".join(f'<th scope="col" class="num">{name}</th>' for name in names)
    table = (
        f'<table><caption>{escape(caption)}</caption><thead><tr><th scope="col">{first}</th>{heads}'
        f'<th scope="col">state</th></tr></thead><tbody>{body}</tbody></table>'
    )
    return f'<div class="vp vp-wide">{scrolled(caption, table, ends_in_verdict=True)}</div>'


def figure_row(row: CheckRow, state: str, *, with_beyond: bool, margin_note: str = "") -> str:
    """A row of figures; `state` and `margin_note` are HTML."""
    figures = (*((row.beyond,) if with_beyond else ()), row.candidate, row.control, row.difference, row.bounds)
    cells = "".join(f'<td class="num">{escape(cell)}</td>' for cell in figures)
    margin = f'<td class="num">{escape(row.margin)}{margin_note}</td>'
    return f'<tr><th scope="row">{escape(row.name)}</th>{cells}{margin}<td>{state}</td></tr>'


def explanation(rows: Sequence[CheckRow]) -> str:
    """What the shares of a table mean, below it; "" where there are none."""
    text = explanation_of(rows)
    return "" if text is None else f'<div class="vp hint">{escape(text)}</div>'


def status(row: CheckRow) -> str:
    """What a check says, with the reason where it says nothing."""
    state = _STATUS_STATES.get(row.status, "unknown")
    return _status(row, chip(state, STATUS_WORDS.get(row.status, row.status), row.reason or ""))


def unjudged_status(row: CheckRow) -> str:
    """What a figure says that nobody checks."""
    word = "cannot be compared" if row.status == "unknown" else "shown, not judged"
    return _status(row, f'<span class="hint">{word}</span>')


def _status(row: CheckRow, shown: str) -> str:
    below = "; ".join(each for each in (row.used, row.reason) if each)
    return f'{shown}<span class="vp-below">{escape(below)}</span>' if below else shown
