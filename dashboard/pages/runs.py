"""The Runs page: every run of every store that was named, their trends, and two or more of them compared."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import pandas as pd
import streamlit as st

from dashboard import header, run_charts, runs_source, runs_tables
from dashboard.accessible_chart import chart
from dashboard.asking_ahead import next_answer
from dashboard.frame import READING, heading, say_fault_of_objectives, viewer_zone
from dashboard.markup import escape
from dashboard.objectives_in_force import given_objectives, objectives_in_force
from dashboard.opened_page import OpenedPage, PageContext, ended
from dashboard.palette import palette
from dashboard.source import Source
from dashboard.starting import no_runs_yet
from telemetry.comparison.verdict import DEFAULT_MARGIN_NS, RegressionMargin
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import in_milliseconds
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.store.run_details import RunDetails
from telemetry.store.run_folders.capacity import read_capacity
from telemetry.store.run_folders.catalog import RunListing
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.trends import RunTrends, run_trends

TICKED: Final = "ticked"
BASELINE: Final = "baseline"
MARGIN: Final = "margin"
MARGINS_MS: Final = (20, 50, 100, 200, 500)
MOST_TICKED: Final = 6
REFRESH_S: Final = 5.0
READING_REFRESH_S: Final = 1.0
NO_LATENCY: Final = "No turn of these has a voice-to-voice latency."


@dataclass(frozen=True, slots=True)
class Settled:
    """What the page shows of runs that have ended, whose figures stay the same: drawn once, around the list."""

    trends: RunTrends
    ticked: tuple[RunEntry, ...]
    shown: tuple[RunEntry, ...]
    objectives: tuple[Objective, ...] | None


def page() -> None:
    """Draw the page; it looks by itself for runs that begin and end."""
    heading(OPENED.title)
    with st.spinner(READING):
        first = [_listed(runs_source.first_listing)]
    refresh_s, settled = _refresh_s(first[0]), _settled(first[0])
    answers = next_answer(refresh_s)

    def body() -> None:
        latest = answers.after(
            lambda: first.pop() if first else _listed(runs_source.next_listing),
            lambda: runs_source.next_listing(is_ahead=True),
        )
        if _refresh_s(latest) != refresh_s or _settled(latest) != settled:
            st.rerun()  # the pace, and what stands around this part, belong to the page
        if isinstance(latest, TelemetryError):
            st.html(header.empty("The runs cannot be listed", escape(latest)))
            return
        say_fault_of_objectives(given_objectives())
        if settled is not None:
            _list(latest)
        else:
            _draw_all(latest)

    if settled is not None:
        _trends(settled.trends)
    st.fragment(body, run_every=refresh_s)()
    if settled is not None:
        _about(settled.ticked, settled.shown, settled.objectives)


def _settled(listing: RunListing | TelemetryError) -> Settled | None:
    if isinstance(listing, TelemetryError) or not listing.entries:
        return None
    return settled_of(listing, _ticked(listing.entries))


def settled_of(listing: RunListing, ticked: Sequence[RunEntry]) -> Settled | None:
    """What the page shows beside the list; None where that changes with the list, as a run that goes on is among it, or
    one that is read again."""
    trends = run_trends(listing.entries)
    shown = ticked or newest(listing.entries, is_whole=listing.is_whole)
    entries = (*shown, *(each for trend in trends.shown for each in trend.runs))
    if any(each.state == "under way" or each.reference in listing.outdated for each in entries):
        return None
    return Settled(trends, tuple(ticked), tuple(shown), listing.objectives)


def ask(_source: Source, _link: Mapping[str, str]) -> RunListing:
    """What the page is about to ask, whatever the link. Raises ConfigError for a place that is not a folder."""
    return runs_source.first_listing(is_ahead=True)


def _first(listing: RunListing, context: PageContext) -> list[str]:
    """The newest runs: the list to tick them in, and the pictures, are drawn by the page's script."""
    return [runs_tables.newest(listing.entries, context.zone)] if listing.entries else []


OPENED: Final = OpenedPage("Runs", ask, _first)


def _listed(listing: Callable[[], RunListing]) -> RunListing | TelemetryError:
    try:
        return listing()
    except TelemetryError as error:
        return error


def _refresh_s(listing: RunListing | TelemetryError) -> float:
    return READING_REFRESH_S if isinstance(listing, RunListing) and not listing.is_whole else REFRESH_S


def _unread(listing: RunListing) -> str:
    """What is not in the list yet, as sentences; nothing where all of it is."""
    found: list[str] = []
    if stores := len(listing.unread):
        found.append(f"{formatting.count(stores, 'store')} not read yet: the runs in them follow.")
    if runs := listing.unread_runs:
        found.append(f"{formatting.count(runs, 'run')} not read yet: {'it follows' if runs == 1 else 'they follow'}.")
    return " ".join(found)


def _draw_all(listing: RunListing) -> None:
    entries = listing.entries
    if not entries:
        st.html(no_runs_yet())
        return
    _trends(run_trends(entries))
    _list(listing)
    ticked = _ticked(entries)
    _about(ticked, ticked or newest(entries, is_whole=listing.is_whole), listing.objectives)


