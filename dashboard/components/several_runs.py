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
    """The rows of the list of runs."""

    def ms(ns: float | None) -> float | None:
        return None if ns is None else formatting.in_milliseconds(ns)

    return [
        {
            "run": entry.title,
            "open": f"./?{urlencode({'store': entry.store, 'run': entry.run_id})}"
            if entry.state != "damaged"
            else None,
            "began": descriptions.began(entry, zone),
            "state": entry.state,
            "turns": entry.turns,
            "invalid": entry.invalid,
            "p50": ms(entry.p50_ns),
            "p95": ms(entry.p95_ns),
            "p99": ms(entry.p99_ns),
            "note": entry.note or "",
            "target": entry.target or DASH,
            "callers": entry.users,
            "profile": entry.profile or DASH,
            "verdict": entry.sentence or entry.fault or "",
        }
        for entry in entries
    ]


def left_out(ticked: Sequence[RunEntry]) -> str:
    """A sentence on selected runs that the filter excludes and that are shown nevertheless; empty if there are none."""
    if not ticked:
        return ""
    names = ", ".join(entry.title for entry in ticked)
    verb, them = ("is", "it") if len(ticked) == 1 else ("are", "them")
    many = formatting.count(len(ticked), "ticked run")
    return f"The filter leaves out {many}, which {verb} shown below all the same: {names}. Widen it to untick {them}."


def comparison_head(comparison: RunComparison) -> Html:
    """The context of a comparison, to be read before its figures, and the verdict."""
    return Html(
        f'<div class="vp vp-compared"><h3>{escape(title_of(comparison))}</h3>'
        f'<ul class="hint">{listed(context_lines(comparison))}</ul>'
        f"<p>{chip(*_CHIPS[comparison.state])} {escape(comparison.statement)}</p></div>"
    )


def comparison_table(comparison: RunComparison) -> Html:
    """A table of every figure of a run and the baseline's."""
    rows: list[Sequence[str]] = []
    for title, differences in grouped(comparison):
        rows.append((title,))
        for difference in differences:
            *cells, status = figure_row(difference)
            state = _WORSE[difference.is_worse]
            mark = "" if difference.is_worse is None else f"{SYMBOLS[state]} "
            rows.append([*cells, Html(f'<span class="vp-chip vp-plain {state}">{mark}{escape(status)}</span>')])
    columns = [HEADINGS[0], *(f"#{name}" for name in HEADINGS[1:])]
    notes = f'<div class="vp"><ul class="hint">{listed(footnotes(comparison))}</ul></div>'
    return Html(table(f"figures of {title_of(comparison)}", columns, rows) + notes)


def behavior(run_details: Sequence[tuple[str, RunDetails]]) -> Html:
    """A table of barge-in and patience per run."""
    rows: list[tuple[str, ...]] = []
    for name, details in run_details:
        done, between, stop = details.behavior, details.abandoned_interval, details.barge_in_stop
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
                f"{formatting.number(details.abandoned)} of {formatting.turns(details.eligible)}",
                DASH if between is None else f"{formatting.percent(between[0])} to {formatting.percent(between[1])}",
                formatting.seconds(details.waited_p50),
            )
        )
    return table("barge-in and patience", _BEHAVIOR, rows)


NO_LATENCY: Final = "No turn of these has a voice-to-voice latency."


def conditions(
    shown: Sequence[RunEntry], objectives: Sequence[Objective], details: Callable[[RunEntry], RunDetails]
) -> None:
    """Draw latency by load and by profile, word errors, barge-in and patience."""
    run_details: list[tuple[str, RunDetails]] = []
    for entry in shown:
        try:
            with st.spinner(READING):
                run_details.append((entry.title, details(entry)))
        except TelemetryError as error:
            st.html(note("the store cannot be read", [str(error)]))
    if not run_details:
        return
    st.html(section("Load, conditions and behavior", ", ".join(name for name, _ in run_details)))
    with st.container(key="halves"):
        left, right = st.columns(2)
    with left:
        capacity = next((capacity for capacity in map(read_capacity, shown) if capacity is not None), None)
        is_silent = any(run.latencies for _, run in run_details)
        why = "The generator did not report its calls in flight." if is_silent else NO_LATENCY
        of = "by the calls in flight when turns began, with ramps; the lower line is the p50"
        st.html(section("Latency against load", of))
        if capacity is not None:
            st.html(f'<div class="vp">{escape(capacity.sentence)}</div>')
        first = next(
            (objective for objective in objectives if objective.metric == HEADLINE and not objective.is_of_a_part), None
        )
        threshold = None if first is None else first.threshold
        _drawn(charts.load(run_details, capacity, None if threshold is None else in_milliseconds(threshold)), why)
    with right:
        latency, errors = charts.latency_by_profile(run_details), charts.word_errors_by_profile(run_details)
        st.html(section("Profiles against latency", "the lower dot is the p50; a bar is the 95 % interval of the p95"))
        _drawn(latency, NO_LATENCY)
        rate, units = errors.table.caption.removesuffix(" by profile"), errors.table.columns[3]
        of = f"{units} that were recognized wrongly; a bar is the 95 % interval"
        st.html(section(f"Profiles against {rate}", of))
        _drawn(errors, "No transcript came back to compare with what was said.")
    st.html(section("Barge-in and patience", "callers who interrupt a reply, and callers who hang up unanswered"))
    st.html(behavior(run_details))


def _drawn(picture: Picture | None, why_not: str) -> None:
    if picture is None or not picture.rows:
        st.html(hint(why_not))
    else:
        charts.draw(picture)
