"""The Turns page and one turn in a real Chromium: a slow turn opens, a filter survives a reload, the playhead moves."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from telemetry.charts.drawing import DARK, LIGHT
from tests.browser.dashboard_process import start_dashboard
from tests.browser.pictures import texts_spaced
from tests.unit.dashboard.scenes import MS, S, Scene, fill, turns_of
from tests.unit.telemetry.store.test_store_turn_pages import keep_audio

pytestmark = pytest.mark.browser

BOUND_MS = 60_000
NEWEST = 1_800_000_000 * S
# The texts of the player that an edge of its picture cuts off.
_CUT_LABELS = """picture => {
  const edges = picture.getBoundingClientRect();
  return [...picture.querySelectorAll('text')].map(t => [t.getBoundingClientRect(), t.textContent])
    .filter(([box]) => box.left < edges.left - 1 || box.right > edges.right + 1).map(([, text]) => text);
}"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("store")
    clients = fill(store, Scene(60, NEWEST, ended=True))
    # For a test's life: the scene lies in the future of most clocks, and recordings are kept from then on.
    keep_audio(store, clients[1])
    dashboard = start_dashboard("--store", str(store))
    yield dashboard.url
    dashboard.end()


def test_a_click_on_a_slow_turn_opens_its_waterfall(page: Page, url: str) -> None:
    page.goto(f"{url}/turns", timeout=BOUND_MS)
    rows = page.locator(".vp-turns tbody tr")
    expect(rows).to_have_count(25, timeout=BOUND_MS)
    slowest = rows.first.locator("a").inner_text().removesuffix(" →")
    rows.first.locator("a").click()
    expect(page.get_by_role("heading", name="Turn", exact=True)).to_be_visible(timeout=BOUND_MS)
    expect(page.locator(".vp-lines").first).to_contain_text(slowest, timeout=BOUND_MS)
    expect(page.locator(".player .picture svg")).to_be_visible(timeout=BOUND_MS)


@pytest.mark.nightly
def test_a_search_is_in_the_link_and_survives_a_reload(page: Page, url: str) -> None:
    page.goto(f"{url}/turns", timeout=BOUND_MS)
    find = page.get_by_label("Find")
    expect(find).to_be_visible(timeout=BOUND_MS)
    find.fill("utt-07")
    find.press("Enter")
    expect(page.locator(".vp-turns tbody tr")).to_have_count(1, timeout=BOUND_MS)
    assert "find=utt-07" in page.url
    page.reload(timeout=BOUND_MS)
    expect(page.locator(".vp-turns tbody tr")).to_have_count(1, timeout=BOUND_MS)
    expect(page.get_by_label("Find")).to_have_value("utt-07", timeout=BOUND_MS)


def test_the_playhead_moves_over_the_waterfall_while_the_audio_plays(page: Page, url: str) -> None:
    page.goto(f"{url}/turns?find=the%20salt", timeout=BOUND_MS)
    row = page.locator(".vp-turns tbody tr a")
    expect(row).to_have_count(1, timeout=BOUND_MS)
    row.click()
    head, play = page.locator(".player .head"), page.get_by_role("button", name="Play")
    expect(head).to_be_attached(timeout=BOUND_MS)
    expect(page.locator(".player .wave")).to_have_count(2)
    before, x = float(head.get_attribute("data-ms") or "nan"), float(head.get_attribute("x1") or "nan")
    play.focus()
    page.keyboard.press("k")
    page.wait_for_function(
        """(before) => {
          const found = [...document.querySelectorAll("*")].map((each) => each.shadowRoot?.querySelector(".head"));
          return found.some((head) => head && Number(head.getAttribute("data-ms")) > before + 200);
        }""",
        arg=before,
    )
    assert float(head.get_attribute("x1") or "nan") > x
    page.get_by_role("button", name="Pause").press("k")
    page.get_by_role("button", name="The wait").click()
    expect(page.get_by_role("button", name="The wait")).to_have_attribute("aria-pressed", "true")


@pytest.mark.nightly
def test_the_player_has_its_figures_as_a_table_and_is_moved_by_keyboard(page: Page, url: str) -> None:
    page.goto(f"{url}/turns?find=the%20salt", timeout=BOUND_MS)
    page.locator(".vp-turns tbody tr a").click()
    slider = page.get_by_role("slider", name="Position in the audio")
    expect(slider).to_be_visible(timeout=BOUND_MS)
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_value("200")
    for table, link in (
        ("the stages and moments of the turn", "listen to the whole call"),
        ("the turns of the call", ""),
    ):
        page.locator('[data-testid="stExpander"] summary', has_text=table).press("Enter")
        rows = page.get_by_role("region", name=table).locator("tbody tr")
        expect(rows.nth(3)).to_be_visible(timeout=BOUND_MS)
        if link:
            page.get_by_role("link", name=link).click()


