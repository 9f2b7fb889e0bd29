"""Questions that are asked before the script of a page asks them, in threads of their own: when a browser requests a
page, and shortly before it requests a page's next refresh."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import streamlit as st

_OF_VIEWER: Final = "next_answer"
_MOST_AT_ONCE: Final = 2
_free: Final = threading.BoundedSemaphore(_MOST_AT_ONCE)
# So much longer than the last time may a question take, and still be answered when its refresh begins. More would make
# figures older than they need be.
_LONGER_S: Final = 0.05
# What takes longer is asked no earlier than that: a browser draws the page until then. How long it takes is not known
# at first, while a page that was just opened takes longest to draw.
_EARLIEST_SHARE: Final = 0.75
_FIRST_SHARE: Final = 0.25

_Answer = TypeVar("_Answer")


def ask_now(ask: Callable[[], object], name: str) -> None:
    """Ask in a thread of this name, unless as many questions are being asked already: their pages wait for the store
    anyway. What fails is asked again by the page, which says what is wrong."""
    if not _free.acquire(blocking=False):
        return

    def asking() -> None:
        try:
            with contextlib.suppress(Exception):
                ask()
        finally:
            _free.release()

    threading.Thread(target=asking, name=name, daemon=True).start()


def later(delay_s: float, ask: Callable[[], object]) -> Callable[[], None]:
    """Ask in a thread of its own after a while, as `ask_now` does. What is returned calls that off."""
    waiting = threading.Timer(delay_s, ask_now, (ask, "ask ahead: a refresh"))
    waiting.daemon = True
    waiting.start()
    return waiting.cancel


class NextAnswer:
    """Asks what a page that refreshes by itself will ask next, so that the answer is there when its refresh begins, and
    is hardly older then than one that the refresh would have waited for. One for each page that is looked at; not
    thread-safe."""

    def __init__(self, refresh_s: float | None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._refresh_s = refresh_s
        self._clock_s = clock_s
        self._lead_s = 0.0 if refresh_s is None else _FIRST_SHARE * refresh_s
        self._call_off: Callable[[], None] | None = None

    def call_off(self) -> None:
        """Do not ask what is planned: the viewer has turned to something else."""
        if self._call_off is not None:
            self._call_off()

    def after(self, ask: Callable[[], _Answer], ask_ahead: Callable[[], object]) -> _Answer:
        """The answer for a refresh that begins now. `ask_ahead` asks for the next one, to which its answer is kept:
        that is planned where the answer is there early enough. What `ask` raises is raised, and nothing is planned."""
        began_s = self._clock_s()
        answer = ask()
        refresh_s = self._refresh_s
        if refresh_s is not None:
            took_s, most_lead_s = self._clock_s() - began_s, _EARLIEST_SHARE * refresh_s
            # A refresh that had to wait is followed by one that waits less, until one waits no more.
            if took_s < most_lead_s:
                delay_s = max(0.0, refresh_s - self._lead_s - took_s)
                self._call_off = later(delay_s, lambda: self._timed(ask_ahead, most_lead_s))
        return answer

    def _timed(self, ask_ahead: Callable[[], object], most_lead_s: float) -> None:
        began_s = self._clock_s()
        ask_ahead()
        took_s = self._clock_s() - began_s
        self._lead_s = min(took_s + _LONGER_S, most_lead_s)


def next_answer(refresh_s: float | None) -> NextAnswer:
    """For the page that the viewer of this session opens, in place of what was planned for the page before: nobody
    waits for that any more, while the new page waits for the store."""
    before: NextAnswer | None = st.session_state.get(_OF_VIEWER)
    if before is not None:
        before.call_off()
    found = st.session_state[_OF_VIEWER] = NextAnswer(refresh_s)
    return found
