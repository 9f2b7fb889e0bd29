"""The Runs page in a real Chromium: every run is listed, narrowed, ticked and compared, and a new run appears."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import BOUND_MS, Viewer, choose
from tests.browser.dashboard_process import start_dashboard
from tests.browser.pictures import settled
from tests.fixtures_turns import START_UNIX_NS, Run
from tests.run_folders import HOUR_NS, latency_run, run_folder, write_summary

pytestmark = pytest.mark.browser
expect.set_options(timeout=BOUND_MS)

ROW_PX, FIRST_BOX_PX = 35, 16  # of Streamlit's table: the height of a row, and the middle of its box
GRID = '[data-testid="stDataFrame"] [role="grid"]'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, one of cohort A, one slow one of cohort B and one of both."""
    root = tmp_path_factory.mktemp("runs")
    for place, (name, cohorts, llm_ms) in enumerate((("first", "A", 100), ("second", "B", 420), ("third", "AB", 100))):
        began = START_UNIX_NS + place * HOUR_NS
        run = latency_run(f"r-{name}", 60, llm_ms=llm_ms, seed=place, began_unix_ns=began)
        heard = [turn for turn in run.turns if turn.source == "client"]
        turns = [msgspec.structs.replace(turn, cohort=cohorts[at % len(cohorts)]) for at, turn in enumerate(heard)]
        run_folder(root, name, Run(turns, run.spans))
    return root


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    dashboard = start_dashboard(str(root))
    yield dashboard.url
    dashboard.end()


def cells(page: Page, column: int | str) -> list[str]:
    """The texts of a column of the list, as a screen reader gets them."""
    return [
        text for text in page.locator(f'{GRID} [role="gridcell"][aria-colindex="{column}"]').all_inner_texts() if text
    ]


def expect_runs(page: Page, *names: str) -> None:
    """The list has these runs, in this order."""
    expect(page.locator(GRID).first).to_have_attribute("aria-rowcount", str(len(names) + 1))
    first_column = page.locator(f'{GRID} [role="gridcell"][aria-colindex="1"]').filter(has_text="(r-")
    expect(first_column).to_have_text([f"{name} (r-{name})" for name in names])


def ticked_in(page: Page) -> list[str]:
    """The runs that the link says are ticked, by their ids."""
    ticked = parse_qs(urlsplit(page.url).query).get("ticked", ["[]"])[0]
    return [reference.rpartition("#")[2] for reference in json.loads(ticked)]


def tick_by_mouse(page: Page, row: int, ticked: int) -> None:
    """Tick a row of the list, counted from 1; then so many are ticked."""
    box = page.locator('[data-testid="stDataFrame"] canvas').first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + FIRST_BOX_PX, box["y"] + ROW_PX * row + ROW_PX // 2)
    page.wait_for_function(
        "n => JSON.parse(new URL(location).searchParams.get('ticked') || '[]').length === n", arg=ticked
    )


def tick_by_keyboard(page: Page, rows: tuple[int, ...]) -> None:
    """Tick rows of the list, counted from 1, with the focus brought there by the Tab key."""
    expect(page.locator(GRID).first).to_be_attached()
    settled(page)
    page.locator('[data-testid="stSelectbox"] input').first.focus()
    while not page.evaluate("document.activeElement.closest('[data-testid=stDataFrame] :is(canvas, table)')"):
        page.keyboard.press("Tab")
    at = 1
    for row in rows:
        for _ in range(row - at):
            page.keyboard.press("ArrowDown")
        at = row
        before = page.url
        page.keyboard.press("Shift+Space")
        page.wait_for_function("before => location.href !== before", arg=before)


def test_filter_survives_reload_by_link_and_keeps_ticked_runs(viewer: Viewer, url: str) -> None:
    page = viewer.opens(f"{url}/runs")
    expect_runs(page, "third", "second", "first")
    tick_by_keyboard(page, rows=(1, 3))
    assert ticked_in(page) == ["r-third", "r-first"]
    choose(page.get_by_role("combobox", name="Cohort"), "B")
    page.wait_for_url("**cohort=B**")
    for _ in range(2):
        expect_runs(page, "third", "second")
        expect(page.get_by_text("2 of 3 runs", exact=True)).to_be_visible()
        expect(page.get_by_text("The filter leaves out 1 ticked run")).to_contain_text("first (r-first)")
        expect(page.get_by_role("combobox", name="Cohort")).to_have_value("B")
        page.reload()
    expect_runs(page, "third", "second")
    tick_by_mouse(page, row=2, ticked=3)
    # And where the filter is taken away, all of them are ticked in the list.
    choose(page.get_by_role("combobox", name="Cohort"), "every cohort")
    expect_runs(page, "third", "second", "first")
    expect(page.get_by_text("The filter leaves out")).to_have_count(0)
    expect(page.locator(f'{GRID} [role="row"][aria-selected="true"]')).to_have_count(3)


