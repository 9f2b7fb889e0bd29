"""Several runs: their rows in the list, their comparison with a baseline, and their figures by load and profile."""

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final
from urllib.parse import urlencode

import streamlit as st

from dashboard import descriptions
from dashboard.charts import compared
from dashboard.components.frame import READING
from dashboard.components.markup import SYMBOLS, Html, State, chip, escape, hint, listed, note, section, table
from dashboard.components.pictures import colors, draw
from telemetry.charts.drawing import Picture
from telemetry.comparison.differences import FigureDifference
from telemetry.comparison.sentences import HEADINGS, context_lines, figure_row, footnotes, grouped, title_of
from telemetry.comparison.verdict import ComparisonState, RunComparison
from telemetry.model import formatting
from telemetry.model.bounds import Statistic
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import DASH, in_milliseconds
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.store.answers import MetricStats
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
    for title, found in grouped(each):
        rows += [(title,), *map(_comparison_row, found)]
    columns = [HEADINGS[0], *(f"#{name}" for name in HEADINGS[1:])]
    notes = f'<div class="vp"><ul class="hint">{listed(footnotes(each))}</ul></div>'
    return Html(table(f"figures of {title_of(each)}", columns, rows) + notes)


def _comparison_row(found: FigureDifference) -> list[str]:
    *cells, status = figure_row(found)
    state = _WORSE[found.is_worse]
    mark = "" if found.is_worse is None else f"{SYMBOLS[state]} "
    return [*cells, Html(f'<span class="vp-chip vp-plain {state}">{mark}{escape(status)}</span>')]


def behavior(found: Sequence[tuple[str, RunDetails]]) -> Html:
    """Barge-in and patience of each run, as a table."""
    return table("barge-in and patience", _BEHAVIOR, [_behavior_row(name, each) for name, each in found])


def _stop(stop: MetricStats | None, which: Statistic) -> str:
    if stop is None:
        return DASH
    within = stop.within(which)
    return formatting.milliseconds(getattr(stop, which)) + (f" ({within})" if within is not None else "")


def _behavior_row(name: str, each: RunDetails) -> tuple[str, ...]:
    done, between = each.behavior, each.abandoned_interval
    return (
        name,
        formatting.number(done.barge_ins) if done.barge_ins else "none asked",
        formatting.share(done.barge_ins_recovered, done.barge_ins),
        formatting.share(done.barge_ins_stopped, done.barge_ins_judged),
        *(_stop(each.barge_in_stop, which) for which in ("p50", "p95")),
        f"{formatting.number(each.abandoned)} of {formatting.turns(each.eligible)}",
        DASH if between is None else f"{formatting.percent(between[0])} to {formatting.percent(between[1])}",
        formatting.seconds(each.waited_p50),
    )


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
        why = (
            "The generator did not report its calls in flight."
            if any(each.latencies for _, each in found)
            else NO_LATENCY
        )
        st.html(
            section(
                "Latency against load", "by the calls in flight when turns began, with ramps; the lower line is the p50"
            )
        )
        if capacity is not None:
            st.html(f'<div class="vp">{escape(capacity.sentence)}</div>')
        _drawn(compared.load(found, capacity, _objective_ms(objectives), colors()), why)
    with right:
        latency, errors = compared.latency_by_profile(found, colors()), compared.word_errors_by_profile(found, colors())
        st.html(section("Profiles against latency", "the lower dot is the p50; a bar is the 95 % interval of the p95"))
        _drawn(latency, NO_LATENCY)
        rate, units = errors.table.caption.removesuffix(" by profile"), errors.table.columns[3]
        st.html(
            section(f"Profiles against {rate}", f"{units} that were recognized wrongly; a bar is the 95 % interval")
        )
        _drawn(errors, "No transcript came back to compare with what was said.")
    st.html(section("Barge-in and patience", "callers who interrupt a reply, and callers who hang up unanswered"))
    st.html(behavior(found))


def _drawn(picture: Picture | None, why_not: str) -> None:
    if picture is None or not picture.rows:
        st.html(hint(why_not))
    else:
        draw(picture)


def _objective_ms(objectives: Sequence[Objective]) -> float | None:
    first = next((each for each in objectives if each.metric == HEADLINE and not each.is_of_a_part), None)
    return None if first is None or first.threshold is None else in_milliseconds(first.threshold)
