"""First paint and refresh of each page of the dashboard, in a real Chromium, while turns come.

A real sidecar writes to a filled store, to which turns of its largest run come all the while, and a browser opens each
page of a real dashboard on it, several times. Printed are seconds until a page shows its first figures, until all of it
is there, and until a refresh is, each time the middle and the slowest one. The browser has the dashboard's priority,
and has been there before: it keeps the scripts, and what it has compiled of them.
"""

import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import BrowserContext, Page, sync_playwright

from dashboard.launch import POLITENESS
from telemetry.model import semconv
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.benchmarks.bench.paired import Report
from tests.benchmarks.bench.sending import HEADERS, LARGE_RUN, one_turn
from tests.browser.conftest import CHROMIUM_ARGUMENTS
from tests.fixtures_sidecar import ROOT, running_sidecar
from tests.goldens import many
from tests.goldens.exports import announced, traces_request
from tests.programs import needed

PAGES: Final = {
    "now": "",
    "now, last 5 min": "?window=5m",
    "now, one noise": "?noise=babble",
    "turns": "turns",
    "turn": "?trace={trace}&turn=0",
    "cohorts": "cohorts",
    "objectives": "objectives",
    "runs": "runs",
    "cache": "cache",
    "instrument": "instrument",
}
_SEND_EVERY_S: Final = 0.2
_BEFORE_NOW_NS: Final = 60 * 1_000_000_000
# A page is complete when its script has ended and nothing has changed for so long.
_QUIET_MS: Final = 500.0
_LONGEST_S: Final = 300.0
# A browser keeps what it has compiled of a script when it has run it more than once, and a while after that.
_VISITS_BEFORE: Final = 3
_VISIT_S: Final = 3.0
# What a page shows besides its title: a verdict, figures with their names, or the head of a part.
# What brings figures is longer than what a look whether the viewer has switched the theme brings.
_RECORDER: Final = """
window.seen = {sent: [], came: [], changed: 0, figures: null};
const Socket = window.WebSocket;
window.WebSocket = class extends Socket {
  constructor(...given) {
    super(...given);
    this.addEventListener('message', (event) => {
      if (event.data.byteLength > 4000) window.seen.came.push(performance.now());
    });
  }
  send(data) { window.seen.sent.push(performance.now()); super.send(data); }
};
new MutationObserver(() => {
  window.seen.changed = performance.now();
  if (window.seen.figures === null && document.querySelector('.vp-lines, .vp-note, .vp-head, .vp table'))
    window.seen.figures = window.seen.changed;
}).observe(document, {childList: true, subtree: true, characterData: true});
"""
_COMPLETE: Final = """(after) => window.seen.changed > after && performance.now() - window.seen.changed > QUIET
  && document.querySelector('[data-testid="stApp"]:not([data-test-script-state="running"])') !== null""".replace(
    "QUIET", str(_QUIET_MS)
)
# When the page asked for the first figures that came after a moment; null while none have come.
_ASKED: Final = """(after) => {
  const came = window.seen.came.find((at) => at > after);
  return came ? window.seen.sent.filter((at) => at < came).at(-1) ?? null : null;
}"""


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Options: the pages to open, the sizes of stores, the repetitions, and the refreshes to wait for."""

    names: tuple[str, ...]
    turns: tuple[int, ...]
    opens: int
    refreshes: int
    folder: Path | None


def bench_pages(options: PageOptions, report: Report) -> None:
    """Fill a store of each size, and measure every page on it. Raises OutputError for a file."""
    by_page: dict[str, dict[str, list[str]]] = {}
    for size in options.turns:
        report.say(f"{size:,} turns: filling, then opening each page {options.opens} times")
        with tempfile.TemporaryDirectory(prefix="voiceprobe-pages-", dir=options.folder) as made:
            many.fill(Path(made) / "store", size, time.time_ns() - _BEFORE_NOW_NS)
            for page, times in measured(Path(made), options).items():
                by_page.setdefault(page, {})[f"{size:,}"] = [_middle(milliseconds) for milliseconds in times]
    headings = [
        f"{what}, {size:,} turns" for size in options.turns for what in ("first figures", "all of it", "refresh")
    ]
    rows = [[page, *(cell for cells in sizes.values() for cell in cells)] for page, sizes in by_page.items()]
    report.table("Seconds, the middle and the slowest", ["page", *headings], rows)
    report.write(pages=by_page)


def measured(folder: Path, options: PageOptions) -> dict[str, tuple[list[float], list[float], list[float]]]:
    """Measure for each page, in seconds: first figures, the whole page, and refreshes."""
    store = folder / "store"
    with StoreReader(store) as reader:
        (turn,) = reader.turns(Filter(run_id=LARGE_RUN), 1, source="client")
    polite = folder / "browser"
    program = needed("chromium", "chromium-browser", "google-chrome")
    polite.write_text(f'#!/bin/sh\nexec nice -n {POLITENESS} "{program}" "$@"\n')
    polite.chmod(0o700)
    with (
        _fed(store),
        _dashboard(store) as url,
        sync_playwright() as playwright,
        playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=str(polite),
            args=list(CHROMIUM_ARGUMENTS),
            viewport={"width": 1280, "height": 900},
        ) as context,
    ):
        for _ in range(_VISITS_BEFORE):
            visit = context.new_page()
            visit.goto(url, wait_until="networkidle")
            time.sleep(_VISIT_S)
            visit.close()
        return {
            name: _times(context, f"{url}/{PAGES[name].format(trace=turn.trace_id)}", options) for name in options.names
        }


def _times(context: BrowserContext, address: str, options: PageOptions) -> tuple[list[float], list[float], list[float]]:
    """Open a page as often as asked, and watch it refresh the last time. Raises RuntimeError for one with an error."""
    figures: list[float] = []
    whole: list[float] = []
    seen: list[float] = []
    for number in range(options.opens):
        page = context.new_page()
        page.add_init_script(_RECORDER)
        page.goto(address, wait_until="commit")
        whole.append(_complete(page, 0.0))
        figures.append((page.evaluate("window.seen.figures") or 1000 * whole[-1]) / 1000)
        wrong = page.locator('[data-testid="stException"], .vp-empty')
        if wrong.count():
            raise RuntimeError(f"{page.url} shows no figures: {wrong.first.inner_text()[:300]}")
        if number == options.opens - 1:
            seen = list(_refreshes(page, options.refreshes, within_s=8.0 + 12.0 * options.refreshes))
        page.close()
    return figures, whole, seen


def _refreshes(page: Page, count: int, within_s: float) -> Generator[float]:
    """Seconds of the next refreshes that bring figures, as many as come within a time."""
    until_s, after_ms = time.monotonic() + within_s, page.evaluate("performance.now()")
    while count and time.monotonic() < until_s:
        if (asked_ms := page.evaluate(_ASKED, after_ms)) is None:
            page.wait_for_timeout(100)
            continue
        yield _complete(page, asked_ms)
        count, after_ms = count - 1, page.evaluate("performance.now()")


def _complete(page: Page, asked_ms: float) -> float:
    """Seconds from a moment of the page's clock until nothing changes any more."""
    page.wait_for_function(_COMPLETE, arg=asked_ms, timeout=_LONGEST_S * 1000)
    return (page.evaluate("window.seen.changed") - asked_ms) / 1000


