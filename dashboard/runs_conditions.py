"""How the runs that are ticked on the Runs page, or the newest one, went under their own conditions."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from dashboard import header, run_charts, runs_source, runs_tables
from dashboard.accessible_chart import chart
from dashboard.frame import READING
from dashboard.markup import escape
from dashboard.palette import palette
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import in_milliseconds
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import read_capacity

NO_LATENCY: Final = "No turn of these has a voice-to-voice latency."


def conditions(shown: Sequence[RunEntry], objectives: Sequence[Objective]) -> None:
    """Latency by load and by profile, word errors, barge-in and patience."""
    found: list[tuple[str, RunDetails]] = []
    for each in shown:
        try:
            with st.spinner(READING):
                found.append((each.title, runs_source.details(each)))
        except TelemetryError as error:
            st.html(header.notes([str(error)], "the store cannot be read"))
    if not found:
        return
    names = [name for name, _ in found]
    which = escape(", ".join(names))
    colors = palette(st.context.theme.type)
    st.html(f'<div class="vp vp-head"><h2>Under their own conditions <span class="hint">{which}</span></h2></div>')
    with st.container(key="halves"):
        left, right = st.columns(2)
    with left:
        _load(shown, found, _objective_ms(objectives))
    with right:
        rows, table = run_charts.latency_by_condition(found)
        st.html(
            runs_tables.part_head(
                "Profiles against latency", "the lower dot is the p50; a bar is the 95 % interval of the p95"
            )
        )
        if rows:
            profiles = list(dict.fromkeys(row["condition"] for row in rows))
            chart(
                rows,
                run_charts.condition_spec(colors, profiles, names, is_share=False),
                "p50 and p95 of voice to voice by the profile of the speech, clean first",
                table,
            )
        else:
            st.html(f'<div class="vp hint">{NO_LATENCY}</div>')
        rows, table = run_charts.word_errors_by_condition(found)
        st.html(
            runs_tables.part_head(
                f"Profiles against {table.caption.removesuffix(' by profile')}",
                f"{table.columns[3]} that were heard wrongly; a bar is the 95 % interval",
            )
        )
        if rows:
            profiles = list(dict.fromkeys(row["condition"] for row in rows))
            chart(
                rows,
                run_charts.condition_spec(colors, profiles, names, is_share=True),
                f"{table.caption.capitalize()} of the speech, clean first",
                table,
            )
        else:
            st.html('<div class="vp hint">No transcript came back to compare with what was said.</div>')
    st.html(
        runs_tables.part_head(
            "Barge-in and patience", "callers who interrupt a reply, and callers who hang up unanswered"
        )
    )
    st.html(runs_tables.behavior(found))


def _load(shown: Sequence[RunEntry], found: Sequence[tuple[str, RunDetails]], objective_ms: float | None) -> None:
    colors, names = palette(st.context.theme.type), [name for name, _ in found]
    st.html(
        runs_tables.part_head(
            "Latency against load",
            "by the calls in flight when turns began, with ramps; the lower line is the p50",
        )
    )
    rows = run_charts.load_rows(found)
    capacity = next((each for each in map(read_capacity, shown) if each is not None), None)
    if capacity is not None:
        st.html(f'<div class="vp">{escape(capacity.sentence)}</div>')
        rows = run_charts.capacity_rows(capacity)
    if not rows:
        has_values = any(each.latencies for _, each in found)
        why = "The generator did not report its calls in flight." if has_values else NO_LATENCY
        st.html(f'<div class="vp hint">{why}</div>')
        return
    chart(
        rows,
        run_charts.load_spec(colors, list(dict.fromkeys(row["run"] for row in rows)) or names, objective_ms, capacity),
        "p50 and p95 of voice to voice against the calls in flight, with the objective and the capacity found",
        run_charts.load_table(found) if capacity is None else run_charts.capacity_table(capacity),
    )


def _objective_ms(objectives: Sequence[Objective]) -> float | None:
    first = next((each for each in objectives if each.metric == HEADLINE and not each.is_of_a_part), None)
    return None if first is None or first.threshold is None else in_milliseconds(first.threshold)
