"""The Runs page: every run of every store that was named, their trends, and two or more of them compared."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode
from zlib import crc32

import pandas as pd
import streamlit as st

from dashboard import charts, descriptions, source
from dashboard.components import frame, several_runs, trust
from dashboard.components.frame import READING, DashboardPage, PageContext, no_runs_yet, viewer_zone
from dashboard.components.markup import Html, empty, escape, hint, link_to, note, section
from dashboard.components.selectors import Selector, SelectorRow, parameter_select
from dashboard.links import TIME_LABELS, RunsChoice, values_of
from dashboard.source import given_objectives, objectives_in_force
from telemetry.comparison.verdict import DEFAULT_MARGIN_NS, RegressionMargin
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import in_milliseconds
from telemetry.objectives.objective import Objective
from telemetry.store.run_folders.catalog import RunListing
from telemetry.store.run_folders.entries import RunEntry, RunTrends, narrowed, run_trends

TICKED: Final = "ticked"
BASELINE: Final = "baseline"
MARGIN: Final = "margin"
MARGINS_MS: Final = ("20", "50", "100", "200", "500")
MOST_TICKED: Final = 6
_BY_KEYBOARD: Final = "By keyboard: the arrow keys go to a run, Shift with the space bar ticks it."
_ALT: Final = "The runs: when they began, their state, turns, percentiles of voice to voice, note and verdict"
_KEY: Final = "runs_list_"
_UNTICKED: Final = "runs_unticked"
_ANY: Final = {
    "began": "any time",
    "cohort": "every cohort",
    "target": "any target",
    "state": "any state",
    "profile": "any profile",
    "scenario": "any scenario",
    "callers": "any number",
    "protocol": "any protocol",
}


def _selectors(listing: RunListing, context: PageContext) -> tuple[SelectorRow, list[str]]:
    """The selectors, with values from all runs, listed or not."""
    choice, faults = RunsChoice.of(context.link)
    values = values_of(listing.entries)
    began, cohort, *behind = (
        Selector(name, values[name], getattr(choice, name), any_value, TIME_LABELS if name == "began" else None)
        for name, any_value in _ANY.items()
    )
    return SelectorRow(((began, 1.6), (cohort, 1.6)), behind), faults


def _draw(listing: RunListing, context: PageContext) -> None:
    if (given := given_objectives()) is not None and given.fault is not None:
        st.html(note("objectives", [given.fault]))
    if not listing.entries:
        st.html(no_runs_yet())
        return
    choice, _ = RunsChoice.of(context.link)
    listed, ticked = narrowed(listing.entries, choice.filter(context.now_unix_ns)), _ticked(listing.entries)
    if listed:
        overview = trust.runs_overview(listed, len(listing.entries), context.zone)
        frame.head(overview, trust.runs_trust(listed))
        _trends(run_trends(listed))
        _notices(listed, listing, choice)
        _list(listing, listed, choice)
    else:
        _notices(listed, listing, choice)
        st.html(_no_match(listing))
    shown = ticked or newest(listed)
    if not shown and not listed:
        return
    if len(ticked) > 1:
        _comparison(ticked, listing.objectives)
    else:
        st.html(hint(f"Tick two runs or more to compare them. {_BY_KEYBOARD}"))
    objectives = _own_objectives(shown) if listing.objectives is None else listing.objectives
    several_runs.conditions(shown, objectives, source.details)


def _own_objectives(shown: Sequence[RunEntry]) -> Sequence[Objective]:
    """The objectives of the first run that is shown; none if they cannot be read, which its row reports."""
    with contextlib.suppress(TelemetryError):
        return objectives_in_force(shown[0].store).objectives if shown else ()
    return ()


def newest(entries: Sequence[RunEntry]) -> list[RunEntry]:
    """The newest ended run with stored turns, else the newest readable one; of a run in progress, all conditions would
    be counted again at each refresh."""
    readable = [entry for entry in entries if entry.state != "damaged"]
    ended = [entry for entry in readable if entry.state != "under way" and not entry.is_empty]
    return (ended or readable)[:1]


def _trends(trends: RunTrends) -> None:
    if not trends.shown:
        return
    unfit = formatting.count(trends.unfit, "run")
    remarks = (
        "runs that were asked the same",
        f"{unfit} in no trend: too few turns for a p95, or not included in the trend" if trends.unfit else "",
        formatting.count(trends.left_out, "more trend") if trends.left_out else "",
    )
    st.html(section("p95 from run to run", "; ".join(filter(None, remarks))))
    zone = viewer_zone()
    began = {run.reference: descriptions.began(run, zone) for trend in trends.shown for run in trend.runs}
    charts.draw(charts.trend(trends.shown, began))


def _notices(listed: Sequence[RunEntry], listing: RunListing, choice: RunsChoice) -> None:
    """Show which runs cannot be read, and which are left out although they may match or are selected."""
    st.html(
        note("runs that cannot be read whole", [f"{entry.title}: {entry.fault}" for entry in listed if entry.fault])
        or "<div></div>"
    )
    unknown = sum(entry.cohorts is None and entry.state != "damaged" for entry in listing.entries)
    if choice.cohort is not None and unknown:
        st.html(hint(f"The cohorts of {formatting.count(unknown, 'run')} are not known: not in the list."))
    if remark := several_runs.left_out(_left_out(_ticked(listing.entries), listed)):
        st.html(hint(remark))


def _left_out(ticked: Sequence[RunEntry], listed: Sequence[RunEntry]) -> list[RunEntry]:
    shown = {entry.reference for entry in listed}
    return [entry for entry in ticked if entry.reference not in shown]


def _no_match(listing: RunListing) -> Html:
    others = {name: value for name, value in st.query_params.items() if name not in RunsChoice.names()}
    every, count = link_to(f"runs?{urlencode(others)}", "show every run"), len(listing.entries)
    without = f"There {'is' if count == 1 else 'are'} {formatting.count(count, 'run')} without it"
    return empty("No run matches the filter", f"{without}: widen the filter above, or {every}.")


def _list(listing: RunListing, entries: Sequence[RunEntry], choice: RunsChoice) -> None:
    """Draw the list with a checkbox per run; the selected runs are in the link, even if the filter excludes them."""
    st.html(section("Runs that match the filter" if choice.query() else "All runs", "the newest first"))
    wanted = _references()
    ticked = [place for place, entry in enumerate(entries) if entry.reference in wanted]
    kept = [entry.reference for entry in _left_out(_ticked(listing.entries), entries)]
    # A tick is known by its row: a list with another run in it is another list, ticked as the link says.
    # The same holds for a list whose ticks were all removed at once.
    unticked: int = st.session_state.get(_UNTICKED, 0)
    key = f"{_KEY}{crc32(repr([unticked, *(entry.reference for entry in entries)]).encode()):08x}"

    def remember() -> None:
        chosen: Any = st.session_state[key]
        selected = [entries[place].reference for place in chosen["selection"]["rows"]]
        st.query_params[TICKED] = json.dumps([*kept, *selected][:MOST_TICKED])

    milliseconds = st.column_config.NumberColumn(format=formatting.MILLISECONDS_PRINTF, width="small")
    number = st.column_config.NumberColumn(format=formatting.NUMBER_PRINTF)
    st.dataframe(
        pd.DataFrame(several_runs.list_rows(entries, viewer_zone())),
        key=key,
        on_select=remember,
        selection_mode="multi-row",
        selection_default={"selection": {"rows": ticked, "columns": [], "cells": []}},
        hide_index=True,
        width="stretch",
        height=min(35 * (len(entries) + 1) + 3, 420),
        column_config={
            "run": st.column_config.TextColumn("run", pinned=True, width="medium"),
            "open": st.column_config.LinkColumn("open", display_text="open", width="small"),
            **dict.fromkeys(("turns", "invalid", "callers"), number),
            **dict.fromkeys(("p50", "p95", "p99"), milliseconds),
        },
        placeholder=formatting.DASH,
        alt=_ALT,
    )
    if wanted:
        # A list that begins with ticks cannot be entered by keyboard: this is the way, and to those that are left out.
        st.button("Untick all", on_click=_untick_all)


def _untick_all() -> None:
    st.session_state[_UNTICKED] = st.session_state.get(_UNTICKED, 0) + 1
    st.query_params.pop(TICKED, None)


def _references() -> list[str]:
    """The runs that the link names, the baseline first."""
    try:
        references: Any = json.loads(st.query_params.get(TICKED, "[]"))
    except ValueError:
        return []
    return [str(reference) for reference in references] if isinstance(references, list) else []


def _ticked(entries: Sequence[RunEntry]) -> list[RunEntry]:
    """The existing runs that the link names, the oldest first."""
    wanted = _references()
    ticked = [entry for entry in entries if entry.reference in wanted and entry.state != "damaged"]
    return sorted(ticked, key=lambda entry: entry.began_unix_ns or 0)[:MOST_TICKED]


def _comparison(ticked: Sequence[RunEntry], objectives: Sequence[Objective] | None) -> None:
    st.html(section("Compared"))
    left, right, _ = st.columns([2, 1, 2])
    titles = {entry.reference: entry.title for entry in ticked}
    wanted = st.query_params.get(BASELINE, "")
    reference = wanted if wanted in titles else ticked[0].reference
    with left:
        parameter_select(BASELINE, "baseline", list(titles), reference, titles.__getitem__)
    wanted = st.query_params.get(MARGIN, "")
    margin_ms = int(wanted) if wanted in MARGINS_MS else round(in_milliseconds(DEFAULT_MARGIN_NS))
    with right:
        parameter_select(MARGIN, "margin on the p95", MARGINS_MS, str(margin_ms), "{} ms".format)
    baseline = next(entry for entry in ticked if entry.reference == reference)
    margin = RegressionMargin(margin_ms * formatting.NS_PER_MS)
    try:
        with st.spinner(READING):
            comparisons = source.compared(
                [baseline, *(entry for entry in ticked if entry is not baseline)], margin, objectives
            )
    except TelemetryError as error:
        st.html(empty("These runs cannot be compared", escape(error)))
        return
    for comparison in comparisons:
        st.html(several_runs.comparison_head(comparison))
    picture = charts.run_differences(comparisons, margin.value)
    if picture.rows:
        charts.draw(picture)
    for comparison in comparisons:
        with st.expander(
            f"All figures: {comparison.candidate.label} against {comparison.baseline.label}",
            expanded=len(comparisons) == 1,
        ):
            st.html(several_runs.comparison_table(comparison))


PAGE: Final = DashboardPage(
    "Runs",
    lambda _source, _link: source.run_listing(),
    _draw,
    _selectors,
    offered=lambda listing: values_of(listing.entries),
    least_s=lambda _listing: frame.REFRESH_STALE_S,
    find=lambda _link: None,
    unreadable="The runs cannot be listed",
)
page: Final = PAGE.show
