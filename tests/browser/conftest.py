"""The browser that these tests look at pages with, and the dashboard over one store that most of them share."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.browser.dashboard_process import Dashboard, start_dashboard
from tests.programs import needed
from tests.unit.dashboard.scenes import MS, S, Scene, fill, run_span, turns_of
from tests.unit.telemetry.store.test_store_turn_pages import keep_audio

BOUND_MS = 60_000  # only ends a hopeless wait
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


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a desktop's size, in which no script may fail."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.set_default_timeout(BOUND_MS)
    yield opened
    opened.close()
    assert errors == []


# The run ends at a quarter to six in the evening in UTC, which is after eleven in Kolkata.
ENDS_UNIX_NS = int(datetime(2026, 11, 20, 17, 45, tzinfo=UTC).timestamp()) * S
_LATE_TURNS = 900


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard over runs of every kind in one store; the newest is the full one, whose second turn has its audio."""
    store = tmp_path_factory.mktemp("full") / "store"
    now = time.time_ns()
    late_run(store)
    fill(store, Scene(turns=20_000, newest_unix_ns=now - 9_000 * S, run_id="run-many", ended=True, spacing_ns=S // 8))
    fill(store, Scene(turns=1, newest_unix_ns=now - 4_000 * S, run_id="run-one", seed=2, ended=True))
    fill(store, Scene(turns=60, newest_unix_ns=now - 3_600 * S, run_id="run-few", seed=5))
    clients = fill(store, Scene(turns=900, newest_unix_ns=now - 20 * S, run_id="run-full", ended=True))
    keep_audio(store, clients[1])
    dashboard = start_dashboard("--store", str(store))
    yield dashboard
    dashboard.end()


def late_run(store: Path) -> None:
    """Write a run that ended long ago, of which the second half answers late."""
    scene = Scene(
        turns=_LATE_TURNS,
        run_id="run-late",
        newest_unix_ns=ENDS_UNIX_NS,
        ended=True,
        cohorts=(),
        service=False,
        invalid_share=0.0,
    )
    late = ("llm_first_token", "llm_first_sentence", "llm_last_token", "tts_first_chunk", "first_audio", "reply_end")
    turns = [
        turn
        if place < _LATE_TURNS // 2
        else msgspec.structs.replace(
            turn,
            **{
                f"{name}_perf_ns": value + 700 * MS
                for name in late
                if (value := getattr(turn, f"{name}_perf_ns")) is not None
            },
        )
        for place, turn in enumerate(turns_of(scene))
    ]
    with StoreWriter(store) as writer:
        writer.append(Batch(turns=turns, spans=[run_span(scene, "start"), run_span(scene, "end")]))
