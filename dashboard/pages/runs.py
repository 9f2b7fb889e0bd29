"""The Runs page: every run of every store that was named, their trends, and two or more of them compared."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Any, Final
from urllib.parse import urlencode
from zlib import crc32

import pandas as pd
import streamlit as st

from dashboard import descriptions, source
from dashboard.charts import run_charts
from dashboard.charts.style import ChartTable, Row, palette
from dashboard.components import frame, header
from dashboard.components.chart import chart, plain_table, section
from dashboard.components.frame import READING, DashboardPage, PageContext, no_runs_yet, viewer_zone
from dashboard.components.markup import escape
from dashboard.components.objectives import SYMBOLS, State
from dashboard.components.selectors import Selector, selector_row
from dashboard.components.trust import runs_head
from dashboard.links import BEGAN_LABELS, NAMES, RunsChoice, runs_choice_of, values_of
from dashboard.source import given_objectives, objectives_in_force
from telemetry.comparison.differences import FigureDifference
from telemetry.comparison.sentences import HEADINGS, context_lines, figure_row, footnotes, grouped, title_of
from telemetry.comparison.verdict import DEFAULT_MARGIN_NS, ComparisonState, RegressionMargin, RunComparison
from telemetry.model import formatting
from telemetry.model.bounds import Statistic
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import DASH, in_milliseconds
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.store.answers import MetricStats
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.run_folders.catalog import RunListing
from telemetry.store.run_folders.entries import RunEntry, RunTrends, narrowed, run_trends
from telemetry.store.run_folders.places import read_capacity

TITLE: Final = "Runs"
TICKED: Final = "ticked"
BASELINE: Final = "baseline"
MARGIN: Final = "margin"
MARGINS_MS: Final = (20, 50, 100, 200, 500)
MOST_TICKED: Final = 6
_BY_KEYBOARD: Final = "By keyboard: the arrow keys go to a run, Shift with the space bar ticks it."
REFRESH_S: Final = 5.0


def page() -> None:
    """Draw the page; it looks by itself for runs that begin and end."""
    PAGE.show()


def _selectors(listing: RunListing, link: Mapping[str, str]) -> None:
    """Draw the title and what there is to choose from: in every run, whether or not it is listed."""
    choice, faults = runs_choice_of(link)
    values = values_of(listing.entries)

    def any_of(name: str, empty: str, label_of: Callable[[str], str] = str) -> Selector:
        return Selector(name, values[name], lambda each: label_of(each) if each else empty, getattr(choice, name))

    in_sight = (any_of("began", "any time", lambda each: BEGAN_LABELS[each]), any_of("cohort", "every cohort"))
    behind = (
        any_of("target", "any target"),
        any_of("state", "any state"),
        any_of("profile", "any profile"),
        any_of("scenario", "any scenario"),
        any_of("callers", "any number"),
        any_of("protocol", "any protocol"),
    )
    selector_row(TITLE, in_sight, behind, widths=(1.6, 1.6))
    if faults:
        st.html(header.notes(faults, "the link"))


def _listed_of(listing: RunListing, choice: RunsChoice, now_unix_ns: int) -> RunListing:
    """The part of a listing that was chosen."""
    return replace(listing, entries=narrowed(listing.entries, choice.filter(now_unix_ns)))


def _draw(listing: RunListing, context: PageContext) -> None:
    if (given := given_objectives()) is not None and given.fault is not None:
        st.html(header.notes([given.fault], "objectives"))
    if not listing.entries:
        st.html(no_runs_yet())
        return
    choice, _ = runs_choice_of(context.link)
    listed, ticked = _listed_of(listing, choice, context.now_unix_ns).entries, _ticked(listing.entries)
    if listed:
        above = runs_head(listed, len(listing.entries), context.zone)
        frame.head(above.overview, above.trust, above.details)
        _trends(run_trends(listed))
    _list(listing, listed, choice)
    shown = ticked or newest(listed)
    if shown or listed:
        _about(ticked, shown, listing.objectives)


def _about(ticked: Sequence[RunEntry], shown: Sequence[RunEntry], objectives: Sequence[Objective] | None) -> None:
    """The runs that are ticked beside each other, and how they, or the newest one, went."""
    if len(ticked) > 1:
        _comparison(ticked, objectives)
    else:
        st.html(f'<div class="vp hint">Tick two runs or more to compare them. {_BY_KEYBOARD}</div>')
    conditions(shown, _own_objectives(shown) if objectives is None else objectives)


def _own_objectives(shown: Sequence[RunEntry]) -> Sequence[Objective]:
    """Those of the first run that is shown; nothing where they cannot be read, as its row says."""
    with contextlib.suppress(TelemetryError):
        return objectives_in_force(shown[0].store).objectives if shown else ()
    return ()


def newest(entries: Sequence[RunEntry]) -> list[RunEntry]:
    """The newest run that has ended and of which anything is stored; of one that goes on, all conditions would be
    counted anew at each refresh."""
    readable = [each for each in entries if each.state != "damaged"]
    ended = [each for each in readable if each.state != "under way" and not each.is_empty]
    return (ended or readable)[:1]


def _trends(trends: RunTrends) -> None:
    if not trends.shown:
        return
    left_out = [
        f"{formatting.count(trends.unfit, 'run')} in no trend: too few turns for a p95, or nothing is claimed of them"
        if trends.unfit
        else "",
        f"{formatting.count(trends.left_out, 'more trend')}" if trends.left_out else "",
    ]
    st.html(section("p95 from run to run", "; ".join(filter(None, ["runs that were asked the same", *left_out]))))
    zone = viewer_zone()
    chart(
        run_charts.trend_rows(trends.shown),
        run_charts.trend_spec(palette(st.context.theme.type), [each.label for each in trends.shown]),
        "p95 of voice to voice from run to run, a line for each group of runs that were asked the same",
        run_charts.trend_table(
            trends.shown,
            {each.reference: descriptions.began(each, zone) for trend in trends.shown for each in trend.runs},
        ),
    )


def _notices(listed: Sequence[RunEntry], listing: RunListing, choice: RunsChoice) -> None:
    """What of the list cannot be read, or is left out although it may be meant or is ticked."""
    if found := [f"{each.title}: {each.fault}" for each in listed if each.fault]:
        st.html(header.notes(found, "runs that cannot be read whole"))
    hints: list[str] = []
    unknown = sum(each.cohorts is None and each.state != "damaged" for each in listing.entries)
    if choice.cohort is not None and unknown:
        hints.append(f"The cohorts of {formatting.count(unknown, 'run')} are not known: not in the list.")
    hints.append(left_out(_left_out(_ticked(listing.entries), listed)))
    for hint in filter(None, hints):
        st.html(f'<div class="vp hint">{escape(hint)}</div>')


def _left_out(ticked: Sequence[RunEntry], listed: Sequence[RunEntry]) -> list[RunEntry]:
    shown = {each.reference for each in listed}
    return [each for each in ticked if each.reference not in shown]


def _no_match(listing: RunListing) -> str:
    others = {name: value for name, value in st.query_params.items() if name not in NAMES}
    every = f'<a href="{escape(f"runs?{urlencode(others)}")}" target="_self">show every run</a>'
    without = f"There {'is' if len(listing.entries) == 1 else 'are'} {formatting.count(len(listing.entries), 'run')}"
    return header.empty("No run matches the filter", f"{without} without it: widen the filter above, or {every}.")


def _list(listing: RunListing, entries: Sequence[RunEntry], choice: RunsChoice) -> None:
    """The list with a box to tick at each run; what is ticked stands in the link, also if the filter leaves it out."""
    _notices(entries, listing, choice)
    if not entries:
        st.html(_no_match(listing))
        return
    st.html(section("Runs that match the filter" if choice.narrows else "All runs", "the newest first"))
    rows = list_rows(entries, viewer_zone())
    wanted = _references()
    ticked = [place for place, each in enumerate(entries) if each.reference in wanted]
    kept = [each.reference for each in _left_out(_ticked(listing.entries), entries)]

    # What is ticked is known by its row: a list with another run in it is another list, ticked as the link says.
    # So is a list whose ticks were taken away at once.
    unticked: int = st.session_state.get(_UNTICKED, 0)
    key = f"{_KEY}{crc32(repr([unticked, *(each.reference for each in entries)]).encode()):08x}"

    def remember() -> None:
        chosen: Any = st.session_state[key]
        found = [entries[place].reference for place in chosen["selection"]["rows"]]
        st.query_params[TICKED] = json.dumps([*kept, *found][:MOST_TICKED])

    milliseconds = st.column_config.NumberColumn(format=formatting.MILLISECONDS_PRINTF, width="small")
    number = st.column_config.NumberColumn(format=formatting.NUMBER_PRINTF)
    st.dataframe(
        pd.DataFrame(rows),
        key=key,
        on_select=remember,
        selection_mode="multi-row",
        selection_default={"selection": {"rows": ticked, "columns": [], "cells": []}},
        hide_index=True,
        width="stretch",
        height=min(35 * (len(rows) + 1) + 3, 420),
        column_config={
            "run": st.column_config.TextColumn("run", pinned=True, width="medium"),
            "open": st.column_config.LinkColumn("open", display_text="open", width="small"),
            "turns": number,
            "invalid": number,
            "callers": number,
            "p50": milliseconds,
            "p95": milliseconds,
            "p99": milliseconds,
        },
        placeholder=formatting.DASH,
        alt="The runs: when they began, their state, turns, percentiles of voice to voice, note and verdict",
    )
    if wanted:
        # A list that begins with ticks cannot be entered by keyboard: this is the way, and to those that are left out.
        st.button("Untick all", on_click=_untick_all)


def _untick_all() -> None:
    st.session_state[_UNTICKED] = st.session_state.get(_UNTICKED, 0) + 1
    st.query_params.pop(TICKED, None)


_KEY: Final = "runs_list_"
_UNTICKED: Final = "runs_unticked"


def _references() -> list[str]:
    """The runs that the link names, the baseline first."""
    try:
        found: Any = json.loads(st.query_params.get(TICKED, "[]"))
    except ValueError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []


def _ticked(entries: Sequence[RunEntry]) -> list[RunEntry]:
    """What the link names and is there, the oldest first."""
    wanted = _references()
    found = [each for each in entries if each.reference in wanted and each.state != "damaged"]
    return sorted(found, key=lambda each: each.began_unix_ns or 0)[:MOST_TICKED]


def _comparison(ticked: Sequence[RunEntry], objectives: Sequence[Objective] | None) -> None:
    st.html('<div class="vp vp-head"><h2>Compared</h2></div>')
    left, right, _ = st.columns([2, 1, 2])
    titles = {each.reference: each.title for each in ticked}
    with left:
        reference = st.selectbox("baseline", list(titles), format_func=lambda each: titles[each], key=BASELINE)
    with right:
        margin_ms = st.selectbox(
            "margin on the p95",
            MARGINS_MS,
            index=MARGINS_MS.index(round(in_milliseconds(DEFAULT_MARGIN_NS))),
            format_func=lambda each: f"{each} ms",
            key=MARGIN,
        )
    baseline = next((each for each in ticked if each.reference == reference), ticked[0])
    others = [each for each in ticked if each is not baseline]
    margin = RegressionMargin(margin_ms * formatting.NS_PER_MS)
    try:
        with st.spinner(READING):
            found = source.compared([baseline, *others], margin, objectives)
    except TelemetryError as error:
        st.html(header.empty("These runs cannot be compared", escape(error)))
        return
    for each in found:
        st.html(comparison_head(each))
    rows = run_charts.forest_rows(found)
    if rows:
        labels = list(dict.fromkeys(row["label"] for row in rows))
        chart(
            rows,
            run_charts.forest_spec(palette(st.context.theme.type), in_milliseconds(margin.value), labels, len(found)),
            "Differences of the latencies from the baseline with their 95 % intervals, zero and the margin as lines",
            run_charts.forest_table(found),
        )
    for each in found:
        with st.expander(
            f"All figures: {each.candidate.label} against {each.baseline.label}", expanded=len(found) == 1
        ):
            st.html(comparison_table(each))


PAGE: Final = DashboardPage(
    TITLE,
    lambda _link: source.run_listing(),
    selectors=_selectors,
    offered=lambda listing: values_of(listing.entries),
    least_s=lambda _listing: REFRESH_S,
    draw=_draw,
    unreadable="The runs cannot be listed",
)


NO_LATENCY: Final = "No turn of these has a voice-to-voice latency."


def conditions(shown: Sequence[RunEntry], objectives: Sequence[Objective]) -> None:
    """Latency by load and by profile, word errors, barge-in and patience."""
    found: list[tuple[str, RunDetails]] = []
    for each in shown:
        try:
            with st.spinner(READING):
                found.append((each.title, source.details(each)))
        except TelemetryError as error:
            st.html(header.notes([str(error)], "the store cannot be read"))
    if not found:
        return
    names = [name for name, _ in found]
    st.html(section("Under their own conditions", ", ".join(names)))
    with st.container(key="halves"):
        left, right = st.columns(2)
    with left:
        _load_chart(shown, found, _objective_ms(objectives))
    with right:
        rows, table = run_charts.latency_by_condition(found)
        hint = "the lower dot is the p50; a bar is the 95 % interval of the p95"
        st.html(section("Profiles against latency", hint))
        alt = "p50 and p95 of voice to voice by the profile of the speech, clean first"
        _by_profile(rows, table, names, alt, NO_LATENCY)
        rows, table = run_charts.word_errors_by_condition(found)
        hint = f"{table.columns[3]} that were heard wrongly; a bar is the 95 % interval"
        st.html(section(f"Profiles against {table.caption.removesuffix(' by profile')}", hint))
        alt = f"{table.caption.capitalize()} of the speech, clean first"
        _by_profile(rows, table, names, alt, "No transcript came back to compare with what was said.", is_share=True)
    st.html(section("Barge-in and patience", "callers who interrupt a reply, and callers who hang up unanswered"))
    st.html(behavior(found))


def _by_profile(
    rows: Sequence[Row], table: ChartTable, names: Sequence[str], alt: str, none: str, *, is_share: bool = False
) -> None:
    if not rows:
        st.html(f'<div class="vp hint">{none}</div>')
        return
    profiles = list(dict.fromkeys(row["condition"] for row in rows))
    spec = run_charts.condition_spec(palette(st.context.theme.type), profiles, names, is_share=is_share)
    chart(rows, spec, alt, table)


def _load_chart(shown: Sequence[RunEntry], found: Sequence[tuple[str, RunDetails]], objective_ms: float | None) -> None:
    colors, names = palette(st.context.theme.type), [name for name, _ in found]
    hint = "by the calls in flight when turns began, with ramps; the lower line is the p50"
    st.html(section("Latency against load", hint))
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


_CHIPS: Final[dict[ComparisonState, tuple[State, str]]] = {
    "worse": ("missed", "regression"),
    "within": ("met", "within the margin"),
    "undecided": ("unknown", "undecided"),
}

_BEHAVIOR: Final = (
    *("run", "barge-ins", "answered after", "stopped", "stop p50", "stop p95"),
    *("gave up", "95 % interval", "waited (median)"),
)


def list_rows(entries: Sequence[RunEntry], zone: tzinfo) -> list[dict[str, Any]]:
    """The rows of the list."""
    return [
        {
            "run": each.title,
            "open": f"./?{urlencode({'store': each.store, 'run': each.run_id})}" if each.state != "damaged" else None,
            "began": descriptions.began(each, zone),
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
        f'<tr><th colspan="6" scope="colgroup" class="group">{escape(title)}</th></tr>'
        f"{''.join(map(_comparison_row, found))}"
        for title, found in grouped(each)
    )
    head = "".join(f'<th scope="col"{" class=num" if place else ""}>{name}</th>' for place, name in enumerate(HEADINGS))
    notes = "".join(f"<li>{escape(line)}</li>" for line in footnotes(each))
    label = escape(f"figures of {title_of(each)}")
    return (
        f'<div class="vp vp-scrolled" role="region" aria-label="{label}" tabindex="0"><table><thead><tr>{head}</tr>'
        f'</thead><tbody>{groups}</tbody></table></div><div class="vp"><ul class="hint">{notes}</ul></div>'
    )


def _comparison_row(found: FigureDifference) -> str:
    label, *cells, status = figure_row(found)
    states: dict[bool | None, State] = {True: "missed", False: "met", None: "unknown"}
    state = states[found.is_worse]
    mark = "" if found.is_worse is None else f"{SYMBOLS[state]} "
    shown = "".join(f'<td class="num">{escape(cell)}</td>' for cell in cells)
    chip = f'<span class="vp-chip vp-plain {state}">{mark}{escape(status)}</span>'
    return f'<tr><th scope="row">{escape(label)}</th>{shown}<td class="num">{chip}</td></tr>'


def behavior(found: Sequence[tuple[str, RunDetails]]) -> str:
    """Barge-in and patience of each run, as a table."""
    return plain_table("barge-in and patience", _BEHAVIOR, [_behavior_row(name, each) for name, each in found])


def _stop(stop: MetricStats | None, which: Statistic) -> str:
    if stop is None:
        return DASH
    within = stop.within(which)
    return formatting.milliseconds(getattr(stop, which)) + (f" ({within})" if within is not None else "")


def _behavior_row(name: str, each: RunDetails) -> tuple[str, ...]:
    done, stop = each.behavior, each.barge_in_stop
    between = each.abandoned_interval
    return (
        name,
        formatting.number(done.barge_ins) if done.barge_ins else "none asked",
        formatting.share(done.barge_ins_recovered, done.barge_ins),
        formatting.share(done.barge_ins_stopped, done.barge_ins_judged),
        _stop(stop, "p50"),
        _stop(stop, "p95"),
        f"{formatting.number(each.abandoned)} of {formatting.turns(each.eligible)}",
        DASH if between is None else f"{formatting.percent(between[0])} to {formatting.percent(between[1])}",
        formatting.seconds(each.waited_p50),
    )
