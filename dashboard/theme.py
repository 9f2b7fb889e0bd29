"""Follows a switch between light and dark: pictures have their colors from the server, all else has them from CSS."""

from typing import Final

import streamlit as st

# The browser says its theme with every question that it asks; a page of an ended run asks none by itself.
_LOOK_EVERY_S: Final = 2.0


def follow_theme() -> None:
    """Draw the page anew when the viewer has switched the theme, on whichever page."""
    drawn = st.context.theme.type

    def look() -> None:
        if st.context.theme.type != drawn:
            st.rerun()

    st.fragment(look, run_every=_LOOK_EVERY_S)()
