"""The frame of every page: its title, the age of its data, its selectors, and its refresh.

A page supplies a question, which is answered from one snapshot of the store, and a function that draws the answer. The
frame sends the question, draws what all pages share, and reports faults above any figure. The interval between
refreshes depends on the cost of the last one, so that no page takes more than a fifth of a core, whatever its store.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, Generic, Protocol, TypeVar

import streamlit as st

from dashboard import descriptions
from dashboard.components import trust
from dashboard.components.markup import Html, empty, escape, note
from dashboard.components.selectors import Offered, SelectorRow, selectors_of_run
from dashboard.descriptions import zone_of
from dashboard.links import Choice
from dashboard.source import ENV_LOCUST, NoRunsError, Source, ended_without_turn, places, source_of
from telemetry.model import formatting
from telemetry.model.errors import TelemetryError
from telemetry.store.answers import RunRecord, Summary

REFRESH_LIVE_S: Final = 2.0
REFRESH_STALE_S: Final = 5.0
TIMES_THE_COST: Final = 5
_AGE_EVERY_S: Final = 2.0
_SHOWN: Final = "shown_answer"
_COST: Final = "cost_of_refresh"
# Shown where that takes more than half a second.
READING: Final = "Reading the store"
LIMIT_TITLE: Final = "generator-limited: no verdict on the service"
NO_TURN: Final = "This run has no turn"
OLD_TURNS_GONE: Final = "The store no longer keeps the oldest turns of this run: the figures are of the others."
Link = Mapping[str, str]


class View(Offered, Protocol):
    """The parts of a page's answer that the frame shows."""

    @property
    def summary(self) -> Summary | None: ...


_View = TypeVar("_View", bound=View)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class PageContext:
    """The context of an answer: the link, the queried store (None for a page about many stores), the time of the query,
    and how long it took."""

    link: Link
    source: Source | None
    at_unix_ns: int
    began_s: float
    took_s: float

    @property
    def choice(self) -> Choice:
        """The choice of turns in the link."""
        return Choice.of(self.link)[0]

    @property
    def store(self) -> str:
        """The store that was queried."""
        return "" if self.source is None else self.source.store

    @property
    def zone(self) -> tzinfo:
        """The viewer's time zone."""
        return viewer_zone()

    @property
    def now_unix_ns(self) -> int:
        """The time of the wall clock."""
        return time.time_ns()


def interval_s(least_s: float | None, took_s: float) -> float | None:
    """The time between two refreshes: at least five times the cost of the last one, doubled as often as necessary so
    that it rarely changes. None for a page that does not refresh."""
    every_s = least_s
    while every_s is not None and every_s < TIMES_THE_COST * took_s:
        every_s *= 2
    return every_s


