"""The frame of every page: its title, what it shows, how far it can be trusted, and how it refreshes.

A page gives a question that answers from one snapshot of the store and a function that draws the answer. The frame
draws what all pages have in common and says what is wrong before any figure.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final, Generic, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from dashboard import descriptions, header
from dashboard.asking_ahead import next_answer
from dashboard.controls import Offered, controls
from dashboard.filters import Choice, choice_of
from dashboard.markup import escape
from dashboard.objectives_in_force import ObjectivesInForce, objectives_in_force
from dashboard.opened_page import OpenedPage, PageContext, ended
from dashboard.runs_source import NoRunsError
from dashboard.source import Source, current_source, store_of
from dashboard.starting import no_runs_yet, start_a_run, why_no_turn
from dashboard.trust import Trust, trust
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.store.answers import RunRecord, Summary

REFRESH_LIVE_S: Final = 2.0
REFRESH_STALE_S: Final = 5.0
# Shown where that takes more than half a second.
READING: Final = "Reading the store"
DAMAGED: Final = "damaged data left out; the figures below are from the rest"
LIMIT_TITLE: Final = "generator-limited: nothing is claimed about the service"
NO_TURN: Final = "This run has no turn"
OLD_TURNS_GONE: Final = "The store no longer keeps the oldest turns of this run: the figures are of the others."
ROLLED_UP_ANEW: Final = (
    "The sums over {} are to be made anew, which the sidecar does in the background (without one: voiceprobe store "
    "compact). Until then pages take longer; their figures are the same."
)


class View(Offered, Protocol):
    """What an answer to a page's question holds besides the page's own figures."""

    @property
    def run(self) -> RunRecord | None: ...
    @property
    def summary(self) -> Summary | None: ...
    @property
    def faults(self) -> Sequence[str]: ...


_View = TypeVar("_View", bound=View)
_Answer = TypeVar("_Answer")


def _says_nothing(view: View) -> str:
    """For pages on which the frame says why a run claims nothing."""
    del view
    return ""


def _nothing_first(view: View, run: RunRecord, summary: Summary, context: PageContext) -> Sequence[str]:
    """For pages that begin with selectors of their own."""
    del view, run, summary, context
    return ()


@dataclass(frozen=True, slots=True)
class FramedPage(Generic[_View]):
    """A page about the turns of a run.

    `ask` answers a link from one snapshot and raises TelemetryError; `first` gives what the page shows first, as HTML,
    and `draw` draws what is below it: both are called when there are turns to show. Where the run says nothing about
    the service, `says_limit` gives the sentence that says so, as HTML, for a page that has one of its own; empty for
    the frame's.
    """

    title: str
    ask: Callable[[Source, Mapping[str, str]], _View]
    draw: Callable[[_View, RunRecord, Summary, PageContext], None]
    says_limit: Callable[[_View], str] = _says_nothing
    first: Callable[[_View, RunRecord, Summary, PageContext], Sequence[str]] = _nothing_first

    def opened(self) -> OpenedPage[_View]:
        """The page by what is asked when it is opened."""
        return OpenedPage(self.title, self.ask, self._first_with_head, selectors_in_sight=3)

    def _first_with_head(self, view: _View, context: PageContext) -> Sequence[str]:
        run, summary = view.run, view.summary
        if run is None or summary is None or not summary.turns.total:
            return ()
        return [
            *_above(view, summary, self.says_limit),
            first_head(_overview(run, summary, context), trust(run, summary)),
            *_below(run, summary),
            *self.first(view, run, summary, context),
        ]


def show(page: FramedPage[_View]) -> None:
    """Draw a page about the turns of a run; below the selectors it refreshes by itself while the run lives."""
    around = PageAround(
        page.title,
        page.ask,
        selectors=lambda view, choice: controls(view, choice, page.title),
        refresh_s=_refresh_s,
        offered=lambda view: {run.run_id for run in view.runs},
        draw=lambda view, context, store: _draw_view(page, view, context, store),
    )
    show_around(around)


@dataclass(frozen=True, slots=True)
class PageAround(Generic[_Answer]):
    """A page whose selectors stand around a part that refreshes. `offered` is what of an answer the selectors show:
    where that changes, or `refresh_s`, all of the page is drawn anew."""

    title: str
    ask: Callable[[Source, Mapping[str, str]], _Answer]
    selectors: Callable[[_Answer, Choice], None]
    refresh_s: Callable[[_Answer], float | None]
    offered: Callable[[_Answer], object]
    draw: Callable[[_Answer, PageContext, str], None]


def show_around(page: PageAround[_Answer]) -> None:
    """Draw a page; below the selectors it refreshes by itself."""
    choice, faults = choice_of(st.query_params)
    try:
        store = store_of(st.query_params)
        with st.spinner(READING):
            view = page.ask(current_source(store), st.query_params)
    except TelemetryError as error:
        heading(page.title)
        unreadable(error)
        return
    page.selectors(view, choice)
    if faults:
        st.html(header.notes(faults, "the link"))
    offered, refresh_s = page.offered(view), page.refresh_s(view)
    # The first picture is of the answer that the selectors show: of a store that is written to, asking again would take
    # as long once more, and answer something else.
    first = [view]
    answers = next_answer(refresh_s)

    def body() -> None:
        link = st.query_params.to_dict()
        try:
            latest = answers.after(
                lambda: first.pop() if first else page.ask(current_source(store), link),
                lambda: page.ask(current_source(store).ahead(), link),
            )
        except TelemetryError as error:
            unreadable(error)
            return
        if page.offered(latest) != offered or page.refresh_s(latest) != refresh_s:
            st.rerun()  # the selectors and the pace belong to the page around this part
        say_fault_of_objectives(objectives_in_force(store))
        page.draw(latest, PageContext(link, viewer_zone(), time.time_ns()), store)

    st.fragment(body, run_every=refresh_s)()


def heading(title: str) -> None:
    """The title of a page that has no selectors."""
    st.html(f'<div class="vp"><h1>{escape(title)}</h1></div>')


def head(overview: str, shown: Trust, details: str) -> None:
    """What a page is about and beside it, as a chip that opens the details, how far its figures can be trusted; both as
    HTML."""
    left, right = st.columns([3, 1.25], vertical_alignment="center")
    with left:
        st.html(overview)
    with right, st.container(key=f"trust-{shown.state}"), st.popover(shown.label, width="stretch"):
        st.html(details)


def first_head(overview: str, shown: Trust) -> str:
    """The same before the page's script runs, as HTML."""
    chip = f'<span class="vp-chip {shown.state}">{escape(shown.label)}</span>'
    return f'<div class="vp vp-first-head">{overview}{chip}</div>'


