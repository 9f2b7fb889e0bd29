"""The page of one turn: its waterfall on one clock, with its audio and words where they were kept, in its call."""

import time
from collections.abc import Mapping
from typing import Final

import streamlit as st

from dashboard.components import frame, one_turn
from dashboard.components.frame import PageContext
from dashboard.components.markup import Html, empty, escape, link_to, note
from dashboard.components.pictures import colors, table_below
from dashboard.links import turns_choice_of
from dashboard.player.turn_player import call_player, call_table, turn_player, waterfall_table
from dashboard.source import Source, source_of
from telemetry.model.errors import TelemetryError
from telemetry.model.waterfall import Waterfall
from telemetry.store.questions.turns import TurnView

TITLE: Final = "Turn"
TRACE: Final = "trace"
TURN: Final = "turn"
VIEW: Final = "view"
CALL: Final = "call"


def page() -> None:
    """Draw the turn that the link names: `?trace=…&turn=…`; with `view=call` its whole call."""
    link = st.query_params.to_dict()
    context, wanted = PageContext(link, frame.viewer_zone(), time.time_ns()), _wanted(link)
    frame.heading(TITLE)
    st.html(_links_back(context))
    try:
        with st.spinner(frame.READING):
            source = source_of(link)
            view = ask(source, link)
    except TelemetryError as error:
        st.html(empty("The store cannot be read", escape(error)))
        return
    if source.in_force.fault:
        st.html(note("objectives", [source.in_force.fault]))
    if wanted is None or view is None:
        st.html(empty("The link names no turn", "Open one from the slowest turns of a run."))
    elif view.picture is None:
        why = f"Trace <code>{escape(wanted[0])}</code>, turn {wanted[1]}: the store has neither side of it."
        st.html(empty("That turn is not in this store", why))
    else:
        _draw(view, view.picture, wanted, context)


def ask(source: Source, link: Mapping[str, str]) -> TurnView | None:
    """The turn of a link; None of one that names none. Raises StoreError when the store cannot be read."""
    wanted = _wanted(link)
    return None if wanted is None else source.reader.turn_view(*wanted, whole_call=link.get(VIEW) == CALL)


def _wanted(query: Mapping[str, str]) -> tuple[str, int] | None:
    trace_id, index = query.get(TRACE), query.get(TURN, "0")
    is_number = index.isascii() and index.isdigit() and len(index) < 10
    return (trace_id, int(index)) if trace_id and is_number else None


def _links_back(context: PageContext) -> Html:
    choice, (listed, _) = context.choice, turns_choice_of(context.link)
    to_list = link_to(choice.link("turns", **listed.query()), "all turns")
    return Html(f'<div class="vp">{link_to(choice.link(), "← back to the run")} · {to_list}</div>')


def _draw(view: TurnView, picture: Waterfall, wanted: tuple[str, int], context: PageContext) -> None:
    """The turn in its call, its waterfall, and what is known of it in words."""
    client, choice, (trace_id, index) = view.client, context.choice, wanted
    listed = turns_choice_of(context.link)[0].query()
    of_call = context.link.get(VIEW) == CALL
    has_audio = view.excerpt is not None and view.excerpt.audio is not None
    # A link to another turn of the call keeps the list, and the whole call.
    kept = {**listed, **({VIEW: CALL} if of_call else {})}
    whole_call = of_call and has_audio and client is not None
    st.html(one_turn.neighbors(view.call, trace_id, index, choice, **kept))
    st.html(one_turn.headline(client, view.service, picture, whole_call=whole_call))
    _picture(view, picture, whole_call=of_call)
    st.html(one_turn.notices(view.excerpt, view.kept_in))
    if shown := one_turn.words(client, view.excerpt):
        st.html(shown)
    if strip := one_turn.call_strip(view.call, trace_id, index, choice, **kept):
        st.html(strip)
    if has_audio:
        other = {} if of_call else {VIEW: CALL}
        label = "listen to this turn alone" if of_call else "listen to the whole call"
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
    """The waterfall: with the audio where it was kept, else alone."""
    excerpt, client = view.excerpt, view.client
    shown = client or view.service
    if shown is None:
        return
    key = f"{shown.trace_id}-{shown.turn_index}"
    if whole_call and excerpt is not None and excerpt.audio is not None and client is not None:
        call_player(view.call, excerpt, client, colors(), key=f"{key}-call")
        table_below(call_table(view.call))
        return
    # The moment of the waterfall's 0 on the clock of the turn.
    zero = shown.started_perf_ns if shown.speech_end_perf_ns is None else shown.speech_end_perf_ns
    turn_player(picture, None if client is None else excerpt, zero, colors(), key=key)
    table_below(waterfall_table(picture))
