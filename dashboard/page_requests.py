"""What a page asks is asked when a browser requests the page, not when its script runs: a browser spends about half a
second on loading and starting the program that draws it, while the store can answer."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse

from dashboard import asking_ahead
from dashboard.first_figures import PACE
from dashboard.pages import cache, cohorts, instrument, now, objectives, rollout, runs, turn, turns
from dashboard.source import Source, source_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

Ask = Callable[[Source, Mapping[str, str]], object]

_ASKED: Final[dict[str, Ask]] = {
    "now": now.ask,
    "turns": turns.ask,
    "cohorts": cohorts.ask,
    "rollout": rollout.ask,
    "objectives": objectives.ask,
    "cache": cache.ask,
    "instrument": instrument.ask,
    "runs": runs.ask,
}
_FIRST_PAGE: Final = "/now"


def question_of(path: str, link: Mapping[str, str]) -> Ask | None:
    """What the page at an address asks; None where there is no such page, or one that asks otherwise."""
    name = path.strip("/") or "now"
    if name in ("now", "turns") and turn.TRACE in link:
        return turn.ask
    return _ASKED.get(name)


class PageRequests:
    """Streamlit's app, in front of which the questions of requested pages are asked."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on; ask before that if it opens a page."""
        if scope["type"] == "http" and scope["method"] == "GET" and _opens_page(scope):
            query = scope["query_string"].decode("latin-1")
            if scope["path"].rstrip("/") == _FIRST_PAGE:
                # Streamlit has the first page at the root alone, and calls its own name not found.
                return await RedirectResponse(f"/?{query}" if query else "/")(scope, receive, send)
            PACE.page_requested()
            _ask_ahead(scope["path"], query)
        return await self._app(scope, receive, send)


def _ask_ahead(path: str, query: str) -> None:
    link = dict(parse_qsl(query, keep_blank_values=True))
    ask = question_of(path, link)
    if ask is not None:
        asking_ahead.ask_now(lambda: ask(source_of(link).ahead(), link), f"ask ahead: {path}")


def _opens_page(scope: "Scope") -> bool:
    """Whether a person opens a page with a browser: neither a file of its program, nor an image of another page."""
    headers = dict(scope["headers"])
    if b"sec-fetch-mode" in headers:
        return headers[b"sec-fetch-mode"] == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    # Browsers say that to this machine, and over TLS; elsewhere by what they take.
    return headers.get(b"accept", b"").startswith(b"text/html")
