"""The charts alone, in a real Chromium, by Streamlit's own drawing."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import BOUND_MS
from tests.browser.pictures import CUT_WORDS, left_over
from tests.integration.peers.processes import free_port, running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHARTS = 48  # as many as the page has
ROOT = Path(__file__).parents[2]


@pytest.fixture
def charts_url(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    options = {"server.port": port, "server.address": "127.0.0.1", "server.headless": "true",
               "server.fileWatcherType": "none", "browser.gatherUsageStats": "false"}  # fmt: skip
    flags = [flag for name, value in options.items() for flag in (f"--{name}", str(value))]
    app = str(Path(__file__).parent / "time_axes_app.py")
    command = [sys.executable, "-m", "streamlit", "run", app, *flags]
    with running(command, port, tmp_path / "log", environment={"PYTHONPATH": str(ROOT)}):
        yield f"http://127.0.0.1:{port}"


def test_the_last_time_of_an_axis_is_not_cut_off_wherever_it_falls(browser: Browser, charts_url: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(charts_url)
    expect(page.get_by_text("all drawn")).to_be_visible(timeout=BOUND_MS)
    expect(page.locator('[data-testid="stVegaLiteChart"] svg.marks')).to_have_count(CHARTS, timeout=BOUND_MS)

    assert left_over(page, CUT_WORDS) == []

    page.close()
