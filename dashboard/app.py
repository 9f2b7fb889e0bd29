"""The dashboard's script, run by Streamlit for each viewer: the style, the navigation and the chosen page.

A page is a module with a `page` function; a new one is a line in `PAGES`.
"""

from typing import Final

import streamlit as st

from dashboard.pages import now, runs, turn
from dashboard.pages import now, turn, turns
from dashboard.stylesheet import stylesheet

# One turn is a view of the first page's address (`?trace=…`): it is reached from a figure, never from the navigation.
NOW: Final = turn.page if turn.TRACE in st.query_params else now.page
PAGES: Final = (
    st.Page(NOW, title="Now", url_path="now", default=True),
    st.Page(runs.page, title="Runs", url_path="runs"),
TURNS: Final = turn.page if turn.TRACE in st.query_params else turns.page
PAGES: Final = (
    st.Page(NOW, title="Now", url_path="now", default=True),
    st.Page(TURNS, title="Turns", url_path="turns"),
)

st.set_page_config(page_title="voiceprobe", layout="wide", initial_sidebar_state="collapsed")
st.html(stylesheet())
st.navigation(list(PAGES), position="top").run()
