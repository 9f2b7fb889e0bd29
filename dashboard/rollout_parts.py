"""Parts of the Rollout page as HTML and charts: the verdict, the stages on a line, checks, bounds and history."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

import altair as alt

from dashboard import descriptions
from dashboard.accessible_chart import ChartTable
from dashboard.charts import Row, finished, time_axis
from dashboard.markup import escape, scrolled
from dashboard.objective_status import State, chip
from dashboard.palette import Palette
from telemetry.model import formatting
from telemetry.model.formatting import in_milliseconds
from telemetry.rollout.history import Decision
from telemetry.rollout.progress import (
    STATUS_WORDS,
    CheckRow,
    Funnel,
    LoggedVerdict,
    RolloutProgress,
    StageProgress,
    explanation_of,
)

WORDS: Final[dict[Decision, str]] = {"promote": "promote", "hold": "hold", "roll_back": "roll back"}
STATES: Final[dict[Decision, State]] = {"promote": "met", "hold": "unknown", "roll_back": "missed"}
_STATUS_STATES: Final[dict[str, State]] = {"within": "met", "worse": "missed"}
_STAGE_WORDS: Final = {"done": "done", "here": "now", "ahead": "to come", "rolled_back": "rolled back"}
_STAGE_SHAPES: Final = {"done": "✓", "here": "●", "ahead": "○", "rolled_back": "✕"}
_HEIGHT: Final = 260
# By the unit of a funnel; JavaScript of Vega's.
_FUNNEL_LABELS: Final = {
    "s": "format(datum.value * 1000, '+,.4~r')",
    "share": "format(datum.value * 100, ',.4~r') + ' %'",
}


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
    word = WORDS[newest.decision] if is_sound else f"not to be trusted: {WORDS[newest.decision]}"
    return (
        f'<div class="vp vp-note {state if state != "unknown" else ""} vp-verdict"><div class="vp-head">'
        f"<b>{chip(state, word)} {escape(found['sentence'])}</b>"
        f'<span class="hint">look {found["looks"]:,}, {escape(when)}</span></div>'
        f"<ul>{reasons}{notes}</ul></div>"
    )


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
    return chip(STATES[decision] if is_sound else "unknown", WORDS[decision])


def funnel_rows(funnel: Funnel) -> list[Row]:
    """The figure at each look with its bounds."""
    return [
        {
            "time": in_milliseconds(point.at_unix_ns),
            "stage": point.stage,
            "estimate": point.estimate,
            "lower": point.lower,
            "upper": point.upper,
            "text": f"{funnel.text(point.estimate)}, {funnel.bounds_text(point)}",
            "verdict": WORDS[point.decision],
        }
        for point in funnel.points
        if point.lower is not None and point.upper is not None
    ]


def funnel_table(funnel: Funnel, zone: tzinfo) -> ChartTable:
    """The same as text."""
    figure = "share" if funnel.unit == "share" else "difference"
    rows = [
        (
            descriptions.day_and_time(point.at_unix_ns, zone),
            point.stage,
            funnel.text(point.estimate),
            funnel.bounds_text(point),
            WORDS[point.decision],
        )
        for point in funnel.points
        if point.estimate is not None
    ]
    return ChartTable("bounds at each look", ("when", "stage", figure, "bounds", "verdict"), rows)


def funnel_spec(colors: Palette, unit: str, limit: float, limit_text: str) -> Row:
    """Bounds that close over time, beside the limit and, of a difference, zero."""
    base = alt.Chart(alt.NamedData("rows"))
    x = alt.X("time:T", title=None, axis=time_axis(7))
    is_share = unit == "share"
    title = "share of turns" if is_share else "difference, ms" if unit == "s" else "difference"
    axis = alt.Axis(labelExpr=_FUNNEL_LABELS.get(unit, "format(datum.value, '+,.4~r')"), tickCount=6)
    tips = [
        alt.Tooltip("time:T", format="%d %b %H:%M", title="look"),
        alt.Tooltip("stage:N"),
        alt.Tooltip("text:N", title="share" if is_share else "difference"),
        alt.Tooltip("verdict:N"),
    ]
    y = alt.Y("lower:Q", title=title, axis=axis)
    band = base.mark_area(color=colors.p50, opacity=0.3, interpolate="linear").encode(
        x=x, y=y, y2="upper:Q", detail="stage:N"
    )
    edges = [
        base.mark_line(color=colors.p95, strokeDash=[5, 3], strokeWidth=1.4).encode(
            x=x, y=alt.Y(f"{name}:Q", title=title, axis=axis), detail="stage:N"
        )
        for name in ("lower", "upper")
    ]
    # An area and a line need two looks: the bounds of one that is alone at its stage are an upright line.
    alone = base.transform_joinaggregate(looks="count()", groupby=["stage"]).transform_filter("datum.looks === 1")
    edges.append(alone.mark_rule(color=colors.p95, strokeDash=[5, 3], strokeWidth=1.4).encode(x=x, y=y, y2="upper:Q"))
    middle = base.mark_line(color=colors.p95, point=alt.OverlayMarkDef(size=20)).encode(
        x=x, y=alt.Y("estimate:Q", title=title, axis=axis), detail="stage:N", tooltip=tips
    )
    once = base.transform_aggregate(rows="count()")
    rules: list[alt.Chart] = []
    zero = () if is_share else ((0.0, "no difference", [1, 0]),)
    for at, text, dashes in (*zero, (limit, limit_text, [2, 3])):
        rules.append(once.mark_rule(color=colors.ink, strokeDash=dashes, strokeWidth=1.2).encode(y=alt.YDatum(at)))
        label = once.mark_text(align="right", baseline="bottom", dy=-3, color=colors.ink, fontSize=11, text=text)
        ground = once.mark_text(
            align="right", baseline="bottom", dy=-3, fontSize=11, text=text, stroke=colors.paper, strokeWidth=4
        )
        rules += [each.encode(y=alt.YDatum(at), x=alt.value("width")) for each in (ground, label)]
    return finished(alt.layer(band, *edges, middle, *rules).properties(height=_HEIGHT), colors)
