"""The Runs page in a real Chromium: every run is listed, two that are ticked are compared, and a new run appears."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.dashboard_process import start_dashboard
from tests.fixtures_turns import START_UNIX_NS
from tests.run_folders import HOUR_NS, latency_run, run_folder, write_summary

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


# The list is drawn on a canvas: what is written there, and where, is kept.
WATCH_THE_CANVAS = """
    window.drawn = {};
    const fill = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
        window.drawn[text] = [x, y];
        return fill.call(this, text, x, y, ...more);
    };
"""


def turns_of_rows(page: Page) -> list[str]:
    """The numbers of turns from the top of the list, as a screen reader gets them."""
    table = page.locator('[data-testid="stDataFrame"] [role="grid"]').first
    place = table.locator('[role="columnheader"]', has_text="turns").get_attribute("aria-colindex")
    return [text for text in table.locator(f'[role="gridcell"][aria-colindex="{place}"]').all_inner_texts() if text]


def test_counts_have_thousands_apart_and_sort_as_numbers(page: Page, tmp_path: Path) -> None:
    runs = (("one", 1_234_567, 1_000, 0.75), ("two", 900, 0, 12.3456), ("six", 98_765, 7, 1.0))
    for name, turns, invalid, p95_s in runs:
        write_summary(
            tmp_path / name,
            f"r-{name}",
            turns={"total": turns, "ok": turns - invalid, "invalid": invalid},
            metrics={"voice_to_voice": {"n": turns, "p50_s": 0.5, "p95_s": p95_s, "p99_s": None}},
        )
    dashboard = start_dashboard(str(tmp_path))
    try:
        page.add_init_script(WATCH_THE_CANVAS)
        page.goto(f"{dashboard.url}/runs")
        grid = page.locator('[data-testid="stDataFrame"]').first
        expect(grid.locator('[role="grid"]')).to_have_attribute("aria-rowcount", "4", timeout=BOUND_MS)
        shown = ["1,234,567", "98,765", "900", "1,000", "7", "0", "750 ms", "1,000 ms", "12,346 ms", "8"]
        page.wait_for_function("texts => texts.every(text => text in window.drawn)", arg=shown)
        box = grid.locator("canvas").first.bounding_box()
        assert box is not None
        x, y = page.evaluate("window.drawn['turns']")
        for order in (["900", "98765", "1234567"], ["1234567", "98765", "900"]):
            page.mouse.click(box["x"] + x + 3, box["y"] + y)
            expect(grid.locator('[role="gridcell"][aria-colindex="5"]').first).to_have_text(order[0])
            assert turns_of_rows(page) == order
    finally:
        dashboard.end()
