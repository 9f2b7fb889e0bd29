"""The browser that these tests look at pages with, and the dashboard over one store that most of them share."""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

from telemetry.model.turns import Turn
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.browser.dashboard_process import Dashboard, start_dashboard
from tests.nightly import examples
from tests.programs import needed
from tests.unit.dashboard.rollout_scenes import Rollout, fill_rollout
from tests.unit.dashboard.scenes import MS, S, Scene, fill, run_span, turns_of
from tests.unit.telemetry.store.test_store_turn_pages import keep_audio

BOUND_MS = 60_000  # only ends a hopeless wait
SHOTS = os.environ.get("VOICEPROBE_SHOTS")  # where to keep screenshots for a person to look at
CHROMIUM_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

_SERVER_BELOW_A_PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+(?:/[^/?]+)+/_stcore/(?:health|host-config)")
_CLICKS = 10
_OPENED_MS = 5_000


def choose(field: Locator, option: str) -> None:
    """Choose an option of a list; a click that a page being drawn does not take is repeated, as a person repeats it."""
    choice = field.page.get_by_role("option", name=option, exact=True)
    for _ in range(_CLICKS):
        field.click()
        try:
            expect(choice).to_be_visible(timeout=_OPENED_MS)
        except AssertionError:
            continue
        choice.click()
        return
    raise AssertionError(f"the list does not open, or has no {option!r}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = needed("chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


@dataclass(frozen=True)
class Viewer:
    """A person at a browser, in whose pages no script may fail and nothing may be asked of another machine."""

    browser: Browser
    pages: list[Page]
    complaints: list[str]

    def opens(self, url: str, theme: str = "light", width: int = 1280, height: int = 900, zone: str = "UTC") -> Page:
        """A page, loaded."""
        scheme = "dark" if theme == "dark" else "light"
        size = {"width": width, "height": height}
        page = self.browser.new_page(viewport=size, color_scheme=scheme, timezone_id=zone)  # pyright: ignore[reportArgumentType]
        self.pages.append(page)
        complain = self.complaints.append
        page.on("console", lambda output: complain(f"{output.text} {output.location}") if _is_fault(output) else None)
        page.on("pageerror", lambda error: complain(str(error)))
        page.on("request", lambda asked: complain(asked.url) if _is_outside(asked.url) else None)
        page.set_default_timeout(BOUND_MS)
        page.goto(url)
        return page


def _is_fault(output: ConsoleMessage) -> bool:
    """Streamlit looks for its server below the address of a page, before it finds it at the root."""
    is_search = "404" in output.text and _SERVER_BELOW_A_PAGE.fullmatch(output.location["url"]) is not None
    return output.type == "error" and not is_search


def _is_outside(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:"))


@pytest.fixture
def viewer(browser: Browser) -> Iterator[Viewer]:
    opened = Viewer(browser, [], [])
    yield opened
    for page in opened.pages:
        page.close()
    assert opened.complaints == []


NOW: Final = time.time_ns()
# The run ends at a quarter to six in the evening in UTC, which is after eleven in Kolkata.
ENDS_UNIX_NS = int(datetime(2026, 11, 20, 17, 45, tzinfo=UTC).timestamp()) * S
LATE = Scene(900, ENDS_UNIX_NS, run_id="run-late", ended=True, cohorts=(), service=False, invalid_share=0.0)
# By day three times what a page draws as single turns: each thousand takes a third of a second to store.
MANY = Scene(examples(6_000, 20_000), NOW - 9_000 * S, run_id="run-many", ended=True, spacing_ns=S // 8)
ONE = Scene(1, NOW - 4_000 * S, run_id="run-one", seed=2, ended=True)
FEW = Scene(60, NOW - 3_600 * S, run_id="run-few", seed=5)
FULL = Scene(900, NOW - 20 * S, run_id="run-full", ended=True)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every kind; the newest but one is the full one, whose second turn has its audio, and the newest is that
    of a rollout that was rolled back."""
    store = tmp_path_factory.mktemp("full") / "store"
    with StoreWriter(store) as writer:
        turns = [_late(turn) if place >= LATE.turns // 2 else turn for place, turn in enumerate(turns_of(LATE))]
        writer.append(Batch(turns=turns, spans=[run_span(LATE, "start"), run_span(LATE, "end")]))
    for scene in (MANY, ONE, FEW):
        fill(store, scene)
    keep_audio(store, fill(store, FULL)[1])
    return fill_rollout(store, Rollout(slower_ms=180, turns=2800, looks=5), NOW - 60 * S)


def _late(turn: Turn) -> Turn:
    moved = ("llm_first_token", "llm_first_sentence", "llm_last_token", "tts_first_chunk", "first_audio", "reply_end")
    names = [f"{name}_perf_ns" for name in moved]
    later = {name: value + 700 * MS for name in names if (value := getattr(turn, name)) is not None}
    return msgspec.structs.replace(turn, **later)


@pytest.fixture(scope="session")
def full(store: Path) -> Iterator[Dashboard]:
    """A dashboard over that store."""
    dashboard = start_dashboard("--store", str(store))
    yield dashboard
    dashboard.end()
