"""When a page of the dashboard was there, as a real browser saw it: the messages to and from the server and the last
change of the document, on the page's own clock."""

import base64
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf.message import DecodeError
from playwright.sync_api import BrowserContext, Page
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

# A page on which nothing has changed for so long is complete.
_QUIET_MS: Final = 400.0
_LONGEST_S: Final = 300.0
# A look at what a page has recorded takes time of the page's own thread: it is short, and taken rarely; all of the
# record is fetched when nothing has come or changed for a while, or after so long.
_LOOK_MS: Final = 100.0
_AT_LATEST_S: Final = 2.0
# A look whether the viewer has switched the theme brings less, and is no refresh.
_FEWEST_BYTES: Final = 4_000
# The message that ends a script's run is short; what is longer brings figures.
_LONGEST_END_BYTES: Final = 400
# What a page shows beside its title: a verdict, figures with their names, or the head of a part.
_FIGURES: Final = ".vp-lines, .vp-note, .vp-head, .vp table"
_RECORDER: Final = """
(() => {
  window.seen = {sent: [], received: [], changed: [], figures: null};
  const Socket = window.WebSocket;
  window.WebSocket = class extends Socket {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', (event) => {
        const size = event.data.byteLength, at = performance.now();
        let content = null;
        if (size < LONGEST) content = btoa(String.fromCharCode(...new Uint8Array(event.data)));
        window.seen.received.push([at, size, content]);
      });
    }
    send(data) { window.seen.sent.push(performance.now()); super.send(data); }
  };
  new MutationObserver(() => {
    window.seen.changed.push(performance.now());
    if (window.seen.figures === null && document.querySelector(FIGURES)) window.seen.figures = performance.now();
  }).observe(document, {childList: true, subtree: true, characterData: true});
})()
""".replace("LONGEST", str(_LONGEST_END_BYTES)).replace("FIGURES", repr(_FIGURES))
_SENT_AFTER: Final = "(after) => window.seen.sent.find((at) => at > after) ?? null"
_QUIET_SINCE: Final = """() => performance.now() - Math.max(
  window.seen.changed.at(-1) ?? 0, window.seen.sent.at(-1) ?? 0, (window.seen.received.at(-1) ?? [0])[0])"""


@dataclass(frozen=True, slots=True)
class PageTimes:
    """Seconds from the request (of the page, or of a refresh) to the last figure from the server and to the last change
    of the document; `received_bytes` is what the server sent. `figures_s` is until a page that opens shows its first
    figures."""

    answered_s: float
    shown_s: float
    received_bytes: int
    figures_s: float | None = None


def open_page(context: BrowserContext, url: str) -> tuple[Page, PageTimes]:
    """Open a page in a tab of its own; its times are counted from the navigation."""
    page = context.new_page()
    page.add_init_script(_RECORDER)
    page.goto(url, wait_until="commit")
    times = _when_complete(page, 0.0, own_ms=1_000.0)
    figures_ms = page.evaluate("window.seen.figures")
    return page, replace(times, figures_s=None if figures_ms is None else figures_ms / 1000)


def refreshes(page: Page, count: int, within_s: float) -> Iterator[PageTimes]:
    """The next refreshes that a page asks for by itself, as many as come within a time."""
    until_s = time.monotonic() + within_s
    last_ms = page.evaluate("performance.now()")
    found = 0
    while found < count and time.monotonic() < until_s:
        while (sent_ms := page.evaluate(_SENT_AFTER, last_ms)) is None:
            if time.monotonic() > until_s:
                return
            page.wait_for_timeout(_LOOK_MS)
        times = _when_complete(page, sent_ms, own_ms=0.0)
        if times.received_bytes >= _FEWEST_BYTES:
            found += 1
            yield times
        last_ms = sent_ms + times.answered_s * 1000


def _when_complete(page: Page, since_ms: float, own_ms: float) -> PageTimes:
    """What came of the request at a moment: until the script's run has ended and nothing changes, or the page asks for
    the next one (what it asks for within `own_ms` of that end still belongs to this one)."""
    until_s = time.monotonic() + _LONGEST_S
    while time.monotonic() < until_s:
        _wait_for_quiet(page, max(_QUIET_MS, own_ms))
        seen: dict[str, Any] = page.evaluate("({...window.seen, now: performance.now()})")
        ended = [at for at, _, content in seen["received"] if at > since_ms and _is_end(content)]
        if not ended:
            continue
        asked_again = [at for at in seen["sent"] if at > max(since_ms, ended[0] + own_ms)]
        end_ms = min(asked_again, default=seen["now"])
        answered_ms = max(at for at in ended if at <= end_ms)
        shown_ms = max([answered_ms, *(at for at in seen["changed"] if since_ms < at <= end_ms)])
        if asked_again or end_ms - shown_ms > max(_QUIET_MS, own_ms):
            size = sum(size for at, size, _ in seen["received"] if since_ms < at <= end_ms)
            return PageTimes((answered_ms - since_ms) / 1000, (shown_ms - since_ms) / 1000, size)
    raise TimeoutError(f"{page.url} was not complete within {_LONGEST_S:g} s")


def _wait_for_quiet(page: Page, quiet_ms: float) -> None:
    """Until nothing has come or changed for a while, or until it is time to look at all of it."""
    until_s = time.monotonic() + _AT_LATEST_S
    while time.monotonic() < until_s:
        page.wait_for_timeout(_LOOK_MS)
        if page.evaluate(_QUIET_SINCE) > quiet_ms:
            return


def _is_end(content: str | None) -> bool:
    if content is None:
        return False
    message = ForwardMsg()
    try:
        message.ParseFromString(base64.b64decode(content))
    except DecodeError:
        return False
    return message.WhichOneof("type") == "script_finished"
