"""What a page shows first is sent a moment before the rest of it, so that it is drawn before the rest.

A browser that opens the dashboard loads the code that draws an element when the first such element comes, and draws
what came meanwhile together afterwards: sent at once, figures wait for the charts and lists below them.
"""

import time
from collections.abc import Callable
from typing import Final

import streamlit as st

# Measured on two busy cores: what is sent first is drawn after this share of the time that the browser took from its
# request until it had loaded the dashboard's program.
DRAWN_SHARE: Final = 0.8
# A browser far away took its time for the network: it does not draw slowly.
LONGEST_S: Final = 0.8
# Where figures come later than that, the browser has what it needs to draw them, and begins within so long.
SHORTEST_S: Final = 0.1

_REST_AT_S: Final = "rest_at_s"


class Pace:
    """When browsers that open the dashboard are sent more than first figures; `clock_s` is monotonic."""

    def __init__(
        self, clock_s: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock_s = clock_s
        self._wait = wait
        self._requested_s: float | None = None

    def page_requested(self) -> None:
        """Note that a browser requests a page."""
        self._requested_s = self._clock_s()

    def rest_at_s(self) -> float | None:
        """When a browser that begins to draw now is sent the rest; None where it requested no page."""
        if self._requested_s is None:
            return None
        now_s = self._clock_s()
        return now_s + min(DRAWN_SHARE * (now_s - self._requested_s), LONGEST_S)

    def wait_until(self, rest_at_s: float) -> None:
        """Wait until then, at least for a moment."""
        self._wait(max(rest_at_s - self._clock_s(), SHORTEST_S))


PACE: Final = Pace()


def session_runs(pace: Pace = PACE) -> None:
    """Plan when the page that a viewer opens the dashboard with may send the rest."""
    if _REST_AT_S not in st.session_state:
        st.session_state[_REST_AT_S] = pace.rest_at_s()


def draw_first(pace: Pace = PACE) -> None:
    """Let the browser draw what the page has sent so far before the rest is sent. The first call of a session waits:
    from then on its browser has what it needs."""
    rest_at_s: float | None = st.session_state.get(_REST_AT_S)
    if rest_at_s is not None:
        st.session_state[_REST_AT_S] = None
        pace.wait_until(rest_at_s)
