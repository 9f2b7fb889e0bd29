"""Which dimension explains a selection of turns, as HTML: a table, the dimension that does most first."""

from typing import Final

from dashboard.components.markup import css_percent, escape
from telemetry.explanation.dimensions import ExplainedDimension
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import NOT_REPORTED
from telemetry.store.questions.explanation import Explanation

_LONGEST_VALUE: Final = 40
NOTHING: Final = "no dimension is shown to set them apart"


def explanation(found: Explanation, selection: str) -> str:
    """The table; `selection` says which turns were selected ("bad turns"), in our own words or any text."""
    over = f"{formatting.number(found.selected)} {selection} against {formatting.number(found.others)} others"
    if found.is_sample:
        over += ", a sample over their time"
    head = (
        f'<div class="vp-head"><h2>Which dimension explains it <span class="hint">{escape(over)}; '
        "corrected for calls, values and dimensions</span></h2></div>"
    )
    shown = [each for each in found.dimensions if each.is_shown]
    if not shown:
        return f'<div class="vp">{head}<span class="hint">{NOTHING}{_why(found)}</span>{_untried(found)}</div>'
    rows = "".join(_row(each) for each in shown)
    rest = [each.name for each in found.dimensions if each.untried is None and not each.is_shown]
    others = f'<div class="hint">not shown: {", ".join(rest)}</div>' if rest else ""
    return (
        f'<div class="vp">{head}<div class="vp-scroll" tabindex="0" role="region" '
        'aria-label="Which dimension explains it">'
        '<table><thead><tr><th>dimension</th><th>most above its share</th><th class="num">of these</th>'
        '<th class="num">of the others</th><th>strength</th><th class="num">p</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{others}{_untried(found)}</div>"
    )


def _row(each: ExplainedDimension) -> str:
    if each.value is None:
        return ""
    label = NOT_REPORTED if each.value.label is None else one_line(each.value.label, _LONGEST_VALUE)
    return (
        f"<tr><td><b>{escape(each.name)}</b></td><td>{escape(label)}</td>"
        f'<td class="num">{formatting.percent(each.value.share_selected)}</td>'
        f'<td class="num">{formatting.percent(each.value.share_others)}</td>'
        '<td><span class="vp-gauge" style="display:inline-block;width:48px">'
        f'<i style="width:{css_percent(each.strength)}"></i></span> {formatting.decimal(each.strength)}</td>'
        f'<td class="num">{_p(each.p_value)}</td></tr>'
    )


def _p(value: float) -> str:
    return "&lt; 0.001" if value < 0.001 else formatting.significant(value)


def _why(found: Explanation) -> str:
    few = [each for each in found.dimensions if each.untried == "too few turns"]
    return ": too few turns or calls on a side" if few else ""


def _untried(found: Explanation) -> str:
    lines = [
        (reason, [each.name for each in found.dimensions if each.untried == why])
        for why, reason in (("one value", "the same on both sides"), ("not reported", NOT_REPORTED))
    ]
    return "".join(f'<div class="hint">{reason}: {", ".join(names)}</div>' for reason, names in lines if names)
