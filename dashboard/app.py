"""The dashboard's script, run by Streamlit for each viewer: the style, the navigation and the selected page.

A page is a module that defines `page`; a new one is registered in `PAGES`.
"""

from typing import Final

import streamlit as st

from dashboard.components.markup import stylesheet
from dashboard.pages import cache, cohorts, instrument, now, objectives, rollout, runs, turn, turns

# One turn is a view of the page of turns (`?trace=…`): it is reached from a figure, never from the navigation.
IS_TURN: Final = turn.TRACE in st.query_params
PAGES: Final = {
    "Now": st.Page(turn.page if IS_TURN else now.page, title="Now", url_path="now", default=True),
    "Turns": st.Page(turn.page if IS_TURN else turns.page, title="Turns", url_path="turns"),
    "Cohorts": st.Page(cohorts.page, title="Cohorts", url_path="cohorts"),
    "Rollout": st.Page(rollout.page, title="Rollout", url_path="rollout"),
    "Objectives": st.Page(objectives.page, title="Objectives", url_path="objectives"),
    "Runs": st.Page(runs.page, title="Runs", url_path="runs"),
    "Cache and routing": st.Page(cache.page, title="Cache and routing", url_path="cache"),
    "Instrument": st.Page(instrument.page, title="Instrument", url_path="instrument"),
}

shown = st.navigation(list(PAGES.values()), position="top")
# A page does not know its title where no browser asked for it, as in a process that imports this script.
page_title = next(title for title, page in PAGES.items() if page is shown)
title = turn.TITLE if IS_TURN else page_title
st.set_page_config(page_title=f"{title} · voiceprobe", layout="wide", initial_sidebar_state="collapsed")
st.html(stylesheet())
shown.run()
