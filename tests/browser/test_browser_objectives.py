"""The page of objectives in a real Chromium: its filters stay by the link, and its chip opens by keyboard."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import BOUND_MS, choose
from tests.browser.test_browser_dashboard import Dashboard, start
from tests.unit.dashboard.scenes import S, Scene, fill

pytestmark = pytest.mark.browser

TURNS = ".vp-objective"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    store = tmp_path_factory.mktemp("objectives") / "store"
    now = time.time_ns()
    fill(store, Scene(turns=300, newest_unix_ns=now - 3_000 * S, run_id="run-one", ended=True, invalid_share=0.0))
    fill(
        store, Scene(turns=200, newest_unix_ns=now - 9_000 * S, run_id="run-two", ended=True, invalid_share=0.0, seed=3)
    )
    dashboard = start(store)
    yield dashboard
    dashboard.end()


def opened(page: Page, served: Dashboard, query: str = "") -> None:
    page.goto(f"{served.url.rstrip('/')}/objectives{query}")
    expect(page.locator(TURNS).first).to_be_attached(timeout=BOUND_MS)


def expect_turns(page: Page, turns: int) -> None:
    """In the longest window of the objective that every turn counts for."""
    row = page.get_by_role("row").filter(has_text="The caller gets an answer")
    expect(row.locator("td").last).to_contain_text(f"/ {turns}", timeout=BOUND_MS)


def test_what_is_chosen_survives_a_reload_by_its_link(page: Page, served: Dashboard) -> None:
    opened(page, served)
    expect_turns(page, 500)
    expect(page.locator(".vp-lines").first).to_contain_text("every run of this store (2)")
    run = page.get_by_role("combobox", name="Run")
    run.click()
    page.get_by_role("option", name="run-two").click()
    expect_turns(page, 200)
    choose(page.get_by_role("combobox", name="Cohort"), "A")
    expect_turns(page, 100)
    assert "run=run-two" in page.url
    assert "cohort=A" in page.url
    page.reload()
    expect_turns(page, 100)
    overview = page.locator(".vp-lines").first
    expect(overview).to_contain_text("run-two")
    expect(overview).to_contain_text("cohort")
    page.get_by_role("button", name="Filters").click()
    choose(page.get_by_role("combobox", name="Noise"), "babble")
    expect(page.get_by_role("button", name="Filters (1)")).to_be_visible(timeout=BOUND_MS)
    assert "noise=babble" in page.url
    expect(overview).to_contain_text("babble")


@pytest.mark.nightly
def test_what_another_page_is_narrowed_to_does_not_come_along(page: Page, served: Dashboard) -> None:
    """A viewer who comes by the navigation sees every run, as that page says."""
    page.goto(f"{served.url}?run=run-two&cohort=A")
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible(timeout=BOUND_MS)
    page.get_by_role("link", name="Objectives", exact=True).click()
    expect_turns(page, 500)
    expect(page.locator(".vp-lines").first).to_contain_text("every run of this store (2)")
    assert page.url.endswith("/objectives")


@pytest.mark.nightly
def test_what_can_be_trusted_opens_by_keyboard(page: Page, served: Dashboard) -> None:
    opened(page, served)
    chip = page.get_by_role("button", name="valid · ")
    chip.focus()
    page.keyboard.press("Enter")
    details = page.locator(".vp-details")
    expect(details).to_be_visible(timeout=BOUND_MS)
    expect(details).to_contain_text("2 runs with 500 turns in 28 days")
    expect(details).to_contain_text("not calibrated")
    page.keyboard.press("Escape")
    expect(details).to_have_count(0, timeout=BOUND_MS)
