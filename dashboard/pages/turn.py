"""The Turn page: one turn as a waterfall on one clock, with the evidence that it was measured well."""

from collections.abc import Mapping
from typing import Final

import pandas as pd
import streamlit as st

from dashboard import evidence, header
from dashboard.filters import choice_of
from dashboard.markup import escape
from dashboard.palette import palette
from dashboard.source import source_from_environment
from dashboard.waterfall_chart import view_ms, waterfall_rows, waterfall_spec
from telemetry.model.errors import TelemetryError
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall, waterfall

TRACE: Final = "trace"
TURN: Final = "turn"
_ORIGINS: Final = {"speech_end": "the end of the caller's speech", "started": "the beginning of the turn"}


def page() -> None:
    """Draw the turn that the link names: `?trace=…&turn=…`."""
    choice, _ = choice_of(st.query_params)
    st.html(f'<div class="vp"><a href="{escape(choice.link())}" target="_self">← back to the run</a></div>')
    wanted = _wanted(st.query_params)
    if wanted is None:
        st.html(header.empty("The link names no turn", "Open one from the slowest turns of a run."))
        return
    try:
        client, service, spans = source_from_environment().turn(*wanted)
    except TelemetryError as error:
        st.html(header.empty("The store cannot be read", escape(error)))
        return
    if client is None and service is None:
        trace_id, index = wanted
        why = f"Trace <code>{escape(trace_id)}</code>, turn {index}: the store has neither side of it."
        st.html(header.empty("That turn is not in this store", why))
        return
    draw(client, service, waterfall(client, service, spans))


def _wanted(query: Mapping[str, str]) -> tuple[str, int] | None:
    trace_id, index = query.get(TRACE), query.get(TURN, "0")
    return (trace_id, int(index)) if trace_id and index.isascii() and index.isdigit() else None


def draw(client: Turn | None, service: Turn | None, picture: Waterfall) -> None:
    """The headline of the turn, its waterfall, and what is known of it in words."""
    st.html(evidence.headline(client, service, picture))
    st.vega_lite_chart(
        pd.DataFrame(waterfall_rows(picture)),
        waterfall_spec(palette(st.context.theme.type), view_ms(picture), _ORIGINS[picture.origin]),
        theme=None,
        width="stretch",
        alt="Waterfall of the turn: what the caller heard above what the service reported, on one clock",
    )
    left, middle, right = st.columns([1, 1.1, 1.5])
    with left:
        st.html(evidence.trust(client))
    with middle:
        st.html(evidence.dimensions(client or service))
    with right:
        st.html(evidence.moments(picture))
        if stated := evidence.reported(client):
            st.html(stated)
