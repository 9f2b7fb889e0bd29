"""The frame of every page: its title, what it shows, how far it can be trusted, and how it refreshes.

A page gives a question that answers from one snapshot of the store and a function that draws the answer. The frame
asks when it draws, draws what all pages have in common, and says what is wrong before any figure.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final, Generic, Protocol, TypeVar

import streamlit as st

from dashboard import descriptions
from dashboard.components import header
from dashboard.components.markup import escape
from dashboard.components.refreshing import (
    AskedPage,
    hand_over,
    handed_over,
    interval_s,
    is_out_of_pace,
    show_age,
    title,
)
from dashboard.components.selectors import Offered, controls
from dashboard.components.trust import Trust, trust
from dashboard.descriptions import zone_of
from dashboard.links import Choice, choice_of, window_of, with_default_window
from dashboard.source import (
    ENV_LOCUST,
    NoRunsError,
    Source,
    ended_without_turn,
    objectives_in_force,
    places,
    source_of,
    store_of,
)
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.store.answers import RunRecord, Summary

REFRESH_LIVE_S: Final = 2.0
REFRESH_STALE_S: Final = 5.0
# Shown where that takes more than half a second.
READING: Final = "Reading the store"
LIMIT_TITLE: Final = "generator-limited: nothing is claimed about the service"
NO_TURN: Final = "This run has no turn"
OLD_TURNS_GONE: Final = "The store no longer keeps the oldest turns of this run: the figures are of the others."


class View(Offered, Protocol):
    """What an answer to a page's question holds besides the page's own figures."""

    @property
    def run(self) -> RunRecord | None: ...
    @property
    def summary(self) -> Summary | None: ...


_View = TypeVar("_View", bound=View)
_Answer = TypeVar("_Answer")
Link = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page draws with besides its answer. `zone` is the viewer's."""

    link: Link
    zone: tzinfo
    now_unix_ns: int

    @property
    def choice(self) -> Choice:
        """What the link chooses of all turns."""
        return choice_of(self.link)[0]


@dataclass(frozen=True, slots=True)
class DashboardPage(Generic[_Answer]):
    """A page by its question and by what draws the answer.

    `ask` raises TelemetryError. `selectors` draws the row of the title, `offered` is what of an answer it shows, and
    `least_s` is the shortest time between two refreshes, None for none: where one of these changes, all of the page is
    drawn again. `draw` draws what is below the row, which refreshes by itself.
    """

    title: str
    ask: Callable[[Link], _Answer]
    selectors: Callable[[_Answer, Link], None]
    offered: Callable[[_Answer], object]
    least_s: Callable[[_Answer], float | None]
    draw: Callable[[_Answer, PageContext], None]
    unreadable: str = "The store cannot be read"

    def show(self) -> None:
        """Draw the page."""
        link = st.query_params.to_dict()
        try:
            with st.spinner(READING):
                drawn = handed_over((self.title, link)) or self._asked(link)
        except TelemetryError as error:
            heading(self.title)
            unreadable(self.unreadable, error)
            return
        offered, least_s = self.offered(drawn.answer), self.least_s(drawn.answer)
        every_s = interval_s(least_s, drawn.took_s)
        # The first picture is of the answer that the selectors show.
        first = [drawn]
        show_age(drawn.at_unix_ns, every_s)
        self.selectors(drawn.answer, link)

        def body() -> None:
            link = st.query_params.to_dict()
            is_first = bool(first)
            try:
                latest = first.pop() if is_first else self._asked(link)
            except TelemetryError as error:
                unreadable(self.unreadable, error)
                return
            if self.offered(latest.answer) != offered or self.least_s(latest.answer) != least_s:
                hand_over(latest)  # the selectors and the pace belong to the page around this part
            show_age(latest.at_unix_ns, every_s)
            self.draw(latest.answer, PageContext(link, viewer_zone(), time.time_ns()))
            if is_first or every_s is None:
                return
            latest.took_s = time.monotonic() - latest.began_s
            if is_out_of_pace(every_s, interval_s(least_s, latest.took_s) or every_s):
                hand_over(latest)

        st.fragment(body, run_every=every_s)()

    def _asked(self, link: Link) -> AskedPage[_Answer]:
        began_s, at_unix_ns = time.monotonic(), time.time_ns()
        answer = self.ask(link)
        return AskedPage((self.title, link), answer, at_unix_ns, time.monotonic() - began_s, began_s=began_s)


def _says_nothing(view: View) -> str:
    """For pages on which the frame says why a run claims nothing."""
    del view
    return ""


