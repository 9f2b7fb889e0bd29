"""The pages Cohorts and Rollout in a real Chromium, over a store with a rollout that was rolled back.

Each page is loaded once, and then looked at narrow and wide, light and dark. With `VOICEPROBE_SHOTS` a screenshot of
each is written to that folder, for a person to look at.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import choose
from tests.browser.pictures import CUT_WORDS, left_over, texts_spaced
from tests.browser.test_browser_dashboard import Dashboard, start
from tests.fixtures_rollouts import read_rollouts
from tests.nightly import nightly_after
from tests.unit.dashboard.rollout_scenes import Rollout, fill_rollout

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BOUND_MS = 180_000
SHOTS = os.environ.get("VOICEPROBE_SHOTS")
CHARTS = {"cohorts": 3, "rollout": 1}
# What may scroll sideways by itself.
SCROLLS = ".vp-table"
# Streamlit renders the whole page inside one div: its header and its toolbar are not landmarks.
OF_STREAMLIT = '[data-testid="stHeader"], [data-testid="stAppViewContainer"], [data-testid="stToolbar"]'
WIDER = """skipped => [...document.querySelectorAll('[data-testid="stMain"], [data-testid="stMain"] *')]
    .filter(e => !e.closest(skipped) && (e.dataset.testid === 'stMain' ? e.scrollWidth > e.clientWidth
                 : e.scrollWidth > e.clientWidth + 1 && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)))
    .map(e => e.outerHTML.slice(0, 120))"""
PICTURES = '[data-testid="stVegaLiteChart"] .marks'
# How many marks a picture has; one that drew nothing has none.
DRAWN = "picture => picture.querySelectorAll('.role-mark path, .role-mark line').length"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rollout") / "store"
    return fill_rollout(folder, Rollout(slower_ms=180, turns=2800, looks=5), time.time_ns() - 60 * 10**9)


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Dashboard]:
    dashboard = start(store)
    yield dashboard
    dashboard.end()


@pytest.fixture(scope="module", params=nightly_after(1, CHARTS))
def opened(request: pytest.FixtureRequest, browser: Browser, served: Dashboard) -> Iterator[tuple[str, Page]]:
    """A page, loaded once for all that is looked at on it."""
    name = request.param
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.goto(f"{served.url.rstrip('/')}/{name}")
    expect(page.locator(".vp-verdict")).to_be_visible(timeout=BOUND_MS)
    expect(page.locator(PICTURES)).to_have_count(CHARTS[name], timeout=BOUND_MS)
    settled(page)
    yield name, page
    page.close()


def settled(page: Page) -> None:
    """Wait until nothing is being drawn."""
    expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0, timeout=BOUND_MS)
    page.wait_for_function(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )


def look_at(page: Page, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    ground = "rgb(255, 255, 255)" if theme == "light" else "rgb(18, 21, 27)"
    expect(page.get_by_test_id("stApp")).to_have_css("background-color", ground, timeout=BOUND_MS)
    settled(page)


def test_the_verdict_is_first_and_the_same_as_in_the_log(opened: tuple[str, Page], store: Path) -> None:
    _, page = opened
    (record,) = read_rollouts(store)
    newest = record.verdicts[-1].verdict
    verdict = page.locator(".vp-verdict")
    expect(verdict).to_contain_text(newest.sentence)
    expect(verdict).to_contain_text("p95 of voice to voice is worse:")
    top = verdict.bounding_box()
    chart = page.get_by_test_id("stVegaLiteChart").first.bounding_box()
    assert top is not None
    assert chart is not None
    assert top["y"] < chart["y"]


def test_every_chart_is_drawn_and_has_its_table_by_keyboard(opened: tuple[str, Page]) -> None:
    name, page = opened
    pictures = page.locator(PICTURES)
    for place in range(CHARTS[name]):
        assert pictures.nth(place).evaluate(DRAWN) > 4
    summaries = page.locator('[data-testid="stExpander"] summary')
    expect(summaries).to_have_count(CHARTS[name])
    for place in range(CHARTS[name]):
        summaries.nth(place).focus()
        page.keyboard.press("Enter")
        table = page.locator('[data-testid="stExpander"]').nth(place).locator("table")
        expect(table).to_be_visible(timeout=BOUND_MS)
        assert table.locator("tbody tr").count() > 1
    if name == "cohorts":
        slices = page.locator('[data-testid="stExpander"]').nth(2).locator("tbody th")
        texts = slices.all_inner_texts()
        assert {"noise = clean", "noise = street", "length = long"} <= set(texts)


@pytest.mark.parametrize("theme", nightly_after(1, ["light", "dark"]))
@pytest.mark.parametrize("width", nightly_after(1, [390, 1280]))
def test_axe_finds_nothing(opened: tuple[str, Page], width: int, theme: str) -> None:
    _, page = opened
    look_at(page, width, theme)
    of_streamlit = page.evaluate(
        "s => [...document.querySelectorAll(s)].map(e => e.outerHTML.slice(0, 60))", OF_STREAMLIT
    )
    violations = {
        violation["id"]: [
            node["html"][:200]
            for node in violation["nodes"]
            if violation["id"] != "region" or not node["html"].startswith(tuple(of_streamlit))
        ]
        for violation in Axe().run(page).response["violations"]
    }
    assert {rule: nodes for rule, nodes in violations.items() if nodes} == {}


@pytest.mark.nightly
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280, 1920])
def test_nothing_scrolls_sideways_but_tables(opened: tuple[str, Page], width: int, theme: str) -> None:
    name, page = opened
    look_at(page, width, theme)
    assert left_over(page, f"() => ({WIDER})({json.dumps(SCROLLS)})") == []
    assert left_over(page, CUT_WORDS) == []
    if SHOTS:
        page.wait_for_timeout(1_500)  # for the eye only: lets the charts come to rest
        page.screenshot(path=str(Path(SHOTS) / f"{name}-{width}-{theme}.png"), full_page=True)


@pytest.mark.nightly
@pytest.mark.parametrize("width", [390, 1280])
def test_no_label_of_a_picture_is_cut_off_where_a_reader_spaces_texts(opened: tuple[str, Page], width: int) -> None:
    _, page = opened
    look_at(page, width, "light")
    with texts_spaced(page):
        assert left_over(page, CUT_WORDS) == []


def test_other_turns_are_chosen_by_a_click_and_kept_in_the_link(opened: tuple[str, Page]) -> None:
    name, page = opened
    if name == "rollout":
        return
    look_at(page, 1280, "light")
    choose(page.get_by_label(re.compile("Compared turns")), "of the run and time above")
    expect(page.get_by_text("no verdict", exact=False)).to_be_visible(timeout=BOUND_MS)
    expect(page).to_have_url(re.compile("turns=chosen"))
    page.reload()
    expect(page.get_by_text("of the turns that were chosen here", exact=False)).to_be_visible(timeout=BOUND_MS)
    expect(page.locator(".vp-verdict")).to_contain_text("roll back")
