"""Pages of the dashboard as Streamlit's own test runner draws them."""

import re
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
    """What the page shows, as HTML."""
    return " ".join(element.proto.body for element in app.get("html"))


def text_of(app: AppTest) -> str:
    """What the page shows, as text on one line."""
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html_of(app))))
