"""The Now page: one screen that says how a run is doing."""

import pandas as pd
import streamlit as st

from dashboard import bars, frame, tables
from dashboard.charts import timeline_rows, timeline_spec
from dashboard.frame import PageContext
from dashboard.palette import palette
from dashboard.source import NowView
from dashboard.tiles import tiles
from telemetry.model import formatting
from telemetry.model.metrics import HEADLINE
from telemetry.store.answers import RunRecord, Summary


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    frame.show("Now", lambda source, choice: source.now(choice), _figures)


def _figures(view: NowView, run: RunRecord, summary: Summary, context: PageContext) -> None:
    """Everything below the head, from one state of the store."""
    st.html(tiles(summary, view.statuses))
    left, right = st.columns([1, 1.06])
    headline = next((each for each in view.statuses if each.metric == HEADLINE), None)
    threshold = headline.objective.threshold if headline else None
    with left:
        st.html(
            '<div class="vp vp-head"><h2>Voice to voice over time <span class="hint">dots are turns, while few; '
            "p95 from 20 answered turns a bucket, p99 from 100</span></h2></div>"
        )
        st.vega_lite_chart(
            pd.DataFrame(timeline_rows(view.timeline, view.dots)),
            timeline_spec(
                palette(st.context.theme.type),
                None if threshold is None else formatting.in_milliseconds(threshold),
                with_calls=any(point.calls_in_flight is not None for point in view.timeline),
            ),
            theme=None,
            width="stretch",
            alt="Voice to voice over time: p50, p95 and p99 against the objective, calls in flight behind",
        )
        st.html(bars.budget(view.budget or {}))
        st.html(bars.outcomes(summary.turns))
        st.html(tables.failures(summary.failures) or "<div></div>")
    with right:
        st.html(tables.stages(summary, view.statuses))
        st.html(tables.cohorts(summary.cohorts, view.cohort_statuses))
        st.html(tables.slowest(view.slowest, context.choice, context.zone) or "<div></div>")
