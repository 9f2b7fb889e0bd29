"""Pages of the dashboard as Streamlit's own test runner draws them, and what they say."""

import re
from collections.abc import Iterable
from html import unescape

from streamlit.testing.v1 import AppTest

BOUND_S = 180


def opened(page: str, **link: str) -> AppTest:
    """A page, drawn, with a link's parameters."""
    app = AppTest.from_string(f"from dashboard.pages import {page}\n{page}.page()\n", default_timeout=BOUND_S)
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def html_of(app: AppTest) -> str:
    """Return the page as HTML."""
    return " ".join(element.proto.body for element in app.get("html"))


def plain(html: str) -> str:
    """HTML as text on one line."""
    return " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL)).split())


def text_of(app: AppTest) -> str:
    """Return the page as text on one line."""
    return plain(html_of(app))


def pictures(app: AppTest) -> list[str]:
    """Return the descriptions of a page's pictures."""
    return [element.proto.alt for element in app.get("vega_lite_chart")]


def chip(app: AppTest) -> str:
    """The chip that says how far the figures of a page can be trusted."""
    labels = [element.proto.popover.label for element in app.get("popover")]
    (shown,) = [label for label in labels if not label.startswith("Filters")]
    return str(shown)


def says(html: str, *parts: str, no: Iterable[str] = ()) -> None:
    """All of these parts are in the text of some HTML, and none of the others."""
    text = plain(html)
    assert [part for part in parts if part not in text] == [], text
    assert [part for part in no if part in text] == [], text