@pytest.mark.nightly
def test_no_label_of_the_player_is_cut_off_at_any_width(page: Page, url: str) -> None:
    page.goto(f"{url}/turns?find=the%20salt", timeout=BOUND_MS)
    page.locator(".vp-turns tbody tr a").click()
    picture = page.locator(".player .picture")
    expect(picture.locator(".wave")).to_have_count(2, timeout=BOUND_MS)
    for width in (390, 768, 1024, 1280, 1920, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        expect(picture.locator("svg")).to_have_attribute("width", str(picture.evaluate("e => e.clientWidth")))
        assert picture.evaluate(_CUT_LABELS) == [], f"{width} px"
        with texts_spaced(page):
            assert picture.evaluate(_CUT_LABELS) == [], f"{width} px, spaced"


@pytest.mark.nightly
def test_the_player_follows_a_switch_of_the_theme(page: Page, url: str) -> None:
    page.goto(f"{url}/turns?find=the%20salt", timeout=BOUND_MS)
    page.locator(".vp-turns tbody tr a").click()
    label = page.locator(".player .label").first
    expect(label).to_have_css("fill", _rgb(LIGHT.ink), timeout=BOUND_MS)
    page.emulate_media(color_scheme="dark")
    expect(label).to_have_css("fill", _rgb(DARK.ink), timeout=BOUND_MS)


def _rgb(color: str) -> str:
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return f"rgb({red}, {green}, {blue})"


def test_a_click_on_a_cell_of_the_heat_map_lists_its_turns(page: Page, url: str) -> None:
    """Where a cell stands is what the picture itself says, so that the click hits one."""
    page.goto(f"{url}/turns", timeout=BOUND_MS)
    rows = page.locator(".vp-turns tbody tr")
    expect(rows).to_have_count(25, timeout=BOUND_MS)
    picture = page.get_by_test_id("stVegaLiteChart").first.locator("canvas, svg").first
    expect(picture).to_be_visible(timeout=BOUND_MS)
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    assert box is not None
    for share in (0.66, 0.6, 0.72, 0.54, 0.78, 0.48):  # a cell of the busiest bands, below the middle of the picture
        page.mouse.click(box["x"] + box["width"] * 0.45, box["y"] + box["height"] * share)
        try:
            page.wait_for_url(re.compile("since_s="), timeout=5_000)
            break
        except PlaywrightTimeoutError:
            continue
    chosen = parse_qs(urlsplit(page.url).query)
    assert {"since_s", "until_s", "from_ms", "below_ms"} <= set(chosen)
    _lists_the_cell(page, chosen)


@pytest.mark.nightly
def test_a_cell_of_the_heat_map_is_reached_by_keyboard(page: Page, url: str) -> None:
    page.goto(f"{url}/turns", timeout=BOUND_MS)
    summary = page.locator('[data-testid="stExpander"] summary', has_text="turns by time and latency")
    expect(summary).to_be_visible(timeout=BOUND_MS)
    summary.focus()
    page.keyboard.press("Enter")
    region = page.get_by_role("region", name="turns by time and latency")
    expect(region.locator("tbody a").first).to_be_visible(timeout=BOUND_MS)
    page.keyboard.press("Tab")
    expect(region).to_be_focused()
    page.keyboard.press("Tab")
    expect(region.locator("tbody a").first).to_be_focused()
    n = int(region.locator("tbody tr").first.locator("td").last.inner_text())
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("since_s="), timeout=BOUND_MS)
    expect(page.locator(".vp-turns tbody tr")).to_have_count(n, timeout=BOUND_MS)
    _lists_the_cell(page, parse_qs(urlsplit(page.url).query))


def _lists_the_cell(page: Page, chosen: dict[str, list[str]]) -> None:
    """Exactly the turns that began then and took so long, by the scene that filled the store."""
    since, until, low, high = (int(chosen[name][0]) for name in ("since_s", "until_s", "from_ms", "below_ms"))
    meant = [
        turn
        for turn in turns_of(Scene(60, NEWEST, ended=True))
        if turn.outcome != "invalid"
        and turn.first_audio_perf_ns is not None
        and turn.speech_end_perf_ns is not None
        and since * S <= turn.started_unix_ns < until * S
        and low * MS <= turn.first_audio_perf_ns - turn.speech_end_perf_ns < high * MS
    ]
    assert meant
    rows = page.locator(".vp-turns tbody tr")
    expect(rows).to_have_count(len(meant), timeout=BOUND_MS)
    listed = {row.split("\t")[3] for row in rows.all_inner_texts()}
    assert listed == {turn.utterance_id for turn in meant}
