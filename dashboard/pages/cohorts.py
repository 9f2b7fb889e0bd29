"""The Cohorts page: two cohorts of a run beside each other, the comparison's sentence first."""

import altair as alt
import streamlit as st

from dashboard import frame, header, rollout_parts
from dashboard.accessible_chart import ChartTable, chart
from dashboard.charts import Row, finished
from dashboard.frame import PageContext
from dashboard.markup import escape
from dashboard.objective_status import State, chip
from dashboard.palette import Palette, palette
from telemetry.model import formatting
from telemetry.rollout.cohort_comparison import CohortComparison
from telemetry.rollout.progress import check_row, slice_row
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.cohort_pages import CohortsAnswer

_COLORS = {"light": ("#1d6fd1", "#b0359b"), "dark": ("#7ab8ff", "#f0a0e0")}
_DEFAULTS = "by default margins, not those of a rollout's plan: a comparison of this run, no verdict to act on"


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    frame.show(
        "Cohorts",
        lambda source, choice: source.ask(("cohorts", choice), lambda reader: reader.cohorts_page(choice.view())),
        _figures,
    )


def _figures(view: CohortsAnswer, run: RunRecord, summary: Summary, context: PageContext) -> None:
    del run, context
    found = view.comparison
    if found is None:
        named = f"Only <code>{escape(view.others[0])}</code> is there." if view.others else "No turn names a cohort."
        st.html(header.empty("Nothing to compare", named, "Run with --cohort, or let the endpoint name its variant."))
        return
    st.html(_sentence(found, is_limited=summary.turns.is_generator_limited))
    st.html(
        rollout_parts.check_table(
            [check_row(each) for each in found.checks],
            f"{found.candidate} against {found.control}; bounds hold at every look",
        )
    )
    name = st.context.theme.type or "light"
    st.html('<div class="vp"><h2>Voice to voice: share of turns answered within a time</h2></div>')
    chart(
        _rows(found),
        _spec(palette(name), (found.control, found.candidate), _COLORS.get(name, _COLORS["light"])),
        f"Cumulative share of turns by voice to voice, {found.control} beside {found.candidate}",
        _table(found),
    )
    if found.slices:
        rows = [slice_row(each) for each in found.slices]
        caption = "where a difference is, corrected for their number (Holm); never an excuse"
        st.html(rollout_parts.check_table(rows, caption, "slice"))


def _sentence(found: CohortComparison, *, is_limited: bool) -> str:
    state: State = "missed" if found.worse else "met" if found.within == len(found.checks) else "unknown"
    if is_limited:
        state = "unknown"
    words = {"missed": "worse", "met": "within every margin", "unknown": "not decided"}[state]
    shown = f"{found.worse} of {len(found.checks)} checks are worse, {found.within} within their margin"
    if is_limited:
        shown = "the generator was the limit: nothing is claimed"
    control, candidate = found.turns
    sizes = f"{formatting.turns(candidate)} of {found.candidate}, {formatting.turns(control)} of {found.control}"
    return (
        f'<div class="vp vp-note {state if state != "unknown" else ""} vp-verdict">'
        f"<b>{chip(state, words)} {escape(found.candidate)} against {escape(found.control)}: {escape(shown)}</b>"
        f'<ul><li>{escape(sizes)}</li><li class="hint">{_DEFAULTS}</li></ul></div>'
    )


def _rows(found: CohortComparison) -> list[Row]:
    return [
        {"cohort": each.cohort, "ms": formatting.in_milliseconds(each.value_ns), "share": each.share}
        for each in found.curves
    ]


def _table(found: CohortComparison) -> ChartTable:
    rows = [
        (each.cohort, formatting.milliseconds(each.value_ns), formatting.percent(each.share)) for each in found.curves
    ]
    return ChartTable("share of turns answered within a time", ("cohort", "within", "share of turns"), rows)


def _spec(colors: Palette, cohorts: tuple[str, str], of_cohorts: tuple[str, str]) -> Row:
    base = alt.Chart(alt.NamedData("rows"))
    legend = alt.Legend(title=None, orient="top-left", direction="horizontal")
    scale = alt.Scale(domain=list(cohorts), range=list(of_cohorts))
    dashes = alt.Scale(domain=list(cohorts), range=[[1, 0], [6, 3]])
    line = base.mark_line(interpolate="step-after", strokeWidth=1.8).encode(
        x=alt.X("ms:Q", title="voice to voice, ms", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(grid=False)),
        y=alt.Y("share:Q", title="share of turns", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("cohort:N", scale=scale, legend=legend),
        strokeDash=alt.StrokeDash("cohort:N", scale=dashes, legend=legend),
        tooltip=["cohort:N", alt.Tooltip("ms:Q", format=",.0f"), alt.Tooltip("share:Q", format=".1%")],
    )
    return finished(alt.layer(line).properties(height=260), colors)
