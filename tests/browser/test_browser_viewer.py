"""What a viewer's own clock and theme change of a page, in a real Chromium."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from playwright.sync_api import Browser, Page, WebSocket, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from dashboard.charts.drawing import DARK, LIGHT
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.browser.test_browser_dashboard import BOUND_MS, Dashboard, painted, start
from tests.unit.dashboard.scenes import MS, S, Scene, run_span, turns_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# The run ends at a quarter to six in the evening in UTC, which is after eleven in Kolkata.
ENDS_UNIX_NS = int(datetime(2026, 11, 20, 17, 45, tzinfo=UTC).timestamp()) * S
TURNS = 900
# The colors of the marks, words and lines of the pictures, which are drawn as SVG.
_COLORS = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg *')]
  .flatMap(e => [e.getAttribute('fill'), e.getAttribute('stroke')]).filter(Boolean)"""
KOLKATA = ZoneInfo("Asia/Kolkata")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A run that ended long ago, of which the second half answers late."""
    store = tmp_path_factory.mktemp("viewer") / "store"
    scene = Scene(turns=TURNS, newest_unix_ns=ENDS_UNIX_NS, ended=True, cohorts=(), service=False, invalid_share=0.0)
    late = ("llm_first_token", "llm_first_sentence", "llm_last_token", "tts_first_chunk", "first_audio", "reply_end")
    turns = [
        turn
        if place < TURNS // 2
        else msgspec.structs.replace(
            turn,
            **{
                f"{name}_perf_ns": value + 700 * MS
                for name in late
                if (value := getattr(turn, f"{name}_perf_ns")) is not None
            },
        )
        for place, turn in enumerate(turns_of(scene))
    ]
    with StoreWriter(store) as writer:
        writer.append(Batch(turns=turns, spans=[run_span(scene, "start"), run_span(scene, "end")]))
    dashboard = start(store)
    yield dashboard
    dashboard.end()


def opened(browser: Browser, served: Dashboard, zone: str) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, timezone_id=zone, color_scheme="light")
    page.goto(served.url)
    painted(page)
    return page


def colors_of(page: Page) -> set[str]:
    return set(page.evaluate(_COLORS))


def test_the_beginning_of_a_miss_stands_in_utc_and_on_the_viewers_clock(browser: Browser, served: Dashboard) -> None:
    page = opened(browser, served, "Asia/Kolkata")
    verdict = page.locator(".vp-verdict").inner_text()
    found = re.search(r"since (\d\d):(\d\d) UTC.*\((\d\d):(\d\d):\d\d on your clock\)", verdict, re.DOTALL)
    assert found is not None, verdict
    hour, minute, own_hour, own_minute = map(int, found.groups())
    at = datetime(2026, 11, 20, hour, minute, tzinfo=UTC).astimezone(KOLKATA)
    assert (at.hour, at.minute) == (own_hour, own_minute)
    # The head and the tables speak of the same clock as the remark.
    expect(page.locator(".vp-facts").first).to_contain_text("20 Nov 23:1")
    page.close()


def test_a_viewer_whose_clock_is_utc_has_no_second_time(browser: Browser, served: Dashboard) -> None:
    page = opened(browser, served, "UTC")
    assert "UTC" in page.locator(".vp-verdict").inner_text()
    assert "on your clock" not in page.locator(".vp-verdict").inner_text()
    expect(page.locator(".vp-facts").first).to_contain_text("20 Nov 17:4")
    page.close()


def test_the_pictures_of_an_ended_run_follow_a_switch_of_the_theme(browser: Browser, served: Dashboard) -> None:
    page = opened(browser, served, "UTC")
    assert colors_of(page).isdisjoint(DARK.series)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({_COLORS})().includes('{DARK.series[0]}')", timeout=BOUND_MS)
    assert colors_of(page).isdisjoint({LIGHT.series[0], LIGHT.soft, LIGHT.ink, LIGHT.line})
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({_COLORS})().includes('{LIGHT.series[0]}')", timeout=BOUND_MS)
    page.close()


def test_no_message_to_a_page_stands_for_an_earlier_one(browser: Browser, served: Dashboard) -> None:
    # A message that stands for one that the browser has forgotten disconnects the page for good.
    messages: list[ForwardMsg] = []

    def listen(socket: WebSocket) -> None:
        def take(frame: bytes | str) -> None:
            assert isinstance(frame, bytes)
            messages.append(ForwardMsg.FromString(frame))

        socket.on("framereceived", take)

    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.on("websocket", listen)
    page.goto(served.url)
    painted(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({_COLORS})().includes('{DARK.series[0]}')", timeout=BOUND_MS)
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({_COLORS})().includes('{LIGHT.series[0]}')", timeout=BOUND_MS)
    page.close()
    kinds = [message.WhichOneof("type") for message in messages]
    assert kinds.count("script_finished") >= 3
    assert "ref_hash" not in kinds
