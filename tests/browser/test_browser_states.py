"""Every page of a store that has little or damaged data, in a real Chromium: axe finds nothing, and nothing is cut off.

With `VOICEPROBE_SHOTS` a screenshot of each is written to that folder, for a person to look at.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from telemetry.store.writer import StoreWriter
from tests.browser.pictures import left_over
from tests.browser.test_browser_accessibility import BOUND_MS, CUT_OFF, HEIGHT, PAGES, SHOTS, settled, violations
from tests.browser.test_browser_dashboard import start
from tests.unit.dashboard.scenes import S, Scene, fill

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

WIDTHS: Final = (390, 1280)
WITHOUT_TURN: Final = [name for name in PAGES if not name.startswith("turn-") and name != "turn"]
# What a page shows of itself in any state: figures, a table, or why it has none.
DRAWN: Final = "#root :is(.vp-lines, .vp-empty, .vp-note, .vp-verdict, .vp table), #root [data-testid='stDataFrame']"


def without_turns(store: Path) -> None:
    StoreWriter(store).close()


def of_one_turn(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns() - 4_000 * S, seed=2, ended=True))


def that_has_not_ended(store: Path) -> None:
    fill(store, Scene(turns=60, newest_unix_ns=time.time_ns() - 3_600 * S))


@pytest.mark.parametrize("filled", [without_turns, of_one_turn, that_has_not_ended])
def test_every_page_can_be_read_in_every_state(
    browser: Browser, tmp_path: Path, filled: Callable[[Path], None]
) -> None:
    filled(tmp_path / "store")
    dashboard = start(tmp_path / "store")
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": HEIGHT}, color_scheme="light")
    page.set_default_timeout(BOUND_MS)
    try:
        for name in WITHOUT_TURN:
            page.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
            page.goto(f"{dashboard.url}/{'' if name == 'now' else name}")
            expect(page.get_by_role("heading", name=PAGES[name][0], exact=True)).to_be_visible(timeout=BOUND_MS)
            expect(page.locator(DRAWN).first).to_be_attached(timeout=BOUND_MS)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": HEIGHT})
                page.wait_for_function("width => document.documentElement.clientWidth === width", arg=width)
                settled(page)
                which = f"{name}, {filled.__name__}, {width} px"
                assert left_over(page, CUT_OFF) == [], which
                assert violations(page) == {}, which
                if SHOTS:
                    page.wait_for_timeout(1_000)  # for the eye only: lets the charts come to rest
                    page.screenshot(path=str(Path(SHOTS) / f"{name}-{filled.__name__}-{width}.png"), full_page=True)
    finally:
        page.close()
        dashboard.end()