@dataclass(frozen=True, slots=True)
class RunPage(Generic[_View]):
    """A page about the turns of a run.

    `ask` answers a link from one snapshot and raises TelemetryError; `draw` draws what is below the head, when there
    are turns to show. Where the run says nothing about the service, `says_limit` gives the sentence that says so, as
    HTML, for a page that has one of its own; empty for the frame's.
    """

    title: str
    ask: Callable[[Source, Link], _View]
    draw: Callable[[_View, RunRecord, Summary, PageContext], None]
    says_limit: Callable[[_View], str] = _says_nothing

    def show(self) -> None:
        """Draw the page; below the selectors it refreshes by itself while the run lives."""
        DashboardPage(
            self.title,
            self._answer,
            selectors=self._selectors,
            offered=lambda view: {run.run_id for run in view.runs},
            least_s=_least_s,
            draw=self._draw,
        ).show()

    def _answer(self, link: Link) -> _View:
        source = source_of(link)
        return self.ask(source, with_default_window(link, source.reader.runs))

    def _selectors(self, view: _View, link: Link) -> None:
        choice, faults = choice_of(link)
        controls(view, choice, self.title)
        if faults:
            st.html(header.notes(faults, "the link"))

    def _draw(self, view: _View, context: PageContext) -> None:
        say_fault_of_objectives(context.link)
        run, summary = view.run, view.summary
        if run is None or summary is None or not summary.turns.total:
            if run is None or summary is None:
                _no_run(context)
            else:
                _no_turns(run, context)
            return
        if summary.limit is not None:
            st.html(self.says_limit(view) or header.notes([summary.limit.reason], LIMIT_TITLE))
        head(_overview(run, summary, context), trust(run, summary), header.details(run, summary))
        if run.lacks_old_turns:
            st.html(header.notes([OLD_TURNS_GONE], "what the store keeps"))
        self.draw(view, run, summary, context)


def heading(text: str) -> None:
    """The title of a page that has no selectors."""
    show_age(None)
    title(text)


def head(overview: str, shown: Trust, details: str) -> None:
    """What a page is about and beside it, as a chip that opens the details, how far its figures can be trusted; both as
    HTML."""
    left, right = st.columns([3, 1.25], vertical_alignment="center")
    with left:
        st.html(overview)
    with right, st.container(key=f"trust-{shown.state}"), st.popover(shown.label, width="stretch"):
        st.html(details)


def say_fault_of_objectives(link: Link) -> None:
    """Say of a changed file of objectives that it cannot be used; nothing where it can."""
    if fault := objectives_in_force(store_of(link)).fault:
        st.html(header.notes([fault], "objectives"))


def unreadable(title_of_fault: str, error: TelemetryError) -> None:
    """Say why the store cannot be read, or that there is no run yet, and look again by itself."""
    is_empty = isinstance(error, NoRunsError)
    st.html(no_runs_yet() if is_empty else header.empty(title_of_fault, escape(error)))
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


def _least_s(view: View) -> float | None:
    """How often to look again: often while turns come in, never when the run has announced its end."""
    if view.run is None or view.summary is None:
        return REFRESH_LIVE_S
    state = descriptions.state_of(view.run, view.summary.newest_unix_ns, time.time_ns())
    return {"live": REFRESH_LIVE_S, "stale": REFRESH_STALE_S, "ended": None}[state]


def _overview(run: RunRecord, summary: Summary, context: PageContext) -> str:
    state = descriptions.state_of(run, summary.newest_unix_ns, context.now_unix_ns)
    # A list of turns that began at chosen times is of the whole run.
    window = None if summary.filter.since_unix_ns is None else window_of(context.choice, run)
    return header.overview(run, summary, state, context.now_unix_ns, context.zone, window=window)


def _no_run(context: PageContext) -> None:
    choice = context.choice
    if why := why_no_turn(store_of(context.link), choice.run):
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


def _no_turns(run: RunRecord, context: PageContext) -> None:
    choice = context.choice
    name = f"Run <code>{escape(run.run_id)}</code>"
    if choice.narrows:
        widen = f"{name} has {formatting.turns(run.turns)}; widen the filter above."
        st.html(header.empty("No turn matches the filter", widen))
    elif why := why_no_turn(store_of(context.link), run.run_id):
        st.html(header.empty(NO_TURN, *why))
    elif run.ended:
        known = f"{name} has ended; <code>voiceprobe report</code> says what is known of why."
        st.html(header.empty(NO_TURN, known))
    else:
        st.html(header.empty("No turns yet", f"{name} has begun; its first turn shows here as soon as it is over."))


_SERVICE: Final = "point a service's <code>OTEL_EXPORTER_OTLP_ENDPOINT</code> at the sidecar"
_BY_COMMAND: Final = "Start a run with <code>./voiceprobe demo</code> or <code>voiceprobe run ws://…</code>"


def start_a_run() -> str:
    """How to get turns into the store that is shown."""
    return f"{_on_locusts_page() or _BY_COMMAND}, or {_SERVICE}"


def why_no_turn(store: str, run_id: str | None) -> tuple[str, ...]:
    """That the run of a store's folder has ended without a turn, and why, as its command found it: a target that was
    never reached leaves an empty store. Nothing where that is not known."""
    found = ended_without_turn(store, run_id)
    if found is None or not found.sentence:
        return ()
    return (f"Run <code>{escape(found.title)}</code> has ended.", f"<b>{escape(found.sentence)}</b>")


def no_runs_yet() -> str:
    """That no run is at the places that are shown, and how to get a first one there."""
    first = _on_locusts_page() or "Start one with <code>voiceprobe run ws://…</code>"
    searched = escape(", ".join(places()))
    return header.empty("No runs yet", f"{searched}: no run is here. {first}; the run shows here while it goes on.")


def _on_locusts_page() -> str:
    """Where callers are started if the launcher was given Locust's page: whoever sees this one may have no command."""
    address = escape(os.environ.get(ENV_LOCUST, ""))
    return address and f'Start callers on Locust\'s page, <a href="{address}">{address}</a>'