def _about(ticked: Sequence[RunEntry], shown: Sequence[RunEntry], objectives: Sequence[Objective] | None) -> None:
    """The runs that are ticked beside each other, and how they, or the newest one, went."""
    if len(ticked) > 1:
        _comparison(ticked, objectives)
    else:
        st.html('<div class="vp hint">Tick two runs or more to compare them.</div>')
    _conditions(shown, _own_objectives(shown) if objectives is None else objectives)


def _own_objectives(shown: Sequence[RunEntry]) -> Sequence[Objective]:
    """Those of the first run that is shown; nothing where they cannot be read, as its row says."""
    with contextlib.suppress(TelemetryError):
        return objectives_in_force(shown[0].store).objectives if shown else ()
    return ()


def newest(entries: Sequence[RunEntry], *, is_whole: bool = True) -> list[RunEntry]:
    """The newest run that has ended and of which anything is stored; of one that goes on, all conditions would be
    counted anew at each refresh. Where others are still to be read, one of those will have ended."""
    readable = [each for each in entries if each.state != "damaged"]
    ended = [each for each in readable if each.state != "under way" and not each.is_empty]
    return (ended or (readable if is_whole else []))[:1]


def _trends(trends: RunTrends) -> None:
    if not trends.shown:
        return
    left_out = [
        f"{formatting.count(trends.unfit, 'run')} in no trend: too few turns for a p95, or nothing is claimed of them"
        if trends.unfit
        else "",
        f"{formatting.count(trends.left_out, 'more trend')}" if trends.left_out else "",
    ]
    st.html(_part("p95 from run to run", "; ".join(filter(None, ["runs that were asked the same", *left_out]))))
    zone = viewer_zone()
    chart(
        run_charts.trend_rows(trends.shown),
        run_charts.trend_spec(palette(st.context.theme.type), [each.label for each in trends.shown]),
        "p95 of voice to voice from run to run, a line for each group of runs that were asked the same",
        run_charts.trend_table(
            trends.shown,
            {each.reference: runs_tables.began(each, zone) for trend in trends.shown for each in trend.runs},
        ),
    )


def _notices(listing: RunListing) -> None:
    """What of the list cannot be read, or is not read yet."""
    if found := runs_tables.faults(listing.entries):
        st.html(header.notes(found, "runs that cannot be read whole"))
    if unread := _unread(listing):
        st.html(f'<div class="vp hint">{escape(unread)}</div>')


def _list(listing: RunListing) -> None:
    """The list with a box to tick at each run; what is ticked stands in the link."""
    entries = listing.entries
    _notices(listing)
    st.html(*ended([runs_tables.list_head()]))
    rows = runs_tables.list_rows(entries, listing.outdated, viewer_zone())
    wanted = _references()
    ticked = [place for place, each in enumerate(entries) if each.reference in wanted]

    # What is ticked is known by its row: a list with another run in it is another list, ticked as the link says.
    key = f"{_KEY}{crc32(repr([each.reference for each in entries]).encode()):08x}"

    def remember() -> None:
        chosen: Any = st.session_state[key]
        places: list[int] = list(chosen["selection"]["rows"])[:MOST_TICKED]
        st.query_params[TICKED] = json.dumps([entries[place].reference for place in places])

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
        alt="All runs: when they began, their state, turns, percentiles of voice to voice, note and verdict",
    )


_KEY: Final = "runs_list_"


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
            found = runs_source.compared([baseline, *others], margin, objectives)
    except TelemetryError as error:
        st.html(header.empty("These runs cannot be compared", escape(error)))
        return
    for each in found:
        st.html(runs_tables.comparison_head(each))
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
            st.html(runs_tables.comparison_table(each))


def _conditions(shown: Sequence[RunEntry], objectives: Sequence[Objective]) -> None:
    """How the ticked runs, or the newest one, went under their own conditions."""
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
        st.html(_part("Profiles against latency", "the lower dot is the p50; a bar is the 95 % interval of the p95"))
        if rows:
            conditions = list(dict.fromkeys(row["condition"] for row in rows))
            chart(
                rows,
                run_charts.condition_spec(colors, conditions, names, is_share=False),
                "p50 and p95 of voice to voice by the profile of the speech, clean first",
                table,
            )
        else:
            st.html(f'<div class="vp hint">{NO_LATENCY}</div>')
        rows, table = run_charts.word_errors_by_condition(found)
        st.html(_part("Profiles against word error rate", "words that were heard wrongly; a bar is the 95 % interval"))
        if rows:
            conditions = list(dict.fromkeys(row["condition"] for row in rows))
            chart(
                rows,
                run_charts.condition_spec(colors, conditions, names, is_share=True),
                "Word error rate by the profile of the speech, clean first",
                table,
            )
        else:
            st.html('<div class="vp hint">No transcript came back to compare with what was said.</div>')
    st.html(_part("Barge-in and patience", "callers who interrupt a reply, and callers who hang up unanswered"))
    st.html(runs_tables.behavior(found))


def _load(shown: Sequence[RunEntry], found: Sequence[tuple[str, RunDetails]], objective_ms: float | None) -> None:
    colors, names = palette(st.context.theme.type), [name for name, _ in found]
    st.html(
        _part(
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


def _part(title: str, hint: str) -> str:
    return f'<div class="vp vp-head"><h2>{escape(title)} <span class="hint">{escape(hint)}</span></h2></div>'
