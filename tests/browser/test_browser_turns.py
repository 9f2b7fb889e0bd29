"""The Turns page and one turn in a real Chromium: a slow turn opens, a filter survives a reload, the playhead moves."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.unit.dashboard.scenes import S, Scene, fill
from tests.unit.telemetry.store.test_store_turn_pages import keep_audio

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BOUND_MS = 240_000
NEWEST = 1_800_000_000 * S


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("store")
    clients = fill(store, Scene(60, NEWEST, ended=True))
    # For a test's life: the scene lies in the future of most clocks, and recordings are kept from then on.
    keep_audio(store, clients[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "dashboard", "--store", str(store), "--port", "0", "--headless"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["url"]
    process.terminate()
    process.wait(60)
    process.stdout.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.set_default_timeout(BOUND_MS)
    yield opened
    opened.close()
    assert errors == []


def test_a_click_on_a_slow_turn_opens_its_waterfall(page: Page, url: str) -> None:
    page.goto(f"{url}/turns", timeout=BOUND_MS)
    rows = page.locator(".vp-turns tbody tr")
    expect(rows).to_have_count(25, timeout=BOUND_MS)
    slowest = rows.first.locator("a").inner_text().removesuffix(" →")
    rows.first.locator("a").click()
    expect(page.get_by_role("heading", name="Turn", exact=True)).to_be_visible(timeout=BOUND_MS)
    expect(page.locator(".vp-facts").first).to_contain_text(slowest, timeout=BOUND_MS)
    expect(page.get_by_test_id("stVegaLiteChart")).to_be_visible(timeout=BOUND_MS)


def test_a_search_is_in_the_link_and_survives_a_reload(page: Page, url: str) -> None:
    page.goto(f"{url}/turns", timeout=BOUND_MS)
    find = page.get_by_label("Find")
    expect(find).to_be_visible(timeout=BOUND_MS)
    find.fill("utt-07")
    find.press("Enter")
    expect(page.locator(".vp-turns tbody tr")).to_have_count(1, timeout=BOUND_MS)
    assert "find=utt-07" in page.url
    page.reload(timeout=BOUND_MS)
    expect(page.locator(".vp-turns tbody tr")).to_have_count(1, timeout=BOUND_MS)
    expect(page.get_by_label("Find")).to_have_value("utt-07", timeout=BOUND_MS)


def test_the_playhead_moves_over_the_waterfall_while_the_audio_plays(page: Page, url: str) -> None:
    page.goto(f"{url}/turns?find=the%20salt", timeout=BOUND_MS)
    row = page.locator(".vp-turns tbody tr a")
    expect(row).to_have_count(1, timeout=BOUND_MS)
    row.click()
    head, play = page.locator(".player .head"), page.get_by_role("button", name="Play")
    expect(head).to_be_attached(timeout=BOUND_MS)
    expect(page.locator(".player .wave")).to_have_count(2)
    before, x = float(head.get_attribute("data-ms") or "nan"), float(head.get_attribute("x1") or "nan")
    play.focus()
    page.keyboard.press("k")
    page.wait_for_function(
        """(before) => {
          const found = [...document.querySelectorAll("*")].map((each) => each.shadowRoot?.querySelector(".head"));
          return found.some((head) => head && Number(head.getAttribute("data-ms")) > before + 200);
        }""",
        arg=before,
    )
    assert float(head.get_attribute("x1") or "nan") > x
    page.get_by_role("button", name="Pause").press("k")
    page.get_by_role("button", name="The wait").click()
    expect(page.get_by_role("button", name="The wait")).to_have_attribute("aria-pressed", "true")
