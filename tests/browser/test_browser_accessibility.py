"""Every page in a real Chromium, narrow and wide, light and dark: axe-core finds nothing, and nothing is cut off.

With `VOICEPROBE_SHOTS` a screenshot of each page in each state is written to that folder, for a person to look at.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.test_browser_dashboard import Dashboard, start
from tests.unit.dashboard.scenes import S, Scene, fill

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BOUND_MS = 180_000
SHOTS = os.environ.get("VOICEPROBE_SHOTS")
PAGES = {"now": "Now", "cache": "Cache and routing", "instrument": "Instrument"}
WIDTHS = (390, 768, 1280, 1920)
# What Streamlit's own parts violate and a page cannot mend: the rule, and a selector of the parts.
STREAMLIT = {
    # Streamlit renders the whole page inside one div: its header and its toolbar are not landmarks.
    "region": '[data-testid="stHeader"], [data-testid="stAppViewContainer"], [data-testid="stToolbar"]',
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    store = tmp_path_factory.mktemp("accessible") / "store"
    now = time.time_ns()
    fill(store, Scene(turns=1, newest_unix_ns=now - 4_000 * S, run_id="run-one", seed=2, ended=True))
    fill(store, Scene(turns=600, newest_unix_ns=now - 3_000 * S, run_id="run-full", ended=True))
    dashboard = start(store)
    yield dashboard
    dashboard.end()


@pytest.fixture
def opened(browser: Browser, served: Dashboard) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def begin(name: str, theme: str, width: int, run: str = "run-full") -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
        )
        pages.append(page)
        path = "" if name == "now" else name
        page.goto(f"{served.url.rstrip('/')}/{path}?run={run}")
        expect(page.get_by_role("heading", name=PAGES[name], exact=True)).to_be_visible(timeout=BOUND_MS)
        expect(page.locator(".vp-tile, .vp-pairs").first).to_be_visible(timeout=BOUND_MS)
        expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0, timeout=BOUND_MS)
        return page

    yield begin
    for page in pages:
        page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", list(PAGES))
def test_axe_finds_nothing_on_a_page(opened: Callable[..., Page], name: str, width: int, theme: str) -> None:
    page = opened(name, theme, width)
    found = Axe().run(page)
    of_streamlit = {rule: page.evaluate("s => [...document.querySelectorAll(s)].map(e => e.outerHTML.slice(0, 80))", s)
                    for rule, s in STREAMLIT.items()}  # fmt: skip
    violations = {
        violation["id"]: [
            node["html"][:200] for node in violation["nodes"] if not _is_of(of_streamlit, violation, node)
        ]
        for violation in found.response["violations"]
    }
    assert {rule: nodes for rule, nodes in violations.items() if nodes} == {}


def _is_of(of_streamlit: dict[str, list[str]], violation: dict[str, str], node: dict[str, str]) -> bool:
    return any(node["html"].startswith(part[:60]) for part in of_streamlit.get(violation["id"], []))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(PAGES))
def test_no_page_is_wider_than_its_window(opened: Callable[..., Page], name: str, width: int) -> None:
    page = opened(name, "light", width)
    main = page.get_by_test_id("stMain")
    assert main.evaluate("e => e.scrollWidth <= e.clientWidth")
    if SHOTS:
        for run in ("run-full", "run-one"):
            shown = page if run == "run-full" else opened(name, "light", width, run)
            shown.wait_for_timeout(1_500)  # for the eye only: lets the charts come to rest
            shown.screenshot(path=str(Path(SHOTS) / f"{name}-{run}-{width}.png"), full_page=True)


def test_the_table_of_a_chart_opens_by_keyboard(opened: Callable[..., Page]) -> None:
    page = opened("cache", "light", 1280)
    summary = page.locator('[data-testid="stExpander"] summary').first
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".vp-chart-table table").first).to_be_visible(timeout=BOUND_MS)
