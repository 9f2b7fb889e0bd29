"""A comparison of runs as one HTML file: inline style, no script, nothing loaded; readable on a phone and on paper.

Each figure has a bar of its own: zero in the middle, the interval as a line, the difference as a dot, the margin as a
tick. Every bar says in words what it shows.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from telemetry.comparison.differences import FigureDifference
from telemetry.comparison.sentences import (
    GROUPS,
    INTERVAL,
    MARKS,
    context_lines,
    figure_row,
    footnotes,
    grouped,
    status_text,
    title_of,
)
from telemetry.comparison.verdict import RunComparison
from telemetry.model.foreign_text import one_line

_WORDS: Final = {"worse": "Regression", "within": "Within the margin", "undecided": "Undecided"}
_SHAPES: Final = {"worse": "✕", "within": "✓", "undecided": "?"}
_STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f27;--soft:#565d6b;--line:#d9dde4;--band:#f5f6f8;
--worse:#b3261e;--better:#1a6b3c;--open:#7a5900;--dot:#4f46e5}
@media (prefers-color-scheme:dark){:root{--paper:#12151b;--ink:#e6e9ef;--soft:#a4adbd;--line:#333b49;--band:#1b2029;
--worse:#ff9d94;--better:#7ddc9f;--open:#f0c667;--dot:#a5b4fc}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:20px 16px 48px;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:21px;margin:0 0 12px}h2{font-size:17px;margin:34px 0 8px}h3{font-size:14px;margin:22px 0 4px}
.verdict{border-left:4px solid var(--open);background:var(--band);padding:10px 14px;margin:10px 0}
.verdict b{color:var(--open)}.verdict.worse{border-color:var(--worse)}.verdict.worse b{color:var(--worse)}
.verdict.within{border-color:var(--better)}.verdict.within b{color:var(--better)}
ul{margin:8px 0;padding-left:20px;color:var(--soft)}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px 5px 0;text-align:right;border-bottom:1px solid var(--line);vertical-align:middle}
th{color:var(--soft);font-weight:500;font-size:13px}th:first-child,td:first-child,td.state,th.state{text-align:left}
td.state{color:var(--soft);font-size:13px;padding-left:8px}td.worse{color:var(--worse)}td.better{color:var(--better)}
td.bar,th.bar{width:190px;padding:0 6px;text-align:center}svg{display:block;width:100%;height:22px}
svg .zero{stroke:var(--soft);stroke-width:1}svg .margin{stroke:var(--open);stroke-width:2;stroke-dasharray:3 2}
svg .reach{stroke:var(--dot);stroke-width:3}svg .at{fill:var(--dot)}
td,th{white-space:nowrap}td:first-child{white-space:normal}
p.how{color:var(--soft);font-size:13px;margin-top:30px}
@media (max-width:1000px){body{font-size:13px}td.bar,th.bar{width:110px}th,td{padding-right:7px}}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#444;--line:#bbb;--band:#fff;--worse:#b3261e;
--better:#1a6b3c;--open:#7a5900;--dot:#4f46e5}body{font-size:12px;padding:0}th,td{padding:3px 6px 3px 0}
th,td.state{font-size:11px}td.bar,th.bar{width:100px}tr{break-inside:avoid}h2,h3{break-after:avoid}}
@media screen and (max-width:720px){body{font-size:15px}td,th{white-space:normal}
thead{display:none}table,tbody{display:block}
tr{display:grid;grid-template-columns:repeat(3,1fr);gap:0 10px;padding:8px 0;border-bottom:1px solid var(--line)}
td{display:block;border:0;padding:1px 0;text-align:left}td::before{content:attr(data-name);display:block;
color:var(--soft);font-size:12px}td:first-child{grid-column:1/-1;font-weight:600}td:first-child::before,
td.bar::before,td.state::before{content:none}td.interval{grid-column:1/3}td.state{padding:19px 0 0}
td.bar{grid-column:1/-1;width:auto;padding:4px 0;order:9}td.bar:empty{display:none}}
"""