def _middle(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f}, {max(seconds):.2f}" if seconds else "none by itself"


@contextmanager
def _fed(store: Path) -> Generator[None]:
    """A sidecar on a store, with turns of its largest run that begin now."""
    ended = threading.Event()
    with running_sidecar(store) as sidecar:

        def send() -> None:
            with httpx.Client(timeout=60) as client:
                client.post(f"{sidecar.http}/v1/traces", content=_begun(), headers=HEADERS).raise_for_status()
                while not ended.wait(_SEND_EVERY_S):
                    body, _ = one_turn(time.time_ns())
                    client.post(f"{sidecar.http}/v1/traces", content=body, headers=HEADERS).raise_for_status()

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield
        finally:
            ended.set()
            sending.join()


def _begun() -> bytes:
    """A request in which the largest run begins again: of a run that goes on pages refresh by themselves."""
    spans = list(announced(many.runs_of(300)[-1], "start"))
    for span in spans:
        span.trace_id, span.span_id = secrets.token_bytes(16), secrets.token_bytes(8)
        span.start_time_unix_nano = span.end_time_unix_nano = time.time_ns()
    return traces_request("voiceprobe", semconv.SCOPE, spans)


@contextmanager
def _dashboard(store: Path) -> Generator[str]:
    """A dashboard on a store, once it is ready: its address."""
    command = [sys.executable, "-m", "dashboard", "--store", str(store), "--port", "0", "--headless"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()
