"""Every page in a real Chromium: axe-core finds nothing at any width in light and dark, and nothing is cut off.

Each page is loaded once for each theme, and the window then takes every width. With `VOICEPROBE_SHOTS` a screenshot of
each is written to that folder, for a person to look at.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from telemetry.store.writer import StoreWriter
from tests.browser.conftest import FULL, SHOTS, Viewer
from tests.browser.dashboard_process import Dashboard, start_dashboard
from tests.browser.pictures import CUT_WORDS, PICTURES, cut_off, left_over, settled, texts_spaced, violations
from tests.nightly import nightly_after
from tests.unit.dashboard.scenes import S, Scene, fill, turns_of

pytestmark = pytest.mark.browser
expect.set_options(timeout=60_000)

WIDTHS = (390, 768, 1280, 1920)
TWO_WIDTHS = (390, 1280)  # what the theme changes are colors: each layout, of one column and of two, has them once


def turn_link(place: int) -> str:
    turn = turns_of(FULL)[place]
    return f"?{urlencode({'run': 'run-full', 'trace': turn.trace_id, 'turn': turn.turn_index})}"


# Each page by its title, its link, and what shows that it is drawn.
PAGES: Final = {
    "now": ("Now", "?run=run-full", ".vp-slow a"),
    "turns": ("Turns", "turns?run=run-full", ".vp-turns tbody tr"),
    "cohorts": ("Cohorts", "cohorts?run=run-full", ".vp-verdict"),
    "cohorts-rollout": ("Cohorts", "cohorts?run=run-1", ".vp-verdict"),
    "rollout": ("Rollout", "rollout", ".vp-verdict"),
    "objectives": ("Objectives", "objectives?run=run-full", ".vp-objective"),
    "runs": ("Runs", "runs", '[data-testid="stDataFrame"]'),
    "cache": ("Cache and routing", "cache?run=run-full", ".vp-tile"),
    "instrument": ("Instrument", "instrument?run=run-full", ".vp-pairs"),
    "turn": ("Turn", turn_link(10), ".vp-call-track"),
    "turn-audio": ("Turn", turn_link(1), ".player .wave"),
}
# Pages with tables of all figures of two cohorts, which scroll by themselves.
WIDE: Final = ("cohorts-rollout", "rollout")


def opened(viewer: Viewer, full: Dashboard, name: str, theme: str = "light", width: int = 1280) -> Page:
    title, link, drawn = PAGES[name]
    page = viewer.opens(f"{full.url.rstrip('/')}/{link}", theme, width)
    expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.locator(drawn).first).to_be_attached()
    expect(page).to_have_title(f"{title} · voiceprobe")
    settled(page)
    return page


def takes(page: Page, width: int) -> None:
    """The window takes a width."""
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function("width => document.documentElement.clientWidth === width", arg=width)
    settled(page)


def kept(page: Page, name: str) -> None:
    if SHOTS:
        page.wait_for_timeout(1_000)  # for the eye only: lets the charts come to rest
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize("name", nightly_after(1, PAGES))
def test_a_page_can_be_read_at_every_width_in_light_and_dark(viewer: Viewer, full: Dashboard, name: str) -> None:
    for theme in ("light", "dark"):
        page = opened(viewer, full, name, theme, WIDTHS[0])
        for width in WIDTHS:
            takes(page, width)
            which = f"{name}-{theme}-{width}"
            assert cut_off(page, ".vp-table" if name in WIDE else ".vp-chart-table") == [], which
            if theme == "light" or width in TWO_WIDTHS:
                assert violations(page) == {}, which
            kept(page, which)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["turns", *WIDE])
def test_no_picture_label_is_cut_off_with_spaced_texts(viewer: Viewer, full: Dashboard, name: str) -> None:
    page = opened(viewer, full, name)
    expect(page.locator(PICTURES).first).to_be_visible()
    for width in TWO_WIDTHS:
        takes(page, width)
        with texts_spaced(page):
            assert left_over(page, CUT_WORDS) == []


@pytest.mark.nightly
def test_focus_and_bars_are_visible_with_forced_colors(viewer: Viewer, full: Dashboard) -> None:
    page = opened(viewer, full, "now")
    for name in ("Now", "Turns"):
        link = page.get_by_test_id("stTopNavLink").filter(has_text=name)
        expect(link).to_have_css("outline-style", "none")
        page.keyboard.press("Tab")  # from here on, focus is shown
        link.focus()
        expect(link).to_have_css("outline-style", "solid")
    page.emulate_media(forced_colors="active")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for bar in (".vp-stack > i", ".vp-budget", ".vp-gauge > i", ".vp-range > i", ".vp-legend .vp-key"):
        expect(page.locator(bar).first).not_to_have_css("background-color", ground)
    row = page.locator(".vp-slow a").first
    page.keyboard.press("Tab")
    row.focus()
    expect(row).to_have_css("outline-style", "solid")


@pytest.mark.parametrize("name", nightly_after(1, ["cohorts-rollout", "rollout", "cache"]))
def test_every_chart_is_drawn_and_has_its_table_by_keyboard(viewer: Viewer, full: Dashboard, name: str) -> None:
    page = opened(viewer, full, name)
    pictures, tables = page.locator(PICTURES), page.locator('[data-testid="stExpander"]')
    charts = {"cohorts-rollout": 3, "rollout": 1, "cache": 2}[name]
    expect(pictures).to_have_count(charts)
    expect(tables).to_have_count(charts)
    for place in range(charts):
        marks = "picture => picture.querySelectorAll('.role-mark path, .role-mark line').length"
        assert pictures.nth(place).evaluate(marks) > 4
        tables.nth(place).locator("summary").focus()
        page.keyboard.press("Enter")
        expect(tables.nth(place).locator("tbody tr").nth(1)).to_be_visible()
    if name == "cohorts-rollout":
        slices = set(tables.nth(2).locator("tbody th").all_inner_texts())
        assert {"noise = clean", "noise = street", "length = long"} <= slices


@pytest.mark.nightly
def test_trust_details_open_by_keyboard(viewer: Viewer, full: Dashboard) -> None:
    behind = ("protocol", "corpus", "telemetry", "heard vs reported", "generator", "calibration")
    for name, named in {"now": behind, "objectives": ("runs", "calibration"), "runs": ("runs", "calibration")}.items():
        page = opened(viewer, full, name)
        chip, details = page.locator('[class*="st-key-trust-"] button'), page.locator(".vp-details")
        expect(details.filter(visible=True)).to_have_count(0)
        chip.focus()
        page.keyboard.press("Enter")
        expect(details).to_be_visible()
        for word in named:
            expect(details).to_contain_text(word)
        page.keyboard.press("Escape")
        expect(details.filter(visible=True)).to_have_count(0)
        expect(chip).to_be_focused()


def without_turns(store: Path) -> None:
    StoreWriter(store).close()


def of_one_turn(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns() - 4_000 * S, seed=2, ended=True))


def that_has_not_ended(store: Path) -> None:
    fill(store, Scene(turns=60, newest_unix_ns=time.time_ns() - 3_600 * S))


# What a page shows of itself in any state: figures, a table, or why it has none.
DRAWN: Final = "#root :is(.vp-lines, .vp-empty, .vp-note, .vp-verdict, .vp table), #root [data-testid='stDataFrame']"


@pytest.mark.nightly
@pytest.mark.parametrize("filled", [without_turns, of_one_turn, that_has_not_ended])
def test_every_page_can_be_read_in_every_state(viewer: Viewer, tmp_path: Path, filled: Callable[[Path], None]) -> None:
    filled(tmp_path / "store")
    dashboard = start_dashboard("--store", str(tmp_path / "store"))
    page = viewer.opens(dashboard.url, width=TWO_WIDTHS[0])
    try:
        for name in ("now", "turns", "cohorts", "rollout", "objectives", "runs", "cache", "instrument"):
            takes(page, TWO_WIDTHS[0])
            page.goto(f"{dashboard.url}/{'' if name == 'now' else name}")
            expect(page.get_by_role("heading", name=PAGES[name][0], exact=True)).to_be_visible()
            expect(page.locator(DRAWN).first).to_be_attached()
            for width in TWO_WIDTHS:
                takes(page, width)
                which = f"{name}-{filled.__name__}-{width}"
                assert cut_off(page) == [], which
                assert violations(page) == {}, which
                kept(page, which)
    finally:
        dashboard.end()
