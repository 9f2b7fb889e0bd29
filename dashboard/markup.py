"""Text and lengths made safe for HTML and CSS."""

import html


def escape(text: object) -> str:
    """Text from the store made safe to stand in HTML: run, cohort and model names come from outside."""
    return html.escape(str(text), quote=True)


def css_percent(share: float, *, decimals: int = 2) -> str:
    """A share of the room that a bar has, as CSS writes it: `33.33%`."""
    return f"{share * 100:.{decimals}f}%"