@dataclass(frozen=True, slots=True)
class DashboardPage(Generic[_Answer]):
    """A page: its question, and the functions that draw the answer.

    `ask` answers a link from one snapshot of a store and raises TelemetryError; `find` finds the store, None for a page
    about many. `selectors` are those of the title row, `offered` is the part of an answer that they show, and `least_s`
    is the shortest time between two refreshes, None for none: if one of these changes, the whole page is drawn again.
    `draw` draws everything below the row, which refreshes by itself.
    """

    title: str
    ask: Callable[[Any, Link], _Answer]
    draw: Callable[[_Answer, PageContext], None]
    selectors: Callable[[_Answer, PageContext], tuple[SelectorRow, list[str]]]
    offered: Callable[[_Answer], object]
    least_s: Callable[[_Answer], float | None]
    find: Callable[[Link], Source | None] = source_of
    unreadable: str = "The store cannot be read"

    def show(self) -> None:
        """Draw the page; what is below the selectors refreshes by itself."""
        try:
            with st.spinner(READING):
                answer, context = self._asked()
        except TelemetryError as error:
            st.session_state[_SHOWN] = None
            _title(self.title)
            self._say(error)
            return
        offered, least_s = self.offered(answer), self.least_s(answer)
        # A refresh that took too long for its interval redrew the whole page.
        about, cost_s = st.session_state.pop(_COST, (None, 0.0))
        every_s = interval_s(least_s, max(context.took_s, cost_s if about == (self.title, context.link) else 0.0))
        # The first picture is of the answer that the selectors show.
        first = [(answer, context)]
        st.session_state[_SHOWN] = context.at_unix_ns, every_s
        row, faults = self.selectors(answer, context)
        row.draw(lambda: _title(self.title))
        if faults:
            st.html(note("the link", faults))

        def body() -> None:
            is_first = bool(first)
            try:
                latest, context = first.pop() if is_first else self._asked()
            except TelemetryError as error:
                self._say(error)
                return
            if self.offered(latest) != offered or self.least_s(latest) != least_s:
                st.rerun()  # the selectors and the pace belong to the page around this part
            st.session_state[_SHOWN] = context.at_unix_ns, every_s
            self._draw_body(latest, context)
            if is_first or every_s is None:
                return
            took_s = time.monotonic() - context.began_s
            needed_s = interval_s(least_s, took_s) or every_s
            if needed_s > every_s or needed_s * 2 < every_s:
                st.session_state[_COST] = (self.title, context.link), took_s
                st.rerun()

        st.fragment(body, run_every=every_s)()

    def _draw_body(self, answer: _Answer, context: PageContext) -> None:
        """Draw what is below the row."""
        if context.source is not None and context.source.in_force.fault:
            st.html(note("objectives", [context.source.in_force.fault]))
        self.draw(answer, context)

    def _asked(self) -> tuple[_Answer, PageContext]:
        link, began_s, at_unix_ns = st.query_params.to_dict(), time.monotonic(), time.time_ns()
        source = self.find(link)
        answer = self.ask(source, link)
        return answer, PageContext(link, source, at_unix_ns, began_s, time.monotonic() - began_s)

    def _say(self, error: TelemetryError) -> None:
        """Show why the store cannot be read, or that there is no run yet, and refresh automatically."""
        st.html(no_runs_yet() if isinstance(error, NoRunsError) else empty(self.unreadable, escape(error)))
        st.fragment(_try_again, run_every=REFRESH_STALE_S)()


def _try_again() -> None:
    """Draw the page again in case the store exists by now; the first run of this fragment belongs to the current
    drawing."""
    if st.session_state.get("tried"):
        del st.session_state["tried"]
        st.rerun()
    st.session_state["tried"] = True


def run_page(
    title: str,
    ask: Callable[[Source, Link], _View],
    draw: Callable[[_View, RunRecord, Summary, PageContext], None],
    says_limit: Callable[[_View], str] = lambda _view: "",
) -> DashboardPage[_View]:
    """Create a page about the turns of a run; `draw` draws what is below the head if there are turns. For a run that
    says nothing about the service, `says_limit` returns the page's own sentence on that, as HTML; if it is empty, the
    frame shows its own."""

    def body(view: _View, context: PageContext) -> None:
        run, summary = view.run, view.summary
        if run is None or summary is None:
            run_id = context.choice.run
            if why := why_no_turn(context.store, run_id):
                st.html(empty(NO_TURN, *why, start_a_run()))
            else:
                st.html(empty("No turns yet", start_a_run()) if run_id is None else unknown_run(run_id))
            return
        if not summary.turns.total:
            st.html(_no_turns(run, context))
            return
        if summary.limit is not None:
            st.html(says_limit(view) or note(LIMIT_TITLE, [summary.limit.reason]))
        state = descriptions.state_of(run, summary.newest_unix_ns, context.now_unix_ns)
        # A list of turns in a selected time range covers the whole run.
        window = None if summary.filter.since_unix_ns is None else context.choice.window_shown(run)
        overview = trust.overview(run, summary, state, context.now_unix_ns, context.zone, window=window)
        head(overview, trust.trust(run, summary))
        if run.lacks_old_turns:
            st.html(note("what the store keeps", [OLD_TURNS_GONE]))
        draw(view, run, summary, context)

    def selectors(view: _View, context: PageContext) -> tuple[SelectorRow, list[str]]:
        choice, faults = Choice.of(context.link)
        return selectors_of_run(view, choice, context.source.elsewhere if context.source else ()), faults

    def least_s(view: _View) -> float | None:
        """Return the time between refreshes: short while turns arrive, None once the run has announced its end."""
        if view.run is None or view.summary is None:
            return REFRESH_LIVE_S
        state = descriptions.state_of(view.run, view.summary.newest_unix_ns, time.time_ns())
        return {"live": REFRESH_LIVE_S, "stale": REFRESH_STALE_S, "ended": None}[state]

    return DashboardPage(
        title, ask, body, selectors, offered=lambda view: {run.run_id for run in view.runs}, least_s=least_s
    )


