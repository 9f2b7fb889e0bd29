"""The dashboard in a real Chromium over real stores: what a person sees, clicks and sends to a colleague."""

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from telemetry.model.turns import Turn
from telemetry.store.writer import StoreWriter
from tests import asking
from tests.browser.conftest import choose
from tests.browser.dashboard_process import BOUND_S, Dashboard, start_dashboard
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, turns_request
from tests.nightly import nightly_after
from tests.unit.dashboard.scenes import S, Scene, turns_of

pytestmark = pytest.mark.browser

BOUND_MS = BOUND_S * 1000
TOOL_WIDTH, TOOL_HEIGHT = 1280, 800
SHOTS = os.environ.get("VOICEPROBE_SHOTS")  # where to keep screenshots for a person to look at


def start(store: Path) -> Dashboard:
    return start_dashboard("--store", str(store))


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Path], Dashboard]]:
    running: list[Dashboard] = []

    def begin(store: Path) -> Dashboard:
        running.append(start(store))
        return running[-1]

    yield begin
    for each in running:
        each.end()


@dataclass
class Seen:
    """What the browser complained of, and where it went."""

    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def open_page(browser: Browser, seen: Seen) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def opened(url: str, *, theme: str = "light", width: int = TOOL_WIDTH, height: int = TOOL_HEIGHT) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
        )
        page.on("console", lambda output: seen.errors.append(output.text) if output.type == "error" else None)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda asked: seen.outside.append(asked.url) if _is_outside(asked.url) else None)
        pages.append(page)
        page.set_default_timeout(BOUND_MS)
        page.goto(url)
        return page

    yield opened
    for page in pages:
        page.close()
    assert seen.errors == []
    assert seen.outside == []