def comparison_html(comparisons: Sequence[RunComparison]) -> str:
    """All of it as a page."""
    body = "".join(_comparison(each) for each in comparisons)
    margin = comparisons[0].margin.sentence
    heading = f"Runs compared with {_text(comparisons[0].baseline.label)}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{heading}</title><style>{_STYLE}</style></head><body><h1>{heading}</h1>{body}"
        f'<p class="how">{_text(INTERVAL)}. It holds the true difference with 95 % confidence. {_text(MARKS)}. '
        f"A turn that nobody answered is slower than any other. The margin: {_text(margin)}; it is the dashed tick. "
        "The figure that it is about is judged alone, by its own interval.</p>"
        "</body></html>\n"
    )


def _comparison(each: RunComparison) -> str:
    context = "".join(f"<li>{_text(line)}</li>" for line in context_lines(each))
    groups = "".join(_group(title, found, each) for title, found in grouped(each))
    notes = "".join(f"<li>{_text(line)}</li>" for line in footnotes(each))
    return (
        f"<section><h2>{_text(title_of(each))}</h2><ul>{context}</ul>"
        f'<div class="verdict {each.state}"><b>{_SHAPES[each.state]} {_WORDS[each.state]}.</b> {_text(each.statement)}'
        f"</div>{groups}<ul>{notes}</ul></section>"
    )


def _group(title: str, found: Sequence[FigureDifference], of: RunComparison) -> str:
    bounds = [abs(bound) for each in found for bound in (each.lower, each.upper, each.value) if bound is not None]
    reach = max(filter(math.isfinite, bounds), default=0.0)
    if title == GROUPS["latency"]:
        reach = max(reach, of.margin.value)
    rows = "".join(_row(each, of, reach) for each in found)
    names = ("figure", "baseline", "this run", "difference", "95 % interval")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        f'<h3>{title}</h3><table><thead><tr>{head}<th class="bar" scope="col">less · 0 · more</th>'
        f'<th class="state" scope="col">shown</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _row(found: FigureDifference, of: RunComparison, reach: float) -> str:
    cells = [_text(cell) for cell in figure_row(found)]
    names = ("", "baseline", "this run", "difference", "95 % interval")
    shown = "".join(
        f'<td data-name="{name}"{" class=interval" if place == 4 else ""}>{cell}</td>'
        for place, (name, cell) in enumerate(zip(names, cells[:5], strict=True))
    )
    state = "worse" if found.is_worse else "better" if found.is_worse is False else ""
    margin = of.margin.value if found is of.decisive else None
    return (
        f'<tr>{shown}<td class="bar">{_bar(found, reach, margin)}</td>'
        f'<td class="state {state}">{_text(status_text(found))}</td></tr>'
    )


def _bar(found: FigureDifference, reach: float, margin: float | None) -> str:
    """The interval on the scale of its group, from -reach to +reach."""
    if found.lower is None or found.upper is None or found.value is None or not reach > 0:
        return ""

    def at(value: float) -> str:
        return f"{100 + 96 * max(-1.0, min(1.0, value / reach)):.1f}"

    tick = "" if margin is None else f'<line class="margin" x1="{at(margin)}" x2="{at(margin)}" y1="1" y2="21"/>'
    words = escape(f"difference {figure_row(found)[3]}, interval {figure_row(found)[4]}")
    return (
        f'<svg viewBox="0 0 200 22" preserveAspectRatio="none" role="img" aria-label="{words}">'
        f'<line class="zero" x1="100" x2="100" y1="2" y2="20"/>{tick}'
        f'<line class="reach" x1="{at(found.lower)}" x2="{at(found.upper)}" y1="11" y2="11"/>'
        f'<rect class="at" x="{float(at(found.value)) - 2:.1f}" y="5" width="4" height="12"/></svg>'
    )


def _text(text: str) -> str:
    return escape(one_line(text))
