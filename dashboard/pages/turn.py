"""The page of one turn: its waterfall on one clock, with its audio and words where they were kept, in its call."""

import time
from collections.abc import Mapping
from typing import Final

import streamlit as st

from dashboard import call_strip, evidence, frame, header, kept_words
from dashboard.accessible_chart import chart, table_below
from dashboard.frame import PageContext
from dashboard.markup import escape
from dashboard.palette import palette
from dashboard.source import Source, source_of
from dashboard.turn_player import call_player, call_table, turn_player
from dashboard.turns_choice import turns_choice_of
from dashboard.waterfall_chart import view_ms, waterfall_rows, waterfall_spec, waterfall_table
from telemetry.model.errors import TelemetryError
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall
from telemetry.store.questions.turns import TurnView

TITLE: Final = "Turn"
TRACE: Final = "trace"
TURN: Final = "turn"
VIEW: Final = "view"
CALL: Final = "call"
_ALT: Final = "Waterfall of the turn: what the caller heard above what the service reported, on one clock"


def page() -> None:
    """Draw the turn that the link names: `?trace=…&turn=…`; with `view=call` its whole call."""
    context = PageContext(st.query_params.to_dict(), frame.viewer_zone(), time.time_ns())
    wanted = _wanted(context.link)
    frame.heading(TITLE)
    st.html(_links_back(context))
    try:
        with st.spinner(frame.READING):
            view = ask(source_of(context.link), context.link)
    except TelemetryError as error:
        st.html(header.empty("The store cannot be read", escape(error)))
        return
    frame.say_fault_of_objectives(context.link)
    if wanted is None or view is None:
        st.html(header.empty("The link names no turn", "Open one from the slowest turns of a run."))
        return
    if view.picture is None:
        trace_id, index = wanted
        why = f"Trace <code>{escape(trace_id)}</code>, turn {index}: the store has neither side of it."
        st.html(header.empty("That turn is not in this store", why))
        return
    draw(view, view.picture, wanted, context)


def ask(source: Source, link: Mapping[str, str]) -> TurnView | None:
    """The turn of a link; None of one that names none. Raises StoreError when the store cannot be read."""
    wanted = _wanted(link)
    return None if wanted is None else source.reader.turn_view(*wanted, whole_call=link.get(VIEW) == CALL)


def _links_back(context: PageContext) -> str:
    choice, (listed, _) = context.choice, turns_choice_of(context.link)
    links = f'<a href="{escape(choice.link())}" target="_self">← back to the run</a>'
    links += f' · <a href="{escape(choice.link("turns", **listed.query()))}" target="_self">all turns</a>'
    return f'<div class="vp">{links}</div>'


def _wanted(query: Mapping[str, str]) -> tuple[str, int] | None:
    trace_id, index = query.get(TRACE), query.get(TURN, "0")
    is_number = index.isascii() and index.isdigit() and len(index) < 10
    return (trace_id, int(index)) if trace_id and is_number else None


def _head(view: TurnView, picture: Waterfall, wanted: tuple[str, int], context: PageContext) -> list[str]:
    has_audio = view.excerpt is not None and view.excerpt.audio is not None and view.client is not None
    whole_call = context.link.get(VIEW) == CALL and has_audio
    return [
        call_strip.neighbors(view.call, *wanted, context.choice, **_kept(context.link)),
        evidence.headline(view.client, view.service, picture, whole_call=whole_call),
    ]


def _kept(link: Mapping[str, str]) -> dict[str, str]:
    """What a link to another turn of the call keeps of this one's."""
    listed, _ = turns_choice_of(link)
    return listed.query() | ({VIEW: CALL} if link.get(VIEW) == CALL else {})


def draw(view: TurnView, picture: Waterfall, wanted: tuple[str, int], context: PageContext) -> None:
    """The turn in its call, its waterfall, and what is known of it in words."""
    client, service, (trace_id, index), choice = view.client, view.service, wanted, context.choice
    whole_call = context.link.get(VIEW) == CALL
    for part in _head(view, picture, wanted, context):
        st.html(part)
    _picture(view, picture, whole_call=whole_call)
    st.html(kept_words.notices(view.excerpt, view.kept_in))
    if words := kept_words.words(client, view.excerpt):
        st.html(words)
    if strip := call_strip.strip(view.call, trace_id, index, choice, **_kept(context.link)):
        st.html(strip)
    if view.excerpt is not None and view.excerpt.audio is not None:
        other = {} if whole_call else {VIEW: CALL}
        listed, _ = turns_choice_of(context.link)
        address = choice.link("turns", trace=trace_id, turn=str(index), **listed.query(), **other)
        label = "listen to this turn alone" if whole_call else "listen to the whole call"
        st.html(f'<div class="vp"><a href="{escape(address)}" target="_self">{label}</a></div>')
    with st.container(key="halves"):
        left, middle, right = st.columns([1, 1.1, 1.5])
    with left:
        st.html(evidence.trust(client))
    with middle:
        st.html(evidence.dimensions(client or service, context.zone))
    with right:
        st.html(evidence.moments(picture))
        if stated := evidence.reported(client):
            st.html(stated)


def _picture(view: TurnView, picture: Waterfall, *, whole_call: bool) -> None:
    """The waterfall: with the audio where it was kept, else alone."""
    colors, excerpt, client = palette(st.context.theme.type), view.excerpt, view.client
    if excerpt is None or excerpt.audio is None or client is None:
        spec = waterfall_spec(colors, view_ms(picture), picture.origin_label)
        chart(waterfall_rows(picture), spec, _ALT, waterfall_table(picture), table_at_once=True)
        return
    key = f"{client.trace_id}-{client.turn_index}"
    if whole_call:
        call_player(view.call, excerpt, client, colors, key=f"{key}-call")
        table_below(call_table(view.call))
    else:
        turn_player(picture, excerpt, _zero(client), colors, key=key)
        table_below(waterfall_table(picture))


def _zero(client: Turn) -> int:
    """The moment of the waterfall's 0 on the clock of the turn."""
    return client.started_perf_ns if client.speech_end_perf_ns is None else client.speech_end_perf_ns
