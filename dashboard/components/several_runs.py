"""Several runs: their rows in the list, their comparison with a baseline, and their figures by load and profile."""

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final
from urllib.parse import urlencode

import streamlit as st

from dashboard import charts, descriptions
from dashboard.components.frame import READING
from dashboard.components.markup import SYMBOLS, Html, State, chip, escape, hint, listed, note, section, table
from telemetry.charts.drawing import Picture
from telemetry.comparison.sentences import HEADINGS, context_lines, figure_row, footnotes, grouped, title_of
from telemetry.comparison.verdict import ComparisonState, RunComparison
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import DASH, in_milliseconds
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import read_capacity

_CHIPS: Final[dict[ComparisonState, tuple[State, str]]] = {
    "worse": ("missed", "regression"),
    "within": ("met", "within the margin"),
    "undecided": ("unknown", "undecided"),
}
_WORSE: Final[Mapping[bool | None, State]] = {True: "missed", False: "met", None: "unknown"}
_BEHAVIOR: Final = (
    *("run", "#barge-ins", "#answered after", "#stopped", "#stop p50", "#stop p95"),
    *("#gave up", "#95 % interval", "#waited (median)"),
)


def list_rows(entries: Sequence[RunEntry], zone: tzinfo) -> list[dict[str, Any]]:
    """The rows of the list."""

    def ms(ns: float | None) -> float | None:
        return None if ns is None else formatting.in_milliseconds(ns)

    return [
        {
            "run": each.title,
            "open": f"./?{urlencode({'store': each.store, 'run': each.run_id})}" if each.state != "damaged" else None,
            "began": descriptions.began(each, zone),
            "state": each.state,
            "turns": each.turns,
            "invalid": each.invalid,
            "p50": ms(each.p50_ns),
            "p95": ms(each.p95_ns),
            "p99": ms(each.p99_ns),
            "note": each.note or "",
            "target": each.target or DASH,
            "callers": each.users,
            "profile": each.profile or DASH,
            "verdict": each.sentence or each.fault or "",
        }
        for each in entries
    ]


def left_out(ticked: Sequence[RunEntry]) -> str:
    """The sentence on ticked runs that the filter leaves out, and that are shown all the same; empty without one."""
    if not ticked:
        return ""
    names = ", ".join(each.title for each in ticked)
    verb, them = ("is", "it") if len(ticked) == 1 else ("are", "them")
    many = formatting.count(len(ticked), "ticked run")
    return f"The filter leaves out {many}, which {verb} shown below all the same: {names}. Widen it to untick {them}."


def comparison_head(each: RunComparison) -> Html:
    """Return what is to be known before any number, and the verdict."""
    return Html(
        f'<div class="vp vp-compared"><h3>{escape(title_of(each))}</h3><ul class="hint">{listed(context_lines(each))}'
        f"</ul><p>{chip(*_CHIPS[each.state])} {escape(each.statement)}</p></div>"
    )


def comparison_table(each: RunComparison) -> Html:
    """Every figure of a run with the baseline's."""
    rows: list[Sequence[str]] = []
    for title, differences in grouped(each):
        rows.append((title,))
        for found in differences:
            *cells, status = figure_row(found)
            state = _WORSE[found.is_worse]
            mark = "" if found.is_worse is None else f"{SYMBOLS[state]} "
            rows.append([*cells, Html(f'<span class="vp-chip vp-plain {state}">{mark}{escape(status)}</span>')])
    columns = [HEADINGS[0], *(f"#{name}" for name in HEADINGS[1:])]
    notes = f'<div class="vp"><ul class="hint">{listed(footnotes(each))}</ul></div>'
    return Html(table(f"figures of {title_of(each)}", columns, rows) + notes)


def behavior(found: Sequence[tuple[str, RunDetails]]) -> Html:
    """Barge-in and patience of each run, as a table."""
    rows: list[tuple[str, ...]] = []
    for name, each in found:
        done, between, stop = each.behavior, each.abandoned_interval, each.barge_in_stop
        stops = [DASH, DASH]
        if stop is not None:
            within = (f" ({text})" if (text := stop.within(which)) else "" for which in ("p50", "p95"))
            stops = [
                f"{formatting.milliseconds(ns)}{text}" for ns, text in zip((stop.p50, stop.p95), within, strict=True)
            ]
        rows.append(
            (
                name,
                formatting.number(done.barge_ins) if done.barge_ins else "none asked",
                formatting.share(done.barge_ins_recovered, done.barge_ins),
                formatting.share(done.barge_ins_stopped, done.barge_ins_judged),
                *stops,
                f"{formatting.number(each.abandoned)} of {formatting.turns(each.eligible)}",
                DASH if between is None else f"{formatting.percent(between[0])} to {formatting.percent(between[1])}",
                formatting.seconds(each.waited_p50),
            )
        )
    return table("barge-in and patience", _BEHAVIOR, rows)


NO_LATENCY: Final = "No turn of these has a voice-to-voice latency."


def conditions(
    shown: Sequence[RunEntry], objectives: Sequence[Objective], details: Callable[[RunEntry], RunDetails]
) -> None:
    """Latency by load and by profile, word errors, barge-in and patience."""
    found: list[tuple[str, RunDetails]] = []
    for each in shown:
        try:
            with st.spinner(READING):
                found.append((each.title, details(each)))
        except TelemetryError as error:
            st.html(note("the store cannot be read", [str(error)]))
    if not found:
        return
    st.html(section("Under their own conditions", ", ".join(name for name, _ in found)))
    with st.container(key="halves"):
        left, right = st.columns(2)
    with left:
        capacity = next((each for each in map(read_capacity, shown) if each is not None), None)
        is_silent = any(each.latencies for _, each in found)
        why = "The generator did not report its calls in flight." if is_silent else NO_LATENCY
        of = "by the calls in flight when turns began, with ramps; the lower line is the p50"
        st.html(section("Latency against load", of))
        if capacity is not None:
            st.html(f'<div class="vp">{escape(capacity.sentence)}</div>')
        first = next((each for each in objectives if each.metric == HEADLINE and not each.is_of_a_part), None)
        threshold = None if first is None else first.threshold
        _drawn(charts.load(found, capacity, None if threshold is None else in_milliseconds(threshold)), why)
    with right:
        latency, errors = charts.latency_by_profile(found), charts.word_errors_by_profile(found)
        st.html(section("Profiles against latency", "the lower dot is the p50; a bar is the 95 % interval of the p95"))
        _drawn(latency, NO_LATENCY)
        rate, units = errors.table.caption.removesuffix(" by profile"), errors.table.columns[3]
        of = f"{units} that were recognized wrongly; a bar is the 95 % interval"
        st.html(section(f"Profiles against {rate}", of))
        _drawn(errors, "No transcript came back to compare with what was said.")
    st.html(section("Barge-in and patience", "callers who interrupt a reply, and callers who hang up unanswered"))
    st.html(behavior(found))


def _drawn(picture: Picture | None, why_not: str) -> None:
    if picture is None or not picture.rows:
        st.html(hint(why_not))
    else:
        charts.draw(picture)
