"""The page of one turn: its waterfall on one clock, with its audio and words where they were kept, in its call."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

from dashboard.charts import table_below
from dashboard.components import one_turn
from dashboard.components.frame import DashboardPage, PageContext
from dashboard.components.markup import empty, escape, link_to
from dashboard.components.selectors import SelectorRow
from dashboard.links import TurnsChoice
from dashboard.player.turn_player import call_player, call_table, turn_player, waterfall_table
from dashboard.source import Source
from telemetry.model.waterfall import Waterfall
from telemetry.store.questions.turns import TurnView

TITLE: Final = "Turn"
TRACE: Final = "trace"
TURN: Final = "turn"
VIEW: Final = "view"
CALL: Final = "call"


def ask(source: Source, link: Mapping[str, str]) -> TurnView | None:
    """The turn that a link names; None if it names none. Raises StoreError if the store cannot be read."""
    wanted = _wanted(link)
    return None if wanted is None else source.reader.turn_view(*wanted, whole_call=link.get(VIEW) == CALL)


def _wanted(query: Mapping[str, str]) -> tuple[str, int] | None:
    trace_id, index = query.get(TRACE), query.get(TURN, "0")
    is_number = index.isascii() and index.isdigit() and len(index) < 10
    return (trace_id, int(index)) if trace_id and is_number else None


def _draw(view: TurnView | None, context: PageContext) -> None:
    """Draw the turn in its call, its waterfall, and its details as text."""
    choice, wanted = context.choice, _wanted(context.link)
    listed = TurnsChoice.of(context.link)[0].query()
    to_list = link_to(choice.link("turns", **listed), "all turns")
    st.html(f'<div class="vp">{link_to(choice.link(), "← back to the run")} · {to_list}</div>')
    if wanted is None or view is None:
        st.html(empty("The link names no turn", "Open one from the slowest turns of a run."))
        return
    trace_id, index = wanted
    client, picture = view.client, view.picture
    if picture is None:
        why = f"Trace <code>{escape(trace_id)}</code>, turn {index}: the store has neither side of it."
        st.html(empty("That turn is not in this store", why))
        return
    shows_call = context.link.get(VIEW) == CALL
    has_audio = view.excerpt is not None and view.excerpt.audio is not None
    # A link to another turn of the call keeps the list, and the whole call.
    kept = {**listed, **({VIEW: CALL} if shows_call else {})}
    whole_call = shows_call and has_audio and client is not None
    st.html(one_turn.neighbors(view.call, trace_id, index, choice, **kept))
    st.html(one_turn.headline(client, view.service, picture, whole_call=whole_call))
    _picture(view, picture, whole_call=shows_call)
    st.html(one_turn.notices(view.excerpt, view.kept_in))
    if shown := one_turn.words(client, view.excerpt):
        st.html(shown)
    if strip := one_turn.call_strip(view.call, trace_id, index, choice, **kept):
        st.html(strip)
    if has_audio:
        other = {} if shows_call else {VIEW: CALL}
        label = "listen to this turn alone" if shows_call else "listen to the whole call"
        address = choice.link("turns", trace=trace_id, turn=str(index), **listed, **other)
        st.html(f'<div class="vp">{link_to(address, label)}</div>')
    with st.container(key="halves"):
        left, middle, right = st.columns([1, 1.1, 1.5])
    with left:
        st.html(one_turn.evidence_of(client))
    with middle:
        st.html(one_turn.dimensions(client or view.service, context.zone))
    with right:
        st.html(one_turn.moments(picture))
        if stated := one_turn.reported(client):
            st.html(stated)


def _picture(view: TurnView, picture: Waterfall, *, whole_call: bool) -> None:
    """Draw the waterfall, with the audio if it was kept."""
    excerpt, client = view.excerpt, view.client
    shown = client or view.service
    if shown is None:
        return
    key = f"{shown.trace_id}-{shown.turn_index}"
    if whole_call and excerpt is not None and excerpt.audio is not None and client is not None:
        call_player(view.call, excerpt, client, key=f"{key}-call")
        table_below(call_table(view.call))
        return
    # The moment of the waterfall's 0 on the clock of the turn.
    zero = shown.started_perf_ns if shown.speech_end_perf_ns is None else shown.speech_end_perf_ns
    turn_player(picture, None if client is None else excerpt, zero, key=key)
    table_below(waterfall_table(picture))


PAGE: Final = DashboardPage(
    TITLE,
    ask,
    _draw,
    selectors=lambda _view, _context: (SelectorRow(), []),
    offered=lambda _view: None,
    least_s=lambda _view: None,
)
page: Final = PAGE.show