def _is_outside(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:"))


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.wait_for_timeout(700)  # for the eye only: lets the charts come to rest
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def painted(page: Page, *, has_picture: bool = True) -> None:
    """Wait until tiles, tables and the chart are there; too few turns have none."""
    expect(page.locator(".vp-tile")).to_have_count(3, timeout=BOUND_MS)
    if has_picture:
        expect(page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first).to_be_visible(timeout=BOUND_MS)
    expect(page.get_by_text("Slowest turns")).to_be_attached(timeout=BOUND_MS)


def fits(page: Page, *texts: str) -> None:
    """Nothing to scroll to sideways, and the parts stand inside the window without scrolling."""
    main = page.get_by_test_id("stMain")
    assert main.evaluate("e => e.scrollWidth <= e.clientWidth")
    size = page.viewport_size
    assert size is not None
    for text in texts:
        box = page.get_by_text(text, exact=False).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= size["height"]
        assert box["x"] + box["width"] <= size["width"]


@pytest.mark.parametrize("theme", nightly_after(1, ["light", "dark"]))
def test_the_verdict_and_what_it_stands_on_fit_one_screen(
    full: Dashboard, open_page: Callable[..., Page], theme: str
) -> None:
    page = open_page(full.url, theme=theme)
    painted(page)
    fits(page, "Missing the objective", "Voice to voice p95", "Voice to voice over time", "Stages against objectives")
    shot(page, f"now-full-{theme}-1280x800")


@pytest.mark.nightly
def test_on_a_larger_screen_what_explains_a_miss_is_visible_too(
    full: Dashboard, open_page: Callable[..., Page]
) -> None:
    page = open_page(full.url, width=1440, height=900)
    painted(page)
    fits(page, "Where a turn's time goes", "Which dimension explains it")
    shot(page, "now-full-light-1440x900")


@pytest.mark.nightly
def test_a_wide_screen_is_used(full: Dashboard, open_page: Callable[..., Page]) -> None:
    page = open_page(full.url, width=1920, height=1080)
    painted(page)
    fits(page, "Where a turn's time goes", "Which dimension explains it")
    shot(page, "now-full-light-1920x1080")


def test_a_click_on_a_slow_turn_opens_its_waterfall(full: Dashboard, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{full.url}/?run=run-full&cohort=B")
    painted(page)
    row = page.locator(".vp-slow a").first
    slowest_ms = re.sub(r"[^0-9]", "", row.inner_text())
    row.click()
    expect(page.get_by_text("One turn on one clock")).to_be_visible(timeout=BOUND_MS)
    expect(page.locator(".player .picture svg")).to_be_visible(timeout=BOUND_MS)
    assert slowest_ms in re.sub(r"[^0-9]", "", page.locator(".vp-lines").first.inner_text())
    expect(page.get_by_text("Was it measured well?")).to_be_visible()
    shot(page, "turn-light-1280x800")
    page.get_by_text("back to the run").click()
    painted(page)
    assert "cohort=B" in page.url


@pytest.mark.nightly
def test_what_can_be_trusted_opens_by_keyboard(full: Dashboard, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{full.url}/?run=run-full")
    painted(page)
    details = page.locator(".vp-details")
    expect(details.filter(visible=True)).to_have_count(0)
    chip = page.locator('[class*="st-key-trust-"] button')
    chip.focus()
    page.keyboard.press("Enter")
    expect(details).to_be_visible(timeout=BOUND_MS)
    for fact in ("protocol", "corpus", "telemetry", "heard vs reported", "generator", "calibration"):
        expect(details).to_contain_text(fact)
    page.keyboard.press("Escape")
    expect(details.filter(visible=True)).to_have_count(0)
    expect(chip).to_be_focused()


@pytest.mark.nightly
def test_a_turn_reads_in_the_dark(full: Dashboard, open_page: Callable[..., Page]) -> None:
    turn = turns_of(Scene(turns=900, newest_unix_ns=0, run_id="run-full"))[10]
    page = open_page(f"{full.url}/?trace={turn.trace_id}&turn={turn.turn_index}", theme="dark")
    expect(page.get_by_role("heading", name="Moments")).to_be_visible(timeout=BOUND_MS)
    expect(page.locator(".player .picture svg")).to_be_visible(timeout=BOUND_MS)
    shot(page, "turn-dark-1280x800")


def test_a_filter_survives_a_reload_by_its_link(full: Dashboard, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{full.url}/?run=run-full")
    painted(page)
    choose(page.get_by_test_id("stSelectbox").nth(2).locator("input"), "B")
    page.wait_for_url(re.compile("cohort=B"), timeout=BOUND_MS)
    expect(page.locator(".vp-lines")).to_contain_text("448 turns", timeout=BOUND_MS)
    page.reload()
    expect(page.locator(".vp-lines")).to_contain_text("448 turns", timeout=BOUND_MS)
    assert "cohort=B" in page.url
    assert "run=run-full" in page.url
    other = open_page(page.url)
    expect(other.locator(".vp-lines")).to_contain_text("448 turns", timeout=BOUND_MS)


@pytest.mark.nightly
def test_one_turn_is_too_few_for_a_verdict(full: Dashboard, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{full.url}/?run=run-one")
    painted(page, has_picture=False)
    expect(page.get_by_text("too few turns for a p95")).to_be_visible()
    assert page.get_by_test_id("stVegaLiteChart").count() == 0
    expect(page.locator(".vp-tile").first).to_contain_text("too few (1)")
    expect(page.locator(".vp-verdict")).to_contain_text("Undecided: ")
    assert page.get_by_text("✓ met").count() == 0
    assert page.get_by_text("✕ missed").count() == 0
    shot(page, "now-one-turn")


@pytest.mark.nightly
def test_a_stale_run_says_that_it_has_not_ended(full: Dashboard, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{full.url}/?run=run-few")
    painted(page)
    expect(page.locator(".vp-lines")).to_contain_text("stale")
    expect(page.locator(".vp-lines")).to_contain_text("1 h ago; the run has not said that it ended")
    # Its process never announced an end: the figures claim nothing.
    expect(page.locator(".vp-verdict")).to_contain_text("Not judged: 1 of 1 generator process was lost")
    shot(page, "now-stale")


@pytest.mark.nightly
def test_many_turns_of_an_ended_run(full: Dashboard, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{full.url}/?run=run-many")
    painted(page)
    expect(page.locator(".vp-lines")).to_contain_text("20,000 turns")
    expect(page.locator(".vp-lines")).to_contain_text("ended")
    fits(page, "Stages against objectives")
    shot(page, "now-many-turns")


def _send(sidecar: SidecarProcess, turns: list[Turn]) -> None:
    body = turns_request(turns).SerializeToString()
    headers = {"content-type": "application/x-protobuf"}
    assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=headers).status_code == 200


def test_a_missing_store_comes_to_life_by_itself_and_follows_the_run(
    tmp_path: Path, serve: Callable[[Path], Dashboard], open_page: Callable[..., Page]
) -> None:
    page = open_page(serve(tmp_path / "store").url)
    expect(page.get_by_text("The store cannot be read")).to_be_visible(timeout=BOUND_MS)
    shot(page, "now-missing-store")
    with running_sidecar(tmp_path / "store") as sidecar:
        expect(page.get_by_text("No turns yet")).to_be_visible(timeout=BOUND_MS)
        shot(page, "now-empty")
        # The first half ends now, and stays recent for as long as a slow machine takes to paint.
        turns = turns_of(Scene(turns=120, newest_unix_ns=time.time_ns() + 60 * S))
        _send(sidecar, turns[:60])
        expect(page.locator(".vp-lines")).to_contain_text("60 turns", timeout=BOUND_MS)
        painted(page)
        expect(page.locator(".vp-lines")).to_contain_text("live")
        # The chart that stands is the chart that stays: a refresh exchanges its rows and nothing else.
        page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first.evaluate("e => { e.dataset.kept = 'yes' }")
        # The rows of its table come when it is opened, and stay over a refresh.
        table = page.locator(".vp-chart-table table")
        expect(table).to_have_count(0)
        page.locator('[data-testid="stExpander"] summary').first.press("Enter")
        expect(table).to_be_visible(timeout=BOUND_MS)
        _send(sidecar, turns[60:])
        expect(page.locator(".vp-lines")).to_contain_text("120 turns", timeout=BOUND_MS)
        expect(table).to_be_visible()
        chart = page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first
        assert chart.evaluate("e => e.dataset.kept") == "yes"
        shot(page, "now-live")


def test_the_dashboard_ends_on_sigterm_without_leaving_children(tmp_path: Path) -> None:
    StoreWriter(tmp_path / "store").close()
    start(tmp_path / "store").end()
