"""Every page in a real Chromium: axe-core finds nothing at any width in light and dark, and nothing is cut off.

Each page is loaded once for each theme, and the window then takes every width. With `VOICEPROBE_SHOTS` a screenshot of
each is written to that folder, for a person to look at.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.dashboard_process import Dashboard
from tests.browser.pictures import CUT_WORDS, left_over, texts_spaced
from tests.nightly import nightly_after
from tests.unit.dashboard.scenes import Scene, turns_of

pytestmark = pytest.mark.browser

BOUND_MS = 60_000
SHOTS = os.environ.get("VOICEPROBE_SHOTS")
WIDTHS = (390, 768, 1280, 1920)
DARK_WIDTHS = (390, 1280)  # what the theme changes are colors: each layout, of one column and of two, has them once
HEIGHT = 900
FULL = Scene(turns=900, newest_unix_ns=0, run_id="run-full", ended=True)
# Each page by its title, and what shows that it is drawn.
PAGES: Final = {
    "now": ("Now", ".vp-slow a"),
    "turns": ("Turns", ".vp-turns tbody tr"),
    "cohorts": ("Cohorts", ".vp-verdict"),
    "rollout": ("Rollout", ".vp-empty, .vp-verdict"),
    "objectives": ("Objectives", ".vp-objective"),
    "runs": ("Runs", '[data-testid="stDataFrame"]'),
    "cache": ("Cache and routing", ".vp-tile"),
    "instrument": ("Instrument", ".vp-pairs"),
    "turn": ("Turn", ".vp-call-track"),
    "turn-audio": ("Turn", ".player .wave"),
}
# What Streamlit's own parts violate and a page cannot mend: the rule, and a selector of the parts.
STREAMLIT = {
    # Streamlit renders the whole page inside one div: its header and its toolbar are not landmarks.
    "region": '[data-testid="stHeader"], [data-testid="stAppViewContainer"], [data-testid="stToolbar"]',
}
# Parts that reach out of the page though they do not stand in a region that scrolls, texts cut off by an edge,
# columns out of sight where there is room for all of them, and what is decided where there is not.
CUT_OFF: Final = (
    """() => {
  const main = document.querySelector('[data-testid="stMain"]'), found = [];
  const name = e => `${e.tagName} ${e.className.baseVal ?? e.className} ${(e.innerText || '').slice(0, 60)}`;
  const hides = e => ['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(e).overflowX);
  if (main.scrollWidth > main.clientWidth) found.push(`the page: ${main.scrollWidth} of ${main.clientWidth}`);
  for (const e of main.querySelectorAll('*')) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > main.clientWidth + 1) {
      let around = e.parentElement;
      while (around !== main && !hides(around)) around = around.parentElement;
      if (around === main) found.push(`beyond the edge: ${name(e)}`);
    }
    const isOutOfSight = main.clientWidth >= 760 && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
      && e.scrollWidth > e.clientWidth + 1 && e.closest('.vp:not(.vp-chart-table)');
    if (isOutOfSight) found.push(`scrolls sideways: ${name(e)}`);
    const isCut = ['hidden', 'clip'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1;
    if (isCut && e.clientWidth > 1 && e.closest('.vp') && (e.innerText || '').trim()) found.push(`cut off: ${name(e)}`);
  }
  for (const e of main.querySelectorAll('.vp table thead th')) {
    const isOut = e.getBoundingClientRect().right > main.clientWidth + 1;
    if (isOut && ['verdict', 'state'].includes(e.innerText)) found.push(`out of sight: ${e.innerText}`);
  }
  return [...found, ...("""
    + CUT_WORDS
    + """)()];
}"""
)


@pytest.fixture
def opened(browser: Browser, full: Dashboard) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def begin(name: str, theme: str, width: int = WIDTHS[0]) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": HEIGHT},
            color_scheme="dark" if theme == "dark" else "light",
        )
        pages.append(page)
        page.set_default_timeout(BOUND_MS)
        page.goto(f"{full.url.rstrip('/')}/{link(name)}")
        title, drawn = PAGES[name]
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible(timeout=BOUND_MS)
        expect(page.locator(drawn).first).to_be_attached(timeout=BOUND_MS)
        expect(page).to_have_title(f"{title} · voiceprobe")
        settled(page)
        return page

    yield begin
    for page in pages:
        page.close()


def link(name: str) -> str:
    """Where a page is; of the full run, and of one of its turns: the second has its audio."""
    if name in ("now", "turn", "turn-audio"):
        turn = turns_of(FULL)[1 if name == "turn-audio" else 10]
        of_turn = {} if name == "now" else {"trace": turn.trace_id, "turn": turn.turn_index}
        return f"?{urlencode({'run': 'run-full', **of_turn})}"
    return f"{name}?run=run-full"


def settled(page: Page) -> None:
    """Wait until nothing is on its way."""
    expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0, timeout=BOUND_MS)
    expect(page.locator('[data-testid="stApp"][data-test-script-state="running"]')).to_have_count(0, timeout=BOUND_MS)
    expect(page.locator('[data-testid="stException"]')).to_have_count(0)


def violations(page: Page) -> dict[str, list[str]]:
    """What axe-core finds, by its rule, but for the parts that are Streamlit's own."""
    of_streamlit = {rule: page.evaluate("s => [...document.querySelectorAll(s)].map(e => e.outerHTML.slice(0, 60))", s)
                    for rule, s in STREAMLIT.items()}  # fmt: skip
    found = {
        each["id"]: [
            node["html"][:200]
            for node in each["nodes"]
            if not any(node["html"].startswith(part) for part in of_streamlit.get(each["id"], []))
        ]
        for each in Axe().run(page).response["violations"]
    }
    return {rule: nodes for rule, nodes in found.items() if nodes}


