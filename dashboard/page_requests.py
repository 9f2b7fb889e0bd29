"""What a page asks is asked when a browser requests the page, not when its script runs: a browser spends about half a
second on loading and starting the program that draws it, while the store can answer. What the page shows first goes to
the browser as HTML as soon as the answer is there: the page that the browser loads has a script that asks for it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from streamlit import config
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from dashboard import asking_ahead, frame
from dashboard.early_answers import EarlyAnswers
from dashboard.launch import HEALTH_PATH
from dashboard.objectives_in_force import objectives_in_force
from dashboard.opened_page import AnyPage, PageContext, title_of
from dashboard.pages import cache, cohorts, instrument, now, objectives, rollout, runs, turn, turns
from dashboard.source import source_of, store_of
from dashboard.stylesheet import stylesheet
from telemetry.model.errors import TelemetryError
from telemetry.model.foreign_text import one_line

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PAGES: Final[dict[str, AnyPage]] = {
    "now": now.PAGE.opened(),
    "turns": turns.PAGE.opened(),
    "cohorts": cohorts.PAGE.opened(),
    "rollout": rollout.OPENED,
    "objectives": objectives.OPENED,
    "cache": cache.PAGE.opened(),
    "instrument": instrument.PAGE.opened(),
    "runs": runs.OPENED,
}
_FIRST_PAGE: Final = "now"
# Before the name of a page: the address of what it shows first.
FIRST_FIGURES: Final = "/_first/"
ZONE_HEADER: Final = "x-time-zone"
_SCRIPT: Final = Path(__file__).parent / "script" / "first_figures.js"
_HEAD: Final = b"<head>"
_TITLE: Final = b"<title>Streamlit</title>"
# What would be answered with less than the whole page, or with bytes that are not its text.
_NOT_PASSED_ON: Final = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")
_FOLLOWS: Final = '<div class="vp"><span class="hint">The rest of the page is being loaded.</span></div>'


def page_at(path: str, link: Mapping[str, str]) -> AnyPage | None:
    """The page at an address; None where there is none."""
    name = path.strip("/") or _FIRST_PAGE
    if name in ("now", "turns") and turn.TRACE in link:
        return turn.OPENED
    return _PAGES.get(name)


class PageRequests:
    """Streamlit's app, in front of which the questions of requested pages are asked, and their first figures given."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app
        self._script = f"<script>{_SCRIPT.read_text(encoding='utf-8')}</script>".encode()
        self._answers = EarlyAnswers()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on; ask before that if it opens a page."""
        if scope["type"] in ("http", "websocket") and (fault := _fault_of_names(scope)) is not None:
            return await _refuse(fault, scope, receive, send)
        if scope["type"] != "http" or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        path, query = scope["path"], scope["query_string"].decode("latin-1")
        if path.startswith(FIRST_FIGURES):
            zone = Headers(scope=scope).get(ZONE_HEADER)
            response = await self._first_figures(zone, path.removeprefix(FIRST_FIGURES), query)
            return await response(scope, receive, send)
        if not _opens_page(scope):
            return await self._app(scope, receive, send)
        if path.strip("/") == _FIRST_PAGE:
            # Streamlit has the first page at the root alone, and calls its own name not found.
            return await RedirectResponse(f"/?{query}" if query else "/")(scope, receive, send)
        page = page_at(path, _link(query))
        if page is None:
            return await self._app(scope, receive, send)
        self._ask_ahead(page, path, query)
        headers = [each for each in scope["headers"] if each[0] not in _NOT_PASSED_ON]
        own = {_HEAD: _HEAD + self._script, _TITLE: f"<title>{title_of(page.title)}</title>".encode()}
        return await self._app({**scope, "headers": headers}, receive, _with_own_parts(send, own))

    def _ask_ahead(self, page: AnyPage, path: str, query: str) -> None:
        question, link = (path.strip("/") or _FIRST_PAGE, query), _link(query)

        def ask() -> Any:
            return self._answers.ask(question, lambda: page.ask(source_of(link).ahead(), link))

        asking_ahead.ask_now(ask, f"ask ahead: {path}")

    async def _first_figures(self, zone: str | None, name: str, query: str) -> Response:
        """What a page shows first, to the browser that has just requested it; nothing where that was not asked, or the
        page has no figure to show."""
        found = await run_in_threadpool(self._first_html, name, query, zone)
        own = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        return Response(found, 200 if found else 204, own, "text/html; charset=utf-8")

    def _first_html(self, name: str, query: str, zone: str | None) -> str:
        link = _link(query)
        page, answer = page_at(name, link), self._answers.take((name, query))
        if page is None or answer is None:
            return ""
        context = PageContext(link, frame.zone_of(zone), time.time_ns())
        parts = page.first_html(answer, context)
        if not parts:
            return ""
        try:
            faults = frame.fault_of_objectives(objectives_in_force(store_of(link)))
        except TelemetryError:
            return ""  # the page itself says what is wrong
        return f"{stylesheet()}{faults}{parts}{_FOLLOWS}"


def _fault_of_names(scope: "Scope") -> str | None:
    """Why a request is refused, None if it is not: a page elsewhere that points its own name at this machine must not
    read the figures (DNS rebinding), nor must one that opens a WebSocket here by this machine's name."""
    headers = Headers(scope=scope)
    host, origin = headers.get("host"), headers.get("origin")
    if scope["path"] == HEALTH_PATH:
        return None  # a probe uses whatever name it has, and learns nothing
    if not is_host_allowed(host):
        return _named("host name", host)
    # Without a list of names, the page that asks must be one of the same address.
    try:
        source = None if origin is None else urlsplit(origin).netloc
    except ValueError:
        source = ""
    if source is None or source == host or (config.get_option("server.allowedHosts") and is_host_allowed(source)):
        return None
    return _named("origin", origin)


def _named(kind: str, name: str | None) -> str:
    return (
        f"The dashboard does not answer to the {kind} {one_line(name or '')!r}. If it is yours, start "
        "`voiceprobe dashboard` with `--public-host NAME`, the host name in the browser's address.\n"
    )


async def _refuse(fault: str, scope: "Scope", receive: "Receive", send: "Send") -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})  # before it is accepted: status 403
        return
    await PlainTextResponse(fault, 403, {"cache-control": "no-store"})(scope, receive, send)


def _link(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True))


def _with_own_parts(send: "Send", own: Mapping[bytes, bytes]) -> "Send":
    """Send a page with parts of it replaced."""
    begun: list[Message] = []
    body = bytearray()

    async def sending(message: "Message") -> None:
        if message["type"] == "http.response.start":
            begun.append(message)
            return
        body.extend(message.get("body", b""))
        if message.get("more_body"):
            return
        page = bytes(body)
        for part, in_its_place in own.items():
            page = page.replace(part, in_its_place, 1)
        headers = MutableHeaders(raw=begun[0]["headers"])
        headers["content-length"] = str(len(page))
        for name in ("etag", "last-modified"):
            # The page is of more than the file that Streamlit knows.
            del headers[name]
        await send(begun[0])
        await send({"type": "http.response.body", "body": page})

    return sending


def _opens_page(scope: "Scope") -> bool:
    """Whether a person opens a page with a browser: neither a file of its program, nor an image of another page."""
    headers = dict(scope["headers"])
    if b"sec-fetch-mode" in headers:
        return headers[b"sec-fetch-mode"] == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    # Browsers say that to this machine, and over TLS; elsewhere by what they take.
    return headers.get(b"accept", b"").startswith(b"text/html")