def fault_of_objectives(found: ObjectivesInForce | None) -> str:
    """That a changed file of objectives cannot be used, as HTML; empty where it can."""
    return "" if found is None or found.fault is None else header.notes([found.fault], "objectives")


def say_fault_of_objectives(found: ObjectivesInForce | None) -> None:
    """Say of a changed file of objectives that it cannot be used; nothing where it can."""
    if fault := fault_of_objectives(found):
        st.html(fault)


def unreadable(error: TelemetryError) -> None:
    """Say why the store cannot be read, or that there is no run yet, and look again by itself."""
    is_empty = isinstance(error, NoRunsError)
    st.html(no_runs_yet() if is_empty else header.empty("The store cannot be read", escape(error)))
    st.fragment(_try_again, run_every=REFRESH_STALE_S)()


def _try_again() -> None:
    """Look again for a store that may come to be: the first run of this fragment is the page's own."""
    if st.session_state.get("tried"):
        del st.session_state["tried"]
        st.rerun()
    st.session_state["tried"] = True


def viewer_zone() -> tzinfo:
    """The time zone of the viewer of this session."""
    return zone_of(st.context.timezone)


def zone_of(name: str | None) -> tzinfo:
    """A viewer's time zone as the browser says, else UTC."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def _refresh_s(view: View) -> float | None:
    """How often to look again: often while turns come in, never when the run has announced its end."""
    if view.run is None or view.summary is None:
        return REFRESH_LIVE_S
    state = descriptions.state_of(view.run, view.summary.newest_unix_ns, time.time_ns())
    return {"live": REFRESH_LIVE_S, "stale": REFRESH_STALE_S, "ended": None}[state]


def _draw_view(page: FramedPage[_View], view: _View, context: PageContext, store: str) -> None:
    run, summary = view.run, view.summary
    if run is None or summary is None or not summary.turns.total:
        if view.faults:
            st.html(header.notes(view.faults, DAMAGED))
        if run is None or summary is None:
            _no_run(context.choice, store)
        else:
            _no_turns(run, context.choice, store)
        return
    for part in _above(view, summary, page.says_limit):
        st.html(part)
    below = ended([_overview(run, summary, context), *_below(run, summary), *page.first(view, run, summary, context)])
    head(below[0], trust(run, summary), header.details(run, summary))
    for part in below[1:]:
        st.html(part)
    page.draw(view, run, summary, context)


def _above(view: _View, summary: Summary, says_limit: Callable[[_View], str]) -> list[str]:
    """What is wrong, above any figure."""
    found = [header.notes(view.faults, DAMAGED)] if view.faults else []
    if summary.limit is not None:
        found.append(says_limit(view) or header.notes([summary.limit.reason], LIMIT_TITLE))
    return found


def _overview(run: RunRecord, summary: Summary, context: PageContext) -> str:
    state = descriptions.state_of(run, summary.newest_unix_ns, context.now_unix_ns)
    return header.overview(run, summary, state, context.now_unix_ns, context.zone)


def _below(run: RunRecord, summary: Summary) -> list[str]:
    """What is to be known of the store, below the overview."""
    return [header.notes([OLD_TURNS_GONE], "what the store keeps")] if run.lacks_old_turns else []


def _no_run(choice: Choice, store: str) -> None:
    if why := why_no_turn(store, choice.run):
        st.html(header.empty(NO_TURN, *why, start_a_run()))
        return
    if choice.run is None:
        st.html(header.empty("No turns yet", start_a_run()))
        return
    st.html(unknown_run(choice.run))


def unknown_run(run_id: str) -> str:
    """That the store has no such run, as HTML."""
    wanted = f"The link asks for run <code>{escape(run_id)}</code>; choose another above."
    return header.empty("That run is not in this store", wanted)


def _no_turns(run: RunRecord, choice: Choice, store: str) -> None:
    name = f"Run <code>{escape(run.run_id)}</code>"
    if choice.narrows:
        widen = f"{name} has {formatting.turns(run.turns)}; widen the filter above."
        st.html(header.empty("No turn matches the filter", widen))
    elif why := why_no_turn(store, run.run_id):
        st.html(header.empty(NO_TURN, *why))
    elif run.ended:
        known = f"{name} has ended; <code>voiceprobe report</code> says what is known of why."
        st.html(header.empty(NO_TURN, known))
    else:
        st.html(header.empty("No turns yet", f"{name} has begun; its first turn shows here as soon as it is over."))
