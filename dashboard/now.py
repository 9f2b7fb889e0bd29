"""The Now page: one screen that says how a run is doing."""

import time
from datetime import UTC, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pandas as pd
import streamlit as st

from dashboard import bars, descriptions, header, tables
from dashboard.charts import timeline_rows, timeline_spec
from dashboard.controls import controls
from dashboard.filters import Choice, choice_of
from dashboard.markup import escape
from dashboard.palette import palette
from dashboard.source import NowView, source_from_environment
from dashboard.tiles import tiles
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.model.metrics import HEADLINE
from telemetry.store.answers import RunRecord, Summary

REFRESH_LIVE_S: Final = 2.0
REFRESH_STALE_S: Final = 5.0
OLD_TURNS_GONE: Final = "The store no longer keeps the oldest turns of this run: the figures are of the others."
START_A_RUN: Final = (
    "Start a run with <code>./voiceprobe demo</code> or <code>voiceprobe run ws://…</code>, or point a service's "
    "<code>OTEL_EXPORTER_OTLP_ENDPOINT</code> at the sidecar"
)


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    choice, faults = choice_of(st.query_params)
    try:
        source = source_from_environment()
        view = source.now(choice)
    except TelemetryError as error:
        _unreadable(error)
        return
    choice = controls(source, view, choice)
    st.html(header.notes(faults, "the link")) if faults else None
    drawn = {run.run_id for run in view.runs}

    def body() -> None:
        try:
            latest = source.now(choice)
        except TelemetryError as error:
            _unreadable(error)
            return
        if {run.run_id for run in latest.runs} != drawn or _refresh_s(latest) != refresh_s:
            st.rerun()  # the selector and the pace belong to the page around this part
        draw(latest, choice, viewer_zone())

    refresh_s = _refresh_s(view)
    st.fragment(body, run_every=refresh_s)()


def _refresh_s(view: NowView) -> float | None:
    """How often to look again: often while turns come in, never when the run has announced its end."""
    if view.run is None or view.summary is None:
        return REFRESH_LIVE_S
    state = descriptions.state_of(view.run, view.summary.newest_unix_ns, time.time_ns())
    return {"live": REFRESH_LIVE_S, "stale": REFRESH_STALE_S, "ended": None}[state]


def _unreadable(error: TelemetryError) -> None:
    st.html(header.empty("The store cannot be read", escape(error)))
    st.fragment(_try_again, run_every=REFRESH_STALE_S)()


def _try_again() -> None:
    """Look again for a store that may come to be: the first run of this fragment is the page's own."""
    if st.session_state.get("tried"):
        del st.session_state["tried"]
        st.rerun()
    st.session_state["tried"] = True


def viewer_zone() -> tzinfo:
    """The viewer's time zone as the browser says, else UTC."""
    name = st.context.timezone
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def draw(view: NowView, choice: Choice, zone: tzinfo) -> None:
    """Everything below the selectors, from one state of the store."""
    if view.faults:
        st.html(header.notes(view.faults, "damaged data left out; the figures below are from the rest"))
    run, summary = view.run, view.summary
    if view.missing_run is not None:
        st.html(
            header.empty(
                "That run is not in this store",
                f"The link asks for run <code>{escape(view.missing_run)}</code>; choose another above.",
            )
        )
        return
    if run is None or summary is None:
        st.html(header.empty("No turns yet", START_A_RUN))
        return
    now_unix_ns = time.time_ns()
    state = descriptions.state_of(run, summary.newest_unix_ns, now_unix_ns)
    if not summary.turns.total:
        _no_turns(run, choice)
        return
    if summary.turns.is_generator_limited:
        limit = descriptions.describe_generator_limit(summary.turns)
        st.html(header.notes([limit], "generator-limited: nothing is claimed about the service"))
    st.html(header.overview(run, summary, state, now_unix_ns, zone))
    if run.lacks_old_turns:
        st.html(header.notes([OLD_TURNS_GONE], "what the store keeps"))
    st.html(tiles(summary, view.statuses))
    _figures(view, run, summary, choice, zone)


def _no_turns(run: RunRecord, choice: Choice) -> None:
    if choice.narrows:
        st.html(
            header.empty(
                "No turn matches the filter",
                f"Run <code>{escape(run.run_id)}</code> has {formatting.turns(run.turns)}; widen the filter above.",
            )
        )
    else:
        st.html(
            header.empty(
                "No turns yet",
                f"Run <code>{escape(run.run_id)}</code> has begun; its first turn shows here as soon as it is over.",
            )
        )


def _figures(view: NowView, run: RunRecord, summary: Summary, choice: Choice, zone: tzinfo) -> None:
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
        st.html(tables.slowest(view.slowest, choice, zone) or "<div></div>")
