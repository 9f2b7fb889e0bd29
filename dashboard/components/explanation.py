"""The dimensions that explain a selection of turns, as HTML: a table, the dimension that does most first."""

from typing import Final

from dashboard.components.markup import Html, css_percent, escape, hint, section, table
from telemetry.explanation.dimensions import ExplainedDimension
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import NOT_REPORTED
from telemetry.store.questions.explanation import Explanation

_LONGEST_VALUE: Final = 40
_TITLE: Final = "Which dimension explains it"
_COLUMNS: Final = ("dimension", "most above its share", "#of these", "#of the others", "strength", "#p")
NOTHING: Final = "no dimension is shown to set them apart"


def explanation(found: Explanation, selection: str) -> Html:
    """The table; `selection` says which turns were selected ("bad turns"), in our own words or any text."""
    over = f"{formatting.number(found.selected)} {selection} against {formatting.number(found.others)} others"
    sampled = ", a sample over their time" if found.is_sample else ""
    parts: list[str] = [section(_TITLE, f"{over}{sampled}; corrected for calls, values and dimensions")]
    shown = [each for each in found.dimensions if each.is_shown and each.value is not None]
    if shown:
        parts.append(table(_TITLE, _COLUMNS, map(_row, shown)))
    else:
        few = any(each.untried == "too few turns" for each in found.dimensions)
        parts.append(hint(f"{NOTHING}{': too few turns or calls on a side' if few else ''}"))
    rest = [each.name for each in found.dimensions if each.untried is None and not each.is_shown]
    lines = [("not shown", rest if shown else [])]
    for why, reason in (("one value", "the same on both sides"), ("not reported", NOT_REPORTED)):
        lines.append((reason, [each.name for each in found.dimensions if each.untried == why]))
    return Html("".join([*parts, *(hint(f"{reason}: {', '.join(names)}") for reason, names in lines if names)]))


def _row(each: ExplainedDimension) -> tuple[str, ...]:
    value = each.value
    if value is None:
        return ()
    bar = f'<span class="vp-gauge vp-inline"><i style="width:{css_percent(each.strength)}"></i></span>'
    return (
        Html(f"<b>{escape(each.name)}</b>"),
        NOT_REPORTED if value.label is None else one_line(value.label, _LONGEST_VALUE),
        formatting.percent(value.share_selected),
        formatting.percent(value.share_others),
        Html(f"{bar} {formatting.decimal(each.strength)}"),
        "< 0.001" if each.p_value < 0.001 else formatting.significant(each.p_value),
    )
