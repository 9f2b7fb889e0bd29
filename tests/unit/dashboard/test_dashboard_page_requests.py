"""What happens when a browser requests a page: what is asked, and what its first figures are."""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from starlette.responses import FileResponse, HTMLResponse
from streamlit import config

from dashboard import asking_ahead, page_requests
from dashboard.opened_page import OpenedPage, PageContext
from dashboard.page_requests import FIRST_FIGURES, ZONE_HEADER, PageRequests, page_at
from dashboard.source import Source, source_of
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.unit.dashboard.opened_pages import html_of, opened
from tests.unit.dashboard.rollout_scenes import Rollout, fill_rollout
from tests.unit.dashboard.scenes import Scene, fill

BOUND_S = 60
NAVIGATION = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
NAVIGATION_HEADERS = [(name.encode(), value.encode()) for name, value in NAVIGATION.items()]
PROGRAM = "<!DOCTYPE html><html><head><title>Streamlit</title></head><body><div id=root></div></body></html>"
NOW_UNIX_NS = 1_790_000_000_000_000_000


class AnySource:
    def ahead(self) -> "AnySource":
        return self


def page_that(ask: Any, first: Any = lambda _answer, _context: []) -> OpenedPage[Any]:
    return OpenedPage("A page", ask, first)


@pytest.fixture
def asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked ahead is answered, or has failed, before the page is sent."""

    def ask_now(ask: Callable[[], object], _name: str) -> None:
        with contextlib.suppress(Exception):
            ask()

    monkeypatch.setattr(asking_ahead, "ask_now", ask_now)


async def program(scope: Any, receive: Any, send: Any) -> None:
    """The page of Streamlit's program, as an app."""
    await HTMLResponse(PROGRAM)(scope, receive, send)


def requested(app: PageRequests, *requests: tuple[str, Mapping[str, str]]) -> list[httpx.Response]:
    """The answers to requests, one after the other."""

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8501") as client:
            return [await client.get(path, headers=dict(headers)) for path, headers in requests]

    return asyncio.run(ask())


def test_only_pages_that_people_open_are_asked_for_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, passed_on, done = list[Mapping[str, str]](), list[str](), threading.Event()

    def ask(_source: Source, link: Mapping[str, str]) -> None:
        asked.append(link)
        done.set()

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        passed_on.append(scope["path"])

    monkeypatch.setattr(page_requests, "page_at", lambda path, _link: page_that(ask) if path == "/turns" else None)
    monkeypatch.setattr(page_requests, "source_of", lambda _link: AnySource())
    requests = PageRequests(app)

    def request(path: str, headers: list[tuple[bytes, bytes]], *, method: str = "GET", kind: str = "http") -> None:
        scope = {"type": kind, "method": method, "path": path, "query_string": b"find=a%20b&cohort=A&cohort=B"}
        asyncio.run(requests(scope | {"headers": headers}, None, None))  # type: ignore[arg-type]

    request("/turns", [])
    request("/turns", [(b"accept", b"image/avif,image/webp,*/*;q=0.8")])
    request(
        "/turns",
        [(b"accept", b"text/html,*/*;q=0.8"), (b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"iframe")],
    )
    request("/turns", [(b"sec-fetch-mode", b"no-cors"), (b"sec-fetch-dest", b"image")])
    request("/turns", NAVIGATION_HEADERS, method="HEAD")
    request("/turns", NAVIGATION_HEADERS, kind="websocket")
    request("/static/index.js", NAVIGATION_HEADERS)
    request("/turns", NAVIGATION_HEADERS)
    assert done.wait(BOUND_S)
    assert asked == [{"find": "a b", "cohort": "B"}]
    assert len(passed_on) == 8
    done.clear()
    request("/turns", [(b"accept", b"text/html,application/xhtml+xml")])
    # Nobody came for the first answer, which is still that of the page.
    assert requested(requests, (f"{FIRST_FIGURES}turns", {}))[0].status_code == 204


@pytest.mark.parametrize(("query", "to"), [("", "/"), ("?run=a&cohort=B", "/?run=a&cohort=B")])
def test_the_first_page_is_found_by_its_name(query: str, to: str) -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        pytest.fail("the request is not answered by Streamlit")

    (answer,) = requested(PageRequests(app), (f"/now{query}", NAVIGATION))
    assert answer.status_code == 307
    assert answer.headers["location"] == to