@pytest.mark.parametrize("name", nightly_after(1, PAGES))
def test_a_page_can_be_read_at_every_width_in_light_and_dark(opened: Callable[..., Page], name: str) -> None:
    for theme in ("light", "dark"):
        page = opened(name, theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            page.wait_for_function("width => document.documentElement.clientWidth === width", arg=width)
            settled(page)
            assert left_over(page, CUT_OFF) == [], f"{name}, {theme}, {width} px"
            if theme == "light" or width in DARK_WIDTHS:
                assert violations(page) == {}, f"{name}, {theme}, {width} px"
            if SHOTS:
                page.wait_for_timeout(1_000)  # for the eye only: lets the charts come to rest
                page.screenshot(path=str(Path(SHOTS) / f"{name}-{theme}-{width}.png"), full_page=True)


@pytest.mark.nightly
@pytest.mark.parametrize("width", [390, 1280])
def test_no_label_of_a_picture_is_cut_off_where_a_reader_spaces_texts(opened: Callable[..., Page], width: int) -> None:
    page = opened("turns", "light", width)
    expect(page.locator('[data-testid="stVegaLiteChart"] svg.marks').first).to_be_visible(timeout=BOUND_MS)
    with texts_spaced(page):
        assert left_over(page, CUT_WORDS) == []


@pytest.mark.nightly
def test_the_page_that_has_the_focus_is_seen_among_the_pages(opened: Callable[..., Page]) -> None:
    page = opened("now", "light", 1280)
    for name in ("Now", "Turns"):
        link = page.get_by_test_id("stTopNavLink").filter(has_text=name)
        expect(link).to_have_css("outline-style", "none")
        page.keyboard.press("Tab")  # from here on, focus is shown
        link.focus()
        expect(link).to_have_css("outline-style", "solid")


@pytest.mark.nightly
def test_bars_and_focus_remain_where_the_browser_forces_its_colors(opened: Callable[..., Page]) -> None:
    page = opened("now", "light", 1280)
    page.emulate_media(forced_colors="active")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for bar in (".vp-stack > i", ".vp-budget", ".vp-gauge > i", ".vp-range > i", ".vp-legend .vp-key"):
        expect(page.locator(bar).first).not_to_have_css("background-color", ground)
    row = page.locator(".vp-slow a").first
    page.keyboard.press("Tab")  # from here on, focus is shown
    row.focus()
    expect(row).to_have_css("outline-style", "solid")


def test_the_table_of_a_chart_opens_by_keyboard(opened: Callable[..., Page]) -> None:
    page = opened("cache", "light", 1280)
    summary = page.locator('[data-testid="stExpander"] summary').first
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".vp-chart-table table").first).to_be_visible(timeout=BOUND_MS)
