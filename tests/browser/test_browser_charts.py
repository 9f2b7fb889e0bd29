"""The charts alone, in a real Chromium, by Streamlit's own drawing."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import BOUND_MS
from tests.browser.pictures import CUT_WORDS, PICTURES, left_over
from tests.integration.peers.processes import free_port, running

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]


# A function for the page: the labels of moments of each picture that has both kinds of them.
_UNLIKE_MOMENTS: Final = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')]
  .map(e => [...e.querySelectorAll('text')].filter(t => t.getAttribute('opacity') !== '0').map(t => t.textContent)
    .filter(text => /^\\d\\d:\\d\\d(:\\d\\d)?$/.test(text)))
  .filter(texts => !texts.length || new Set(texts.map(text => text.length)).size > 1).map(texts => texts.join(' '))"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page with the charts, served by Streamlit."""
    port = free_port()
    options = {"server.port": port, "server.address": "127.0.0.1", "server.headless": "true",
               "server.fileWatcherType": "none", "browser.gatherUsageStats": "false"}  # fmt: skip
    flags = [flag for name, value in options.items() for flag in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "streamlit", "run", str(Path(__file__).parent / "time_axes_app.py"), *flags]
    with running(command, port, tmp_path_factory.mktemp("charts") / "log", environment={"PYTHONPATH": str(ROOT)}):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("of", "charts", "width", "faults"), [("moments", 48, 390, CUT_WORDS), ("lengths", 30, 1280, _UNLIKE_MOMENTS)]
)
def test_last_time_of_axis_is_whole_and_all_or_no_times_have_s(
    browser: Browser, url: str, of: str, charts: int, width: int, faults: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(f"{url}/?of={of}")
    expect(page.get_by_text("all drawn")).to_be_visible(timeout=BOUND_MS)
    expect(page.locator(PICTURES)).to_have_count(charts, timeout=BOUND_MS)
    assert left_over(page, faults) == []
    page.close()
