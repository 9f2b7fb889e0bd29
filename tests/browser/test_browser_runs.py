"""The Runs page in a real Chromium: every run is listed, two that are ticked are compared, and a new run appears."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.dashboard_process import start_dashboard
from tests.fixtures_turns import START_UNIX_NS
from tests.run_folders import HOUR_NS, latency_run, run_folder

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BOUND_MS = 60_000
ROW_PX, FIRST_BOX_PX = 35, 16  # of Streamlit's table: the height of a row, and the middle of its box


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run_folder(root, "base", latency_run("r-base", 60))
    run_folder(root, "slow", latency_run("r-slow", 60, llm_ms=420, seed=3, began_unix_ns=START_UNIX_NS + HOUR_NS))
    return root


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    dashboard = start_dashboard(str(root))
    yield dashboard.url
    dashboard.end()


def listed(page: Page) -> list[str]:
    """The names in the list, as a screen reader gets them."""
    table = page.locator('[data-testid="stDataFrame"] [role="grid"]').first
    expect(table).to_be_attached(timeout=BOUND_MS)
    return [text for text in table.locator('[role="gridcell"][aria-colindex="1"]').all_inner_texts() if text]


def test_two_runs_that_are_ticked_are_compared_and_a_new_run_appears(page: Page, root: Path, url: str) -> None:
    page.goto(f"{url}/runs")
    expect(page.get_by_text("Tick two runs or more to compare them.")).to_be_visible(timeout=BOUND_MS)
    grid = page.locator('[data-testid="stDataFrame"]').first
    expect(grid.locator('[role="grid"]')).to_have_attribute("aria-rowcount", "3", timeout=BOUND_MS)
    assert listed(page) == ["slow (r-slow)", "base (r-base)"]

    for row in (1, 2):
        box = grid.locator("canvas").first.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + FIRST_BOX_PX, box["y"] + ROW_PX * row + ROW_PX // 2)
        page.wait_for_function(
            "n => JSON.parse(new URL(location).searchParams.get('ticked') || '[]').length === n", arg=row
        )
    expect(page.get_by_role("heading", name="Compared", exact=True)).to_be_visible(timeout=BOUND_MS)
    compared = page.locator(".vp-compared").first
    expect(compared).to_contain_text("slow", timeout=BOUND_MS)
    expect(compared).to_contain_text("regression")
    ticked = json.loads(parse_qs(urlsplit(page.url).query)["ticked"][0])
    assert sorted(ticked) == sorted(f"{root / name / 'store'}#r-{name}" for name in ("base", "slow"))

    run_folder(root, "later", latency_run("r-later", 60, seed=5, began_unix_ns=START_UNIX_NS + 2 * HOUR_NS))
    expect(grid.locator('[role="grid"]')).to_have_attribute("aria-rowcount", "4", timeout=BOUND_MS)
    expect(page.get_by_role("heading", name="Compared", exact=True)).to_be_visible()
    assert listed(page) == ["later (r-later)", "slow (r-slow)", "base (r-base)"]
    assert sorted(json.loads(parse_qs(urlsplit(page.url).query)["ticked"][0])) == sorted(ticked)