@pytest.mark.nightly
def test_runs_are_ticked_by_keyboard_and_empty_filter_is_widened(viewer: Viewer, url: str) -> None:
    page = viewer.opens(f"{url}/runs")
    expect(page.get_by_text("Shift with the space bar ticks it")).to_be_visible()
    tick_by_keyboard(page, rows=(2,))
    assert ticked_in(page) == ["r-second"]
    page.keyboard.press("Shift+Space")
    page.wait_for_function("new URL(location).searchParams.get('ticked') === '[]'")
    expect(page.get_by_role("button", name="Untick all")).to_have_count(0)
    tick_by_keyboard(page, rows=(1, 2))
    expect(page.get_by_role("heading", name="Compared", exact=True)).to_be_visible()
    # Where a list begins with ticks, its keys do nothing before those are taken away.
    page.reload()
    untick = page.get_by_role("button", name="Untick all")
    expect(untick).to_be_visible()
    settled(page)  # what is drawn again while it has the focus loses that
    untick.focus()
    page.keyboard.press("Enter")
    expect(untick).to_have_count(0)
    page.wait_for_function("!new URL(location).searchParams.has('ticked')")
    tick_by_keyboard(page, rows=(3,))
    assert ticked_in(page) == ["r-first"]
    page.goto(f"{url}/runs?callers=9&began=soon")
    expect(page.get_by_role("heading", name="No run matches the filter")).to_be_visible()
    expect(page.get_by_text("the link asks for began 'soon'")).to_be_visible()
    page.get_by_role("link", name="show every run").click()
    expect(page.locator(GRID).first).to_be_attached()
    assert urlsplit(page.url).query == ""


def test_two_ticked_runs_are_compared_and_new_run_appears(viewer: Viewer, root: Path, url: str) -> None:
    page = viewer.opens(f"{url}/runs")
    expect(page.get_by_text("Tick two runs or more to compare them.")).to_be_visible()
    expect_runs(page, "third", "second", "first")
    tick_by_mouse(page, row=2, ticked=1)
    tick_by_mouse(page, row=3, ticked=2)
    expect(page.get_by_role("heading", name="Compared", exact=True)).to_be_visible()
    compared = page.locator(".vp-compared").first
    expect(compared).to_contain_text("second")
    expect(compared).to_contain_text("regression")
    run_folder(root, "later", latency_run("r-later", 60, seed=5, began_unix_ns=START_UNIX_NS + 3 * HOUR_NS))
    expect_runs(page, "later", "third", "second", "first")
    expect(page.get_by_role("heading", name="Compared", exact=True)).to_be_visible()
    assert sorted(ticked_in(page)) == ["r-first", "r-second"]


# The list is drawn on a canvas: what is written there, and where, is kept.
WATCH_THE_CANVAS = """
    window.drawn = {};
    const fill = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
        window.drawn[text] = [x, y];
        return fill.call(this, text, x, y, ...more);
    };
"""


@pytest.mark.nightly
def test_counts_have_thousands_apart_and_sort_as_numbers(viewer: Viewer, tmp_path: Path) -> None:
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
        page = viewer.opens("about:blank")
        page.add_init_script(WATCH_THE_CANVAS)
        page.goto(f"{dashboard.url}/runs")
        grid = page.locator('[data-testid="stDataFrame"]').first
        expect(page.locator(GRID).first).to_have_attribute("aria-rowcount", "4")
        shown = ["1,234,567", "98,765", "900", "1,000", "7", "0", "750 ms", "1,000 ms", "12,346 ms", "8"]
        page.wait_for_function("texts => texts.every(text => text in window.drawn)", arg=shown)
        box = grid.locator("canvas").first.bounding_box()
        assert box is not None
        x, y = page.evaluate("window.drawn['turns']")
        for order in (["900", "98765", "1234567"], ["1234567", "98765", "900"]):
            page.mouse.click(box["x"] + x + 3, box["y"] + y)
            expect(grid.locator('[role="gridcell"][aria-colindex="5"]').first).to_have_text(order[0])
            of_turns = page.locator(f'{GRID} [role="columnheader"]', has_text="turns").get_attribute("aria-colindex")
            assert cells(page, of_turns or "") == order
    finally:
        dashboard.end()
