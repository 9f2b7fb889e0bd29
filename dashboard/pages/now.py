"""The Now page: one screen that says how a run is doing."""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts import over_time
from dashboard.charts.style import DARK, palette
from dashboard.components import bars, frame, tables
from dashboard.components.chart import chart
from dashboard.components.explanation import explanation
from dashboard.components.frame import PageContext
from dashboard.components.markup import escape
from dashboard.components.objectives import SYMBOLS, State, chip
from dashboard.components.selectors import linked_select
from dashboard.components.tiles import tiles
from dashboard.descriptions import Clock
from dashboard.links import choice_of
from dashboard.source import NowView, Source
from telemetry.model import formatting
from telemetry.model.metrics import DEFINITIONS, HEADLINE
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.timelines import STATISTIC

_STAGE_KEY: Final = "now_stage"
STAGE: Final = "stage"  # in the link: the metric that is drawn over time
DRAWN: Final = (
    *("voice_to_voice", "endpointing", "asr_final_latency", "llm_first_token_latency", "llm_ttft"),
    *("tts_first_chunk_latency", "leading_silence"),
)
_STATES: Final[dict[str, State]] = {"met": "met", "missed": "missed"}


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    PAGE.show()


def ask(source: Source, link: Mapping[str, str]) -> NowView:
    """What a link asks for. Raises StoreError when the store cannot be read."""
    return source.now(choice_of(link)[0], _metric(link))


def _metric(link: Mapping[str, str]) -> str:
    wanted = link.get(STAGE, HEADLINE)
    return wanted if wanted in DRAWN else HEADLINE


def limit_html(view: NowView) -> str:
    """The verdict sentence of a run that claims nothing, which then says why before any figure; else empty."""
    if view.verdict is None or view.summary is None or view.summary.limit is None:
        return ""
    if view.verdict.state != "not_judged":
        return ""
    return verdict_html(view.verdict, above=chip("missed", frame.LIMIT_TITLE))


def verdict_html(verdict: RunVerdict, zone: tzinfo = UTC, above: str = "") -> str:
    """The verdict sentence, with its state as a shape, a word and a color. It says its times in UTC, as everywhere;
    where the viewer's clock differs, the beginning of a miss follows in the time of the picture. `above` is HTML."""
    state = _STATES.get(verdict.state, "unknown")
    since = None if verdict.cause is None else verdict.cause.since_unix_ns
    here = "" if since is None else descriptions.time_of_day(since, zone)
    is_elsewhere = since is not None and here != descriptions.time_of_day(since, UTC)
    own = f' <span class="hint">({escape(here)} on your clock)</span>' if is_elsewhere else ""
    sentence = f"<b>{SYMBOLS[state]}</b> {escape(verdict.sentence)}{own}"
    return f'<p class="vp vp-verdict {state}" role="status">{f"{above}<br>" if above else ""}{sentence}</p>'


def _duration(ns: int) -> str:
    """`90 s`, `4 min`."""
    seconds = ns // formatting.NS_PER_S
    return f"{seconds // 60} min" if seconds >= 120 and seconds % 60 == 0 else f"{seconds} s"


def _figures(view: NowView, run: RunRecord, summary: Summary, context: PageContext) -> None:
    """The verdict and the three large numbers, and the figures below them."""
    if view.verdict is not None and not limit_html(view):
        st.html(verdict_html(view.verdict, context.zone))
    st.html(tiles(summary, view.statuses))
    clock = descriptions.clock_of(run, context.zone)
    with st.container(key="halves"):
        left, right = st.columns([1, 1.06])
    with left:
        _over_time(view, clock)
        st.html(bars.budget(view.budget or {}, [each.objective for each in view.statuses]))
        st.html(bars.outcomes(summary.turns))
        st.html(tables.failures(summary.failures) or "<div></div>")
    with right:
        st.html(tables.stages(summary, view.statuses))
        found = view.explanation
        if found is not None and view.explained is not None and found.selected and found.others:
            bad = "bad turn" if found.selected == 1 else "bad turns"
            st.html(explanation(found, f"{bad} by {view.explained.promise}"))
        st.html(tables.cohorts(summary.cohorts, view.cohort_statuses))
        st.html(tables.slowest(view.slowest, context.choice, clock) or "<div></div>")


def _over_time(view: NowView, clock: Clock) -> None:
    found = view.lines
    metric = _metric(st.query_params) if found is None else found.metric
    name = DEFINITIONS[metric].label
    title, selector = st.columns([2.2, 1], vertical_alignment="center")
    with selector:
        linked_select("Stage", DRAWN, metric, key=_STAGE_KEY, label_of=_label_of, rewrite=_rewrite_stage)
    points = [] if found is None else [point for line in found.lines for point in line.points]
    if found is None or all(point.value is None for point in points):
        why = "no turn shows it" if not points else f"too few turns for a {STATISTIC}"
        with title:
            st.html(f'<div class="vp"><h2>{escape(name)} over time</h2><span class="hint">{why}</span></div>')
        return
    left_out = f"; {formatting.count(found.left_out, 'smaller cohort')} left out" if found.left_out else ""
    with title:
        st.html(
            f'<div class="vp"><h2>{escape(name)} over time <span class="hint">each point is the {STATISTIC} of the '
            f"{_duration(found.window_ns)} before it; a gap where turns are too few{left_out}</span>"
            "</h2></div>"
        )
    threshold = next((each.objective.threshold for each in view.statuses if each.metric == metric), None)
    cohorts = tuple(dict.fromkeys(over_time.cohort_label(line.cohort) for line in found.lines))
    colors = palette(st.context.theme.type)
    cause = None if view.verdict is None else view.verdict.cause
    since = None if cause is None else cause.since_unix_ns

    chart(
        over_time.lines_rows(found, None if since is None else (since, f"missed since {clock(since)}"), clock),
        over_time.lines_spec(
            colors,
            cohorts,
            None if threshold is None else formatting.in_milliseconds(threshold),
            is_dark=colors is DARK,
        ),
        f"{name} over time, {STATISTIC} by cohort against the objective",
        over_time.lines_table(found, name, clock),
    )
    if found.load:
        chart(
            over_time.load_rows(found),
            over_time.load_spec(colors),
            "Calls in flight over the same time",
            over_time.load_table(found, clock),
        )


def _label_of(metric: str) -> str:
    return DEFINITIONS[metric].label


def _rewrite_stage() -> None:
    st.query_params[STAGE] = st.session_state[_STAGE_KEY]


PAGE: Final = frame.RunPage("Now", ask, _figures, limit_html)
