"""What a viewer's own clock and theme change of a page, in a real Chromium."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, WebSocket, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from telemetry.charts.drawing import DARK, LIGHT
from tests.browser.dashboard_process import Dashboard
from tests.browser.test_browser_dashboard import BOUND_MS, painted

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

# The colors of the marks, words and lines of the pictures, which are drawn as SVG.
_COLORS = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg *')]
  .flatMap(e => [e.getAttribute('fill'), e.getAttribute('stroke')]).filter(Boolean)"""
KOLKATA = ZoneInfo("Asia/Kolkata")


def opened(browser: Browser, full: Dashboard, zone: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, timezone_id=zone, color_scheme="light")
    page.goto(f"{full.url}/?run=run-late")
    painted(page)
    return page


def colors_of(page: Page) -> set[str]:
    return set(page.evaluate(_COLORS))


def test_the_beginning_of_a_miss_stands_in_utc_and_on_the_viewers_clock(browser: Browser, full: Dashboard) -> None:
    page = opened(browser, full, "Asia/Kolkata")
    verdict = page.locator(".vp-verdict").inner_text()
    found = re.search(r"since (\d\d):(\d\d) UTC.*\((\d\d):(\d\d):\d\d on your clock\)", verdict, re.DOTALL)
    assert found is not None, verdict
    hour, minute, own_hour, own_minute = map(int, found.groups())
    at = datetime(2026, 11, 20, hour, minute, tzinfo=UTC).astimezone(KOLKATA)
    assert (at.hour, at.minute) == (own_hour, own_minute)
    # The head and the tables speak of the same clock as the remark.
    expect(page.locator(".vp-lines").first).to_contain_text("20 Nov 23:1")
    page.close()


def test_a_viewer_whose_clock_is_utc_has_no_second_time(browser: Browser, full: Dashboard) -> None:
    page = opened(browser, full, "UTC")
    assert "UTC" in page.locator(".vp-verdict").inner_text()
    assert "on your clock" not in page.locator(".vp-verdict").inner_text()
    expect(page.locator(".vp-lines").first).to_contain_text("20 Nov 17:4")
    page.close()


def test_the_pictures_of_an_ended_run_follow_a_switch_of_the_theme(browser: Browser, full: Dashboard) -> None:
    page = opened(browser, full, "UTC")
    assert colors_of(page).isdisjoint(DARK.series)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({_COLORS})().includes('{DARK.series[0]}')", timeout=BOUND_MS)
    assert colors_of(page).isdisjoint({LIGHT.series[0], LIGHT.soft, LIGHT.ink, LIGHT.line})
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({_COLORS})().includes('{LIGHT.series[0]}')", timeout=BOUND_MS)
    page.close()


def test_no_message_to_a_page_stands_for_an_earlier_one(browser: Browser, full: Dashboard) -> None:
    # A message that stands for one that the browser has forgotten disconnects the page for good.
    messages: list[ForwardMsg] = []

    def listen(socket: WebSocket) -> None:
        def take(frame: bytes | str) -> None:
            assert isinstance(frame, bytes)
            messages.append(ForwardMsg.FromString(frame))

        socket.on("framereceived", take)

    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.on("websocket", listen)
    page.goto(f"{full.url}/?run=run-late")
    painted(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({_COLORS})().includes('{DARK.series[0]}')", timeout=BOUND_MS)
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({_COLORS})().includes('{LIGHT.series[0]}')", timeout=BOUND_MS)
    page.close()
    kinds = [message.WhichOneof("type") for message in messages]
    assert kinds.count("script_finished") >= 3
    assert "ref_hash" not in kinds
