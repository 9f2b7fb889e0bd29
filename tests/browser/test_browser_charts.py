"""The charts alone, in a real Chromium, by Streamlit's own drawing."""

import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import BOUND_MS
from tests.browser.pictures import CUT_WORDS, left_over
from tests.integration.peers.processes import free_port, running

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

CHARTS = 48  # as many as the page has
LENGTHS = 30  # likewise
ROOT = Path(__file__).parents[2]


# A function for the page: the labels of moments of each picture that has both kinds of them.
_UNLIKE_MOMENTS: Final = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')]
  .map(e => [...e.querySelectorAll('text')].filter(t => t.getAttribute('opacity') !== '0').map(t => t.textContent)
    .filter(text => /^\\d\\d:\\d\\d(:\\d\\d)?$/.test(text)))
  .filter(texts => !texts.length || new Set(texts.map(text => text.length)).size > 1).map(texts => texts.join(' '))"""


@contextlib.contextmanager
def shown(app: str, folder: Path) -> Generator[str]:
    """A page of this folder, served by Streamlit; its address."""
    port = free_port()
    options = {"server.port": port, "server.address": "127.0.0.1", "server.headless": "true",
               "server.fileWatcherType": "none", "browser.gatherUsageStats": "false"}  # fmt: skip
    flags = [flag for name, value in options.items() for flag in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "streamlit", "run", str(Path(__file__).parent / app), *flags]
    with running(command, port, folder / "log", environment={"PYTHONPATH": str(ROOT)}):
        yield f"http://127.0.0.1:{port}"


def drawn(browser: Browser, url: str, charts: int, width: int) -> Page:
    """The page once its charts are drawn."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(url)
    expect(page.get_by_text("all drawn")).to_be_visible(timeout=BOUND_MS)
    expect(page.locator('[data-testid="stVegaLiteChart"] svg.marks')).to_have_count(charts, timeout=BOUND_MS)
    return page


def test_the_last_time_of_an_axis_is_not_cut_off_wherever_it_falls(browser: Browser, tmp_path: Path) -> None:
    with shown("time_axes_app.py", tmp_path) as url:
        page = drawn(browser, url, CHARTS, 390)

        assert left_over(page, CUT_WORDS) == []

        page.close()


def test_all_moments_of_an_axis_have_seconds_or_none(browser: Browser, tmp_path: Path) -> None:
    with shown("time_labels_app.py", tmp_path) as url:
        page = drawn(browser, url, LENGTHS, 1280)

        assert left_over(page, _UNLIKE_MOMENTS) == []

        page.close()