def _title(text: str) -> None:
    """Draw the page's title with the age of its data, and draw again on a switch between light and dark: charts get
    their colors from the server, everything else from CSS."""
    drawn = st.context.theme.type

    def title() -> None:
        # The browser reports its theme with every request; a page of an ended run sends none by itself.
        if st.context.theme.type != drawn:
            st.rerun()
        age = ""
        if shown := st.session_state.get(_SHOWN):
            at_unix_ns, every_s = shown
            at = descriptions.time_of_day(at_unix_ns, viewer_zone())
            ago = descriptions.ago((time.time_ns() - at_unix_ns) / formatting.NS_PER_S)
            pace = "read once" if every_s is None else f"read every {every_s:g} s"
            age = f'<div class="hint vp-age" title="{pace}">as of {at}, {ago}</div>'
        st.html(f'<div class="vp"><h1>{escape(text)}</h1>{age}</div>')

    st.fragment(title, run_every=_AGE_EVERY_S)()


def head(overview: str, shown: trust.Trust) -> None:
    """Draw the subject of a page, which is HTML, and a chip on how far its figures can be trusted, which opens the
    details."""
    left, right = st.columns([3, 1.25], vertical_alignment="center")
    with left:
        st.html(overview)
    with right, st.container(key=f"trust-{shown.state}"), st.popover(shown.label, width="stretch"):
        st.html(shown.details)


def viewer_zone() -> tzinfo:
    """The time zone of the viewer of this session."""
    return zone_of(st.context.timezone)


def unknown_run(run_id: str) -> Html:
    """The content of a page whose run is not in the store."""
    wanted = f"The link asks for run <code>{escape(run_id)}</code>; choose another above."
    return empty("That run is not in this store", wanted)


def _no_turns(run: RunRecord, context: PageContext) -> Html:
    name = f"Run <code>{escape(run.run_id)}</code>"
    if context.choice.narrows:
        return empty("No turn matches the filter", f"{name} has {formatting.turns(run.turns)}; widen the filter above.")
    if why := why_no_turn(context.store, run.run_id):
        return empty(NO_TURN, *why)
    if run.ended:
        return empty(NO_TURN, f"{name} has ended; <code>voiceprobe report</code> says what is known of why.")
    return empty("No turns yet", f"{name} has begun; its first turn shows here as soon as it is over.")


def start_a_run() -> str:
    """Return instructions to get turns into the store that is shown."""
    by_command = "Start a run with <code>./voiceprobe demo</code> or <code>voiceprobe run ws://…</code>"
    service = "point a service's <code>OTEL_EXPORTER_OTLP_ENDPOINT</code> at the sidecar"
    return f"{_on_locusts_page() or by_command}, or {service}"


def why_no_turn(store: str, run_id: str | None) -> tuple[str, ...]:
    """Report that the run of a store's folder ended without a turn, and the recorded reason: a target that
    was never reached leaves an empty store. Empty if the reason is not known."""
    entry = ended_without_turn(store, run_id)
    if entry is None or not entry.sentence:
        return ()
    return (f"Run <code>{escape(entry.title)}</code> has ended.", f"<b>{escape(entry.sentence)}</b>")


def no_runs_yet() -> Html:
    """The content of a page without any run, with instructions to start one."""
    first = _on_locusts_page() or "Start one with <code>voiceprobe run ws://…</code>"
    searched = escape(", ".join(places()))
    return empty("No runs yet", f"{searched}: no run is here. {first}; the run shows here while it goes on.")


def _on_locusts_page() -> str:
    """Return a link to Locust's page if the launcher was given its address: a viewer may have no command line."""
    address = escape(os.environ.get(ENV_LOCUST, ""))
    return address and f'Start callers on Locust\'s page, <a href="{address}">{address}</a>'
