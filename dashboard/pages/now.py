"""The Now page: the state of a run on one screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, tzinfo
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts import draw, latency_lines, load_strip
from dashboard.components import figures, frame
from dashboard.components.frame import PageContext
from dashboard.components.markup import SYMBOLS, Html, State, chip, escape, hint, section
from dashboard.components.objectives import ObjectiveStatus, statuses, statuses_of
from dashboard.components.selectors import parameter_select
from dashboard.descriptions import Clock
from dashboard.links import Choice
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.metrics import DEFINITIONS, HEADLINE
from telemetry.objectives.observable import observed
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.objectives.slo import Objective
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.pages import PageAnswer
from telemetry.store.questions.timelines import STATISTIC
from telemetry.store.questions.verdicts import judged_turns, measured_s

STAGE: Final = "stage"  # in the link: the metric that is drawn over time
DRAWN: Final = (
    *("voice_to_voice", "endpointing", "asr_final_latency", "llm_first_token_latency", "llm_ttft"),
    *("tts_first_chunk_latency", "leading_silence"),
)
_STATES: Final[dict[str, State]] = {"met": "met", "missed": "missed"}


@dataclass(frozen=True, slots=True)
class NowView(PageAnswer):
    """The store's answer, judged by the objectives; `cohort_statuses` are of the first objective for voice-to-voice
    that is about every turn."""

    verdict: RunVerdict | None = None
    statuses: Sequence[ObjectiveStatus] = ()
    cohort_statuses: Mapping[str, ObjectiveStatus | None] = field(default_factory=dict[str, ObjectiveStatus | None])


def ask(source: Source, link: Mapping[str, str]) -> NowView:
    """Answer a link. Raises StoreError if the store cannot be read."""
    asked = Choice.of(link)[0].question(source.objectives, _metric(link))
    return judged(source.reader.page(asked), source.objectives)


def judged(answer: PageAnswer, given: Sequence[Objective]) -> NowView:
    """Judge an answer by objectives."""
    known = {member.name: getattr(answer, member.name) for member in fields(answer)}
    if answer.run is None or answer.summary is None:
        return NowView(**known)
    objectives, counts = observed(given, answer.counts.is_withheld), answer.counts
    lasted_s = measured_s(answer.summary, answer.run)
    result = judged_turns(objectives, counts, answer.summary, answer.cause, measured_s=lasted_s)
    headline = [objective for objective in given if objective.metric == HEADLINE and objective.cohort is None][:1]
    by_cohort = {
        cohort.cohort: next(
            iter(statuses(headline, counts.of_cohort(cohort.cohort).count, unjudged=result.unjudged)), None
        )
        for cohort in answer.summary.cohorts
    }
    judged = statuses_of(objectives, result.verdicts)
    return NowView(**known, verdict=result.verdict, statuses=judged, cohort_statuses=by_cohort)


def _metric(link: Mapping[str, str]) -> str:
    wanted = link.get(STAGE, HEADLINE)
    return wanted if wanted in DRAWN else HEADLINE


def limit_html(view: NowView) -> Html:
    """The sentence on a run without a verdict, shown before any figure; empty for other runs."""
    if view.verdict is None or view.summary is None or view.summary.limit is None:
        return Html()
    if view.verdict.state != "not_judged":
        return Html()
    return verdict_html(view.verdict, above=chip("missed", frame.LIMIT_TITLE))


def verdict_html(verdict: RunVerdict, zone: tzinfo = UTC, above: str = "") -> Html:
    """The verdict sentence, with its state as a shape, a word and a color. Its times are in UTC, as everywhere; if the
    viewer's zone differs, the start of a miss is repeated in that zone. `above` is HTML."""
    state = _STATES.get(verdict.state, "unknown")
    since = None if verdict.cause is None else verdict.cause.since_unix_ns
    here = "" if since is None else descriptions.time_of_day(since, zone)
    is_elsewhere = since is not None and here != descriptions.time_of_day(since, UTC)
    own = f' <span class="hint">({escape(here)} on your clock)</span>' if is_elsewhere else ""
    text = f"<b>{SYMBOLS[state]}</b> {escape(verdict.sentence)}{own}"
    return Html(f'<p class="vp vp-verdict {state}" role="status">{f"{above}<br>" if above else ""}{text}</p>')


def _figures(view: NowView, run: RunRecord, summary: Summary, context: PageContext) -> None:
    """Draw the verdict and the three large numbers, and the figures below them."""
    if view.verdict is not None and not limit_html(view):
        st.html(verdict_html(view.verdict, context.zone))
    st.html(figures.tiles(summary, view.statuses))
    clock = descriptions.clock_of(run, context.zone)
    with st.container(key="halves"):
        left, right = st.columns([1, 1.06])
    with left:
        _over_time(view, clock)
        st.html(figures.budget(view.budget, [status.objective for status in view.statuses]))
        st.html(figures.outcomes(summary.turns))
        st.html(figures.failures(summary.failures) or "<div></div>")
    with right:
        st.html(figures.stages(summary, view.statuses))
        explanation = view.explanation
        explained = next((status for status in view.statuses if status.objective == view.explained), None)
        if explanation is not None and explained is not None and explanation.selected and explanation.others:
            bad = "bad turn" if explanation.selected == 1 else "bad turns"
            st.html(figures.explanation(explanation, f"{bad} by {explained.promise}"))
        st.html(figures.cohorts(summary.cohorts, view.cohort_statuses))
        st.html(figures.slowest(view.slowest, context.choice, clock) or "<div></div>")


def _over_time(view: NowView, clock: Clock) -> None:
    cohort_lines = view.lines
    metric = _metric(st.query_params) if cohort_lines is None else cohort_lines.metric
    name = DEFINITIONS[metric].label
    title, selector = st.columns([2.2, 1], vertical_alignment="center")
    with selector:
        label_of = {drawn: DEFINITIONS[drawn].label for drawn in DRAWN}.__getitem__
        parameter_select(STAGE, "Stage", DRAWN, metric, label_of)
    points = [] if cohort_lines is None else [point for line in cohort_lines.lines for point in line.points]
    heading = f"{name} over time"
    if cohort_lines is None or not (cohort_lines.dots or any(point.value is not None for point in points)):
        why = "no turn shows it" if not points else f"too few turns for a {STATISTIC}"
        with title:
            st.html(section(heading) + hint(why))
        return
    left_out = (
        f"; {formatting.count(cohort_lines.left_out, 'smaller cohort')} left out" if cohort_lines.left_out else ""
    )
    seconds = cohort_lines.window_ns // formatting.NS_PER_S
    lasts = f"{seconds // 60} min" if seconds >= 120 and seconds % 60 == 0 else f"{seconds} s"
    remark = f"the line is the {STATISTIC} of the {lasts} before each point, with a gap where turns are too few"
    if cohort_lines.dots:
        remark += "; each dot is a turn"
    with title:
        st.html(section(heading, remark + left_out))
    threshold = next((status.objective.threshold for status in view.statuses if status.metric == metric), None)
    cause = None if view.verdict is None else view.verdict.cause
    objective_ms = None if threshold is None else formatting.in_milliseconds(threshold)
    missed_ns = None if cause is None else cause.since_unix_ns
    draw(latency_lines(cohort_lines, name, clock, objective_ms=objective_ms, missed_ns=missed_ns))
    if cohort_lines.load:
        draw(load_strip(cohort_lines, clock))


PAGE: Final = frame.run_page("Now", ask, _figures, limit_html)
page: Final = PAGE.show
