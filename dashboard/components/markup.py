"""Text and lengths made safe for HTML and CSS."""

import html
from functools import cache
from pathlib import Path
from typing import Final

from telemetry.model.foreign_text import one_line, visible

_LONGEST_NAME: Final = 32


def escape(text: object) -> str:
    """Text from the store made safe to stand in HTML: run, cohort and model names come from outside. What would turn
    the order of our own words beside it is written out."""
    return html.escape(visible(str(text)), quote=True)


def short(name: str) -> str:
    """A name that somebody else gave, cut where it would take the room of figures; pointing at it shows all of it."""
    shown = one_line(name, _LONGEST_NAME)
    return escape(shown) if shown == name else f'<span title="{escape(name)}">{escape(shown)}</span>'


def scrolled(label: str, table: str, *, ends_in_verdict: bool = False) -> str:
    """A table of our own HTML in a region of its own, which scrolls sideways by finger and keyboard where the window is
    narrow. The last column stays in sight there if it is what is decided."""
    css = "vp-scroll vp-verdict-last" if ends_in_verdict else "vp-scroll"
    return f'<div class="{css}" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'


def css_percent(share: float, *, decimals: int = 2) -> str:
    """A share of the room that a bar has, as CSS writes it: `33.33%`."""
    return f"{share * 100:.{decimals}f}%"


@cache
def stylesheet() -> str:
    """The style of all pages as one `<style>` element."""
    return f"<style>{Path(__file__).with_name('style.css').read_text(encoding='utf-8')}</style>"
