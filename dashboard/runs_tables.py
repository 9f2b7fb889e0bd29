"""The parts of the Runs page that are text: comparisons, behavior, faults; as HTML."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final
from urllib.parse import urlencode

from dashboard.markup import escape
from dashboard.objective_status import SYMBOLS, State
from telemetry.comparison.differences import FigureDifference
from telemetry.comparison.sentences import HEADINGS, context_lines, figure_row, footnotes, grouped, title_of
from telemetry.comparison.verdict import ComparisonState, RunComparison
from telemetry.model import formatting
from telemetry.model.formatting import DASH, NS_PER_S
from telemetry.model.measured_within import Statistic
from telemetry.store.answers import MetricStats
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.run_folders.entries import RunEntry

_CHIPS: Final[dict[ComparisonState, tuple[State, str]]] = {
    "worse": ("missed", "regression"),
    "within": ("met", "within the margin"),
    "undecided": ("unknown", "undecided"),
}

_BEHAVIOR: Final = (
    "run",
    "barge-ins",
    "answered after",
    "stopped",
    "stop p50",
    "stop p95",
    "gave up",
    "95 % interval",
    "waited (median)",
)


def began(entry: RunEntry, zone: tzinfo = UTC) -> str:
    """When a run began, in the viewer's zone."""
    if entry.began_unix_ns is None:
        return DASH
    return datetime.fromtimestamp(entry.began_unix_ns // NS_PER_S, zone).strftime("%Y-%m-%d %H:%M")


def list_head(order: str = "the newest first", *, is_narrowed: bool = False) -> str:
    """What stands above the list of runs."""
    return part_head("Runs that match the filter" if is_narrowed else "All runs", order)


def part_head(title: str, hint: str) -> str:
    """The heading of a part of the page, and what is to be known of it."""
    return f'<div class="vp vp-head"><h2>{escape(title)} <span class="hint">{escape(hint)}</span></h2></div>'


def list_rows(entries: Sequence[RunEntry], zone: tzinfo) -> list[dict[str, Any]]:
    """The rows of the list."""
    return [
        {
            "run": each.title,
            "open": f"./?{urlencode({'store': each.store, 'run': each.run_id})}" if each.state != "damaged" else None,
            "began": began(each, zone),
            "state": each.state,
            "turns": each.turns,
            "invalid": each.invalid,
            "p50": None if each.p50_ns is None else formatting.in_milliseconds(each.p50_ns),
            "p95": None if each.p95_ns is None else formatting.in_milliseconds(each.p95_ns),
            "p99": None if each.p99_ns is None else formatting.in_milliseconds(each.p99_ns),
            "note": each.note or "",
            "target": each.target or DASH,
            "callers": each.users,
            "profile": each.profile or DASH,
            "verdict": each.sentence or each.fault or "",
        }
        for each in entries
    ]


def faults(entries: Sequence[RunEntry]) -> list[str]:
    """What cannot be read, a sentence for each run."""
    return [f"{each.title}: {each.fault}" for each in entries if each.fault]


def left_out(ticked: Sequence[RunEntry]) -> str:
    """That the filter leaves out runs that are ticked, which are shown all the same; empty where it does not."""
    if not ticked:
        return ""
    names = ", ".join(each.title for each in ticked)
    verb, them = ("is", "it") if len(ticked) == 1 else ("are", "them")
    many = formatting.count(len(ticked), "ticked run")
    return f"The filter leaves out {many}, which {verb} shown below all the same: {names}. Widen it to untick {them}."


def comparison_head(each: RunComparison) -> str:
    """What is to be known before any number, and the verdict."""
    chip, word = _CHIPS[each.state]
    lines = "".join(f"<li>{escape(line)}</li>" for line in context_lines(each))
    return (
        f'<div class="vp vp-compared"><h3>{escape(title_of(each))}</h3><ul class="hint">{lines}</ul>'
        f'<p><span class="vp-chip {chip}">{SYMBOLS[chip]} {word}</span> {escape(each.statement)}</p></div>'
    )


def comparison_table(each: RunComparison) -> str:
    """Every figure of a run beside the baseline's, in a region of its own that scrolls."""
    groups = "".join(
        f'<tr><th colspan="6" scope="colgroup" class="group">{escape(title)}</th></tr>{"".join(map(_row, found))}'
        for title, found in grouped(each)
    )
    head = _head(HEADINGS)
    notes = "".join(f"<li>{escape(line)}</li>" for line in footnotes(each))
    label = escape(f"figures of {title_of(each)}")
    return (
        f'<div class="vp vp-scrolled" role="region" aria-label="{label}" tabindex="0"><table><thead><tr>{head}</tr>'
        f'</thead><tbody>{groups}</tbody></table></div><div class="vp"><ul class="hint">{notes}</ul></div>'
    )


def _row(found: FigureDifference) -> str:
    label, *cells, status = figure_row(found)
    states: dict[bool | None, State] = {True: "missed", False: "met", None: "unknown"}
    state = states[found.is_worse]
    mark = "" if found.is_worse is None else f"{SYMBOLS[state]} "
    shown = "".join(f'<td class="num">{escape(cell)}</td>' for cell in cells)
    chip = f'<span class="vp-chip vp-plain {state}">{mark}{escape(status)}</span>'
    return f'<tr><th scope="row">{escape(label)}</th>{shown}<td class="num">{chip}</td></tr>'


def behavior(found: Sequence[tuple[str, RunDetails]]) -> str:
    """Barge-in and patience of each run, as a table."""
    head = _head(_BEHAVIOR)
    rows = "".join(_behavior_row(name, each) for name, each in found)
    return (
        '<div class="vp vp-scrolled" role="region" aria-label="barge-in and patience" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _head(names: Sequence[str]) -> str:
    return "".join(f'<th scope="col"{" class=num" if place else ""}>{name}</th>' for place, name in enumerate(names))


def _stop(stop: MetricStats | None, which: Statistic) -> str:
    if stop is None:
        return DASH
    within = stop.within(which)
    return formatting.milliseconds(getattr(stop, which)) + (f" ({within})" if within is not None else "")


def _behavior_row(name: str, each: RunDetails) -> str:
    done, stop = each.behavior, each.barge_in_stop
    between = each.abandoned_interval
    cells = (
        formatting.number(done.barge_ins) if done.barge_ins else "none asked",
        formatting.share(done.barge_ins_recovered, done.barge_ins),
        formatting.share(done.barge_ins_stopped, done.barge_ins_judged),
        _stop(stop, "p50"),
        _stop(stop, "p95"),
        f"{formatting.number(each.abandoned)} of {formatting.turns(each.eligible)}",
        DASH if between is None else f"{formatting.percent(between[0])} to {formatting.percent(between[1])}",
        formatting.seconds(each.waited_p50),
    )
    shown = "".join(f'<td class="num">{escape(cell)}</td>' for cell in cells)
    return f'<tr><th scope="row">{escape(name)}</th>{shown}</tr>'
