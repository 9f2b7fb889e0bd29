"""How often a page asks again, and how old what it shows is.

A page asks when it is drawn. The time until it asks again follows what the last refresh cost, so that no page takes
more than a fifth of a core for itself, however large its store is; below the title stands when it asked.
"""

import time
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import streamlit as st

from dashboard import descriptions
from dashboard.components.markup import escape
from telemetry.model.formatting import NS_PER_S

TIMES_THE_COST: Final = 5
_AGE_EVERY_S: Final = 2.0
_SHOWN: Final = "shown_answer"
_NEXT: Final = "next_answer"

_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class AskedPage(Generic[_Answer]):
    """An answer, when it was asked for, and how long the refresh took that asked; `about` is the page and its link."""

    about: object
    answer: _Answer
    at_unix_ns: int
    took_s: float
    began_s: float = field(default_factory=time.monotonic)


def interval_s(least_s: float | None, took_s: float) -> float | None:
    """The time between two refreshes: at least five times what the last one took, in steps of two, so that the pace of
    a page rarely changes. None for a page that does not refresh."""
    if least_s is None:
        return None
    every_s = least_s
    while every_s < TIMES_THE_COST * took_s:
        every_s *= 2
    return every_s


def is_out_of_pace(every_s: float, needed_s: float) -> bool:
    """Whether a page refreshes too often for its cost, or far less often than it could."""
    return needed_s > every_s or needed_s * 2 < every_s


def hand_over(asked: AskedPage[Any]) -> None:
    """Draw the whole page from an answer that a refresh of a part of it has got: the store is not asked again."""
    st.session_state[_NEXT] = asked
    st.rerun()


def handed_over(about: object) -> AskedPage[Any] | None:
    """The answer for a page that is drawn whole, if a refresh of this page got one."""
    asked: AskedPage[Any] | None = st.session_state.pop(_NEXT, None)
    return asked if asked is not None and asked.about == about else None


def show_age(at_unix_ns: int | None, every_s: float | None = None) -> None:
    """Let the title say when an answer was asked for, None for a page that shows none, and how often it is again."""
    st.session_state[_SHOWN] = None if at_unix_ns is None else (at_unix_ns, every_s)


def title(text: str) -> None:
    """Draw the title of a page with the age of what it shows, and follow a switch between light and dark: pictures have
    their colors from the server, all else has them from CSS."""
    drawn = st.context.theme.type

    def head() -> None:
        # The browser says its theme with every question that it asks; a page of an ended run asks none by itself.
        if st.context.theme.type != drawn:
            st.rerun()
        st.html(f'<div class="vp"><h1>{escape(text)}</h1>{_age(st.session_state.get(_SHOWN))}</div>')

    st.fragment(head, run_every=_AGE_EVERY_S)()


def _age(shown: tuple[int, float | None] | None) -> str:
    if shown is None:
        return ""
    at_unix_ns, every_s = shown
    at = descriptions.time_of_day(at_unix_ns, descriptions.zone_of(st.context.timezone))
    ago = descriptions.ago((time.time_ns() - at_unix_ns) / NS_PER_S)
    pace = "read once" if every_s is None else f"read every {every_s:g} s"
    return f'<div class="hint vp-age" title="{pace}">as of {at}, {ago}</div>'