def test_what_fails_before_a_page_leaves_room_for_the_next(
    store: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    del store
    asked = threading.Semaphore(0)

    def fails(_source: Source, _link: Mapping[str, str]) -> None:
        asked.release()
        raise OSError("a disk that cannot be read")

    monkeypatch.setattr(page_requests, "page_at", lambda _path, _link: page_that(fails))
    requests = PageRequests(program)
    for _ in range(5):
        before = {thread.ident for thread in threading.enumerate()}
        requested(requests, ("/", NAVIGATION))
        assert asked.acquire(timeout=BOUND_S)
        for thread in threading.enumerate():
            if thread.ident not in before:
                thread.join(BOUND_S)
    # Why is said by the page itself.
    assert requested(requests, ("/", NAVIGATION), (f"{FIRST_FIGURES}now", {}))[1].status_code == 204
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/run", "/_stcore/health", "/static/index.js", "/favicon.png", "//", "/../now"])
def test_addresses_that_ask_otherwise_or_nothing(path: str) -> None:
    assert (page_at(path, {}) is not None) == (path == "//")


@pytest.mark.usefixtures("store", "asked_at_once")
def test_first_figures_are_given_once_to_whoever_requested_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = list[PageContext]()

    def first(answer: str, context: PageContext) -> list[str]:
        contexts.append(context)
        return [f"<p>{answer}</p>"] if answer else []

    page = page_that(lambda _source, link: link.get("cohort", ""), first)
    monkeypatch.setattr(page_requests, "page_at", lambda path, _link: page if path.strip("/") == "turns" else None)
    monkeypatch.setattr(page_requests, "source_of", lambda _link: AnySource())
    app = PageRequests(program)
    of_page, zone = f"{FIRST_FIGURES}turns", {ZONE_HEADER: "Asia/Kolkata"}
    before, _, another, found, again = requested(
        app,
        (f"{of_page}?cohort=A", zone),
        ("/turns?cohort=A", NAVIGATION),
        (f"{of_page}?cohort=B", zone),
        (f"{of_page}?cohort=A", zone),
        (f"{of_page}?cohort=A", zone),
    )
    assert [each.status_code for each in (before, another, found, again)] == [204, 204, 200, 204]
    assert "<p>A</p>" in found.text
    assert "<h1>A page</h1>" in found.text
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["cache-control"] == "no-store"
    assert [(each.link, each.zone) for each in contexts] == [({"cohort": "A"}, ZoneInfo("Asia/Kolkata"))]

    # A page without figures says so itself; UTC stands for a zone that does not exist.
    _, nothing, _, found = requested(
        app,
        ("/turns", NAVIGATION),
        (of_page, {}),
        ("/turns?cohort=A", NAVIGATION),
        (f"{of_page}?cohort=A", {ZONE_HEADER: "../../etc/passwd"}),
    )
    assert nothing.status_code == 204
    assert nothing.content == b""
    assert found.status_code == 200
    assert [each.zone for each in contexts[1:]] == [UTC] * 2


@pytest.fixture
def loopback_alone() -> Iterator[None]:
    config.set_option("server.allowedHosts", ["127.0.0.1", "localhost", "::1"])
    yield
    config.set_option("server.allowedHosts", [])


HERE, PUBLIC, FOREIGN = "127.0.0.1:8501", "dash.example", "attacker.example"


@pytest.mark.parametrize(
    ("host", "origin", "named", "answered"),
    [
        (HERE, None, True, True),
        ("localhost:8501", "http://localhost:8501", True, True),
        ("[::1]:8501", "http://[::1]:8501", True, True),
        (PUBLIC, f"https://{PUBLIC}", True, True),
        (f"{PUBLIC}:8443", f"https://{PUBLIC}:8443", True, True),
        (HERE, f"https://{PUBLIC}", True, True),  # a proxy that passes on the address behind it as Host
        (FOREIGN, f"http://{FOREIGN}", True, False),
        (f"{FOREIGN}:8501", None, True, False),
        (f"{PUBLIC}.{FOREIGN}", None, True, False),
        (HERE, f"http://{FOREIGN}", True, False),
        (PUBLIC, f"https://{FOREIGN}", True, False),
        (HERE, "null", True, False),
        (HERE, "http://[", True, False),
        ("", None, True, False),
        # Listening for the network without names: any, for a page of the same address.
        (PUBLIC, f"https://{PUBLIC}", False, True),
        (PUBLIC, f"https://{FOREIGN}", False, False),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_requests_are_answered_by_the_names_of_the_dashboard_alone(
    kind: str, host: str, origin: str | None, named: bool, answered: bool
) -> None:
    config.set_option("server.allowedHosts", ["127.0.0.1", "localhost", "::1", PUBLIC] if named else [])
    sent, passed_on = list[Any](), list[str]()

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        passed_on.append(scope["path"])

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    given = {"host": host} | ({} if origin is None else {"origin": origin})
    headers = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": kind, "method": "POST", "path": "/_stcore/stream", "query_string": b"", "headers": headers}
    try:
        asyncio.run(PageRequests(app)(scope, receive, send))
    finally:
        config.set_option("server.allowedHosts", [])
    assert passed_on == (["/_stcore/stream"] if answered else [])
    if not answered and kind == "http":
        assert sent[0]["status"] == 403
        assert b"--public-host NAME" in sent[1]["body"]
    elif not answered:
        assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.usefixtures("store", "asked_at_once", "loopback_alone")
def test_a_page_that_points_its_own_name_at_this_machine_reads_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_requests, "source_of", lambda _link: AnySource())
    page = page_that(lambda _source, _link: "the figures", lambda answer, _context: [answer])
    monkeypatch.setattr(page_requests, "page_at", lambda _path, _link: page)
    first = f"{FIRST_FIGURES}now"
    answers = requested(
        PageRequests(program),
        ("/", NAVIGATION),
        (first, {"host": "attacker.example:8501"}),
        (first, {"host": "127.0.0.1:8501"}),
    )
    assert [each.status_code for each in answers] == [200, 403, 200]
    assert "the figures" not in answers[0].text + answers[1].text
    assert "does not answer to the host name 'attacker.example:8501'" in answers[1].text


@pytest.mark.usefixtures("store", "asked_at_once")
def test_the_page_of_the_program_has_the_script_and_is_always_whole(tmp_path: Path) -> None:
    index = tmp_path / "index.html"
    index.write_text(PROGRAM)
    seen = list[dict[bytes, bytes]]()

    async def files(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"]))
        await FileResponse(index)(scope, receive, send)

    app = PageRequests(files)
    (first,) = requested(app, ("/cohorts", NAVIGATION))
    script = Path(page_requests.__file__).with_name("script") / "first_figures.js"
    with_script = PROGRAM.replace("<head>", f"<head><script>{script.read_text()}</script>")
    assert first.text == with_script.replace("<title>Streamlit<", "<title>Cohorts · voiceprobe<")
    assert int(first.headers["content-length"]) == len(first.content)
    # A browser that has the file keeps asking for all of it, as the script may be another one.
    assert "etag" not in first.headers
    assert "last-modified" not in first.headers
    given = {"if-none-match": '"x"', "if-modified-since": "Thu, 01 Jan 2026 00:00:00 GMT", "range": "bytes=0-3"}
    (again,) = requested(app, ("/cohorts", {**NAVIGATION, **given, "accept-encoding": "gzip"}))
    assert again.status_code == 200
    assert again.text == first.text
    assert not {name.encode() for name in (*given, "accept-encoding")} & set(seen[-1])
    # What no person opens is passed on as it is.
    (image,) = requested(app, ("/cohorts", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}))
    assert image.text == PROGRAM
    assert "etag" in image.headers


PAGES = [
    ("/", {}),
    ("/", {"cohort": "A", "window": "5m"}),
    ("/turns", {}),
    ("/cohorts", {}),
    ("/objectives", {}),
    ("/cache", {}),
    ("/instrument", {}),
    ("/", {"trace": "", "turn": "0"}),
    ("/rollout", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "link"), PAGES, ids=str)
def test_first_figures_are_those_that_the_page_draws(store: Path, path: str, link: dict[str, str]) -> None:
    newest_unix_ns = time.time_ns() - 3_600_000_000_000
    if path == "/rollout":
        fill_rollout(store, Rollout(), time.time_ns())
    else:
        fill(store, Scene(turns=600, newest_unix_ns=newest_unix_ns, ended=True))
    name = path.strip("/") or "now"
    if "trace" in link:
        with StoreReader(store) as reader:
            (turn,) = reader.turns(Filter(), 1, source="client")
        name, link = "turn", link | {"trace": turn.trace_id, "turn": str(turn.turn_index)}
    page = page_at(path, link)
    assert page is not None
    context = PageContext(link, ZoneInfo("UTC"), time.time_ns())
    early = _shown(page.first_html(page.ask(source_of(link), link), context))
    drawn = _shown(html_of(opened(name, **link)))
    assert re.search(r"\d", early)
    assert "vp-first-end" in html_of(opened(name, **link)), "the browser learns that the page has drawn them"
    assert [word for word in early.split() if word not in drawn] == []


# On the page a button that opens the details, which is no HTML of ours.
_TRUST_CHIP = r'<span class="vp-chip \w+">[^<]*</span></div>'


def _shown(html: str) -> str:
    """What a reader sees of it, and its ages taken away: time passes between two looks."""
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(_TRUST_CHIP, "", html)))
    return re.sub(r"\d+ (s|min|h) ago", "ago", text)


class Elements(HTMLParser):
    """The elements of a piece of HTML, and the names of their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names, self.attributes = set[str](), set[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/turns", "/cohorts", "/cache", "/instrument", "/objectives", "/runs"])
def test_names_from_outside_are_text_in_first_figures(store: Path, path: str) -> None:
    hostile = '"><img src=x onerror=alert(1)>'
    cohorts = (f"A{hostile}", f"B{hostile}")
    declared = (("target", hostile), ("corpus", hostile))
    scene = Scene(300, time.time_ns(), run_id=f"run{hostile}", cohorts=cohorts, declared=declared, ended=True)
    fill(store, scene)
    page = page_at(path, {})
    assert page is not None
    html = page.first_html(page.ask(source_of({}), {}), PageContext({}, ZoneInfo("UTC"), time.time_ns()))
    found = Elements(html)
    assert found.names
    assert not found.names & {"img", "script", "iframe", "object", "svg"}
    assert not [name for name in found.attributes if name.startswith("on")]
