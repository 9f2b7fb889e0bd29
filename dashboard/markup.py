"""Text and lengths made safe for HTML and CSS."""

import html


def escape(text: object) -> str:
    """Text from the store made safe to stand in HTML: run, cohort and model names come from outside."""
    return html.escape(str(text), quote=True)


def scrolled(label: str, table: str) -> str:
    """A table of our own HTML in a region of its own, which scrolls sideways by finger and keyboard where the window is
    narrow."""
    return f'<div class="vp-scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'


def css_percent(share: float, *, decimals: int = 2) -> str:
    """A share of the room that a bar has, as CSS writes it: `33.33%`."""
    return f"{share * 100:.{decimals}f}%"
