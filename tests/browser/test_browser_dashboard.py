"""The dashboard in a real Chromium over a real store: what a person sees, clicks and sends to a colleague."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, WebSocket, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from telemetry.charts.drawing import DARK, LIGHT
from telemetry.model.turns import Turn
from telemetry.store.writer import StoreWriter
from tests import asking
from tests.browser.conftest import BOUND_MS, FEW, MANY, Viewer, choose
from tests.browser.dashboard_process import Dashboard, start_dashboard
from tests.browser.pictures import texts_spaced
from tests.fixtures_rollouts import read_rollouts
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, turns_request
from tests.nightly import nightly_after
from tests.unit.dashboard.scenes import MS, S, Scene, turns_of

pytestmark = pytest.mark.browser
expect.set_options(timeout=BOUND_MS)

# The colors of the marks, words and lines of the pictures, which are drawn as SVG.
_COLORS: Final = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg *')]
  .flatMap(e => [e.getAttribute('fill'), e.getAttribute('stroke')]).filter(Boolean)"""
# The texts of the player that an edge of its picture cuts off.
_CUT_LABELS: Final = """picture => {
  const edges = picture.getBoundingClientRect();
  return [...picture.querySelectorAll('text')].map(t => [t.getBoundingClientRect(), t.textContent])
    .filter(([box]) => box.left < edges.left - 1 || box.right > edges.right + 1).map(([, text]) => text);
}"""
ROWS: Final = ".vp-turns tbody tr"


def painted(page: Page, *, has_picture: bool = True) -> None:
    """Wait until tiles, tables and the chart are there; too few turns have none."""
    expect(page.locator(".vp-tile")).to_have_count(3)
    if has_picture:
        expect(page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first).to_be_visible()
    expect(page.get_by_text("Slowest turns")).to_be_attached()


def fits(page: Page, *texts: str) -> None:
    """Nothing to scroll to sideways, and the parts are inside the window without scrolling."""
    assert page.get_by_test_id("stMain").evaluate("e => e.scrollWidth <= e.clientWidth")
    size = page.viewport_size
    assert size is not None
    for text in texts:
        box = page.get_by_text(text, exact=False).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= size["height"]
        assert box["x"] + box["width"] <= size["width"]


@pytest.mark.parametrize(("width", "height"), nightly_after(1, [(1280, 800), (1440, 900), (1920, 1080)]))
def test_verdict_and_its_evidence_fit_one_screen(viewer: Viewer, full: Dashboard, width: int, height: int) -> None:
    page = viewer.opens(f"{full.url}/?run=run-full", width=width, height=height)
    painted(page)
    fits(page, "Missing the objective", "Voice to voice p95", "Voice to voice over time", "Stages against objectives")
    if width > 1280:
        fits(page, "Where a turn's time goes", "Which dimension explains it")


def test_a_click_on_a_slow_turn_opens_its_waterfall(viewer: Viewer, full: Dashboard) -> None:
    page = viewer.opens(f"{full.url}/?run=run-full&cohort=B")
    painted(page)
    row = page.locator(".vp-slow a").first
    slowest_ms = re.sub(r"[^0-9]", "", row.inner_text())
    row.click()
    expect(page.get_by_text("One turn on one clock")).to_be_visible()
    expect(page.locator(".player .picture svg")).to_be_visible()
    assert slowest_ms in re.sub(r"[^0-9]", "", page.locator(".vp-lines").first.inner_text())
    expect(page.get_by_text("Was it measured well?")).to_be_visible()
    page.get_by_text("back to the run").click()
    painted(page)
    assert "cohort=B" in page.url


def test_a_filter_survives_a_reload_by_its_link_on_every_page(viewer: Viewer, full: Dashboard) -> None:
    page = viewer.opens(f"{full.url}/?run=run-full")
    painted(page)
    choose(page.get_by_role("combobox", name="Cohort"), "B")
    page.wait_for_url(re.compile("cohort=B"))
    for seen in (page, viewer.opens(f"{full.url}/?run=run-full&cohort=B")):
        expect(seen.locator(".vp-lines")).to_contain_text("448 turns")
        seen.reload()
        expect(seen.locator(".vp-lines")).to_contain_text("448 turns")
    assert "run=run-full" in page.url

    def expect_turns(turns: int) -> None:
        """Expect so many turns in the longest window of the objective that every turn counts for."""
        row = page.get_by_role("row").filter(has_text="The caller gets an answer")
        expect(row.locator("td").last).to_contain_text(f"/ {turns:,}")

    # A viewer who comes by the navigation sees every run, as that page says.
    page.get_by_role("link", name="Objectives", exact=True).click()
    overview = page.locator(".vp-lines").first
    expect(overview).to_contain_text("every run of this store")
    assert page.url.endswith("/objectives")
    page.get_by_role("combobox", name="Run").click()
    page.get_by_role("option", name="run-many").click()
    expect_turns(MANY.turns)
    choose(page.get_by_role("combobox", name="Cohort"), "A")
    of_cohort = sum(turn.cohort == "A" for turn in turns_of(MANY))
    expect_turns(of_cohort)
    page.reload()
    expect_turns(of_cohort)
    page.get_by_role("button", name="Filters").click()
    choose(page.get_by_role("combobox", name="Noise"), "babble")
    expect(page.get_by_role("button", name="Filters (1)")).to_be_visible()
    expect(overview).to_contain_text("babble")
    assert {"run=run-many", "cohort=A", "noise=babble"} <= set(urlsplit(page.url).query.split("&"))


@pytest.mark.nightly
def test_runs_of_one_turn_of_many_and_without_an_end_differ(viewer: Viewer, full: Dashboard) -> None:
    page = viewer.opens(f"{full.url}/?run=run-one")
    painted(page, has_picture=False)
    expect(page.get_by_text("too few turns for a p95")).to_be_visible()
    assert page.get_by_test_id("stVegaLiteChart").count() == 0
    expect(page.locator(".vp-tile").first).to_contain_text("too few (1)")
    expect(page.locator(".vp-verdict")).to_contain_text("Undecided: ")
    page = viewer.opens(f"{full.url}/?run=run-few")
    painted(page)
    expect(page.locator(".vp-lines")).to_contain_text("h ago; the run has not said that it ended")
    # Its process never announced an end: the figures claim nothing.
    expect(page.locator(".vp-verdict")).to_contain_text("Not judged: 1 of 1 generator process was lost")
    page = viewer.opens(f"{full.url}/?run=run-many", height=800)
    painted(page)
    expect(page.locator(".vp-lines")).to_contain_text("ended")
    fits(page, "Stages against objectives")


def _send(sidecar: SidecarProcess, turns: list[Turn]) -> None:
    body = turns_request(turns).SerializeToString()
    headers = {"content-type": "application/x-protobuf"}
    assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=headers).status_code == 200


def test_missing_store_appears_by_itself_and_page_follows_run(viewer: Viewer, tmp_path: Path) -> None:
    dashboard = start_dashboard("--store", str(tmp_path / "store"))
    page = viewer.opens(dashboard.url)
    expect(page.get_by_text("The store cannot be read")).to_be_visible()
    with running_sidecar(tmp_path / "store") as sidecar:
        expect(page.get_by_text("No turns yet")).to_be_visible()
        # The first half ends now, and stays recent for as long as a slow machine takes to paint.
        turns = turns_of(Scene(turns=120, newest_unix_ns=time.time_ns() + 60 * S))
        _send(sidecar, turns[:60])
        expect(page.locator(".vp-lines")).to_contain_text("60 turns")
        painted(page)
        expect(page.locator(".vp-lines")).to_contain_text("live")
        # The chart that is there is the chart that stays: a refresh exchanges its rows and nothing else.
        chart = page.get_by_test_id("stVegaLiteChart").locator("canvas, svg").first
        chart.evaluate("e => { e.dataset.kept = 'yes' }")
        # The rows of its table come when it is opened, and stay over a refresh.
        table = page.locator(".vp-chart-table table")
        expect(table).to_have_count(0)
        page.locator('[data-testid="stExpander"] summary').first.press("Enter")
        expect(table).to_be_visible()
        _send(sidecar, turns[60:])
        expect(page.locator(".vp-lines")).to_contain_text("120 turns")
        expect(table).to_be_visible()
        assert chart.evaluate("e => e.dataset.kept") == "yes"
    dashboard.end()


def test_the_dashboard_ends_on_sigterm_without_leaving_children(tmp_path: Path) -> None:
    StoreWriter(tmp_path / "store").close()
    start_dashboard("--store", str(tmp_path / "store")).end()


def test_rollout_verdict_is_first_and_other_turns_are_one_click(viewer: Viewer, full: Dashboard, store: Path) -> None:
    (record,) = read_rollouts(store)
    page = viewer.opens(f"{full.url}/cohorts")
    verdict, chart = page.locator(".vp-verdict"), page.get_by_test_id("stVegaLiteChart").first
    expect(verdict).to_contain_text(record.verdicts[-1].verdict.sentence)
    expect(verdict).to_contain_text("p95 of voice to voice is worse:")
    expect(chart).to_be_visible()
    top, below = verdict.bounding_box(), chart.bounding_box()
    assert top is not None
    assert below is not None
    assert top["y"] < below["y"]
    choose(page.get_by_label(re.compile("Compared turns")), "of the run and time above")
    expect(page.get_by_text("no verdict", exact=False)).to_be_visible()
    expect(page).to_have_url(re.compile("turns=chosen"))
    page.reload()
    expect(page.get_by_text("of the turns that were chosen here", exact=False)).to_be_visible()
    expect(page.locator(".vp-verdict")).to_contain_text("roll back")


def test_choice_of_compared_turns_is_in_link_of_chosen_run(viewer: Viewer, full: Dashboard) -> None:
    page = viewer.opens(f"{full.url}/cohorts?run=run-1")
    choose(page.get_by_label(re.compile("Compared turns")), "of the rollout's verdict")
    expect(page).to_have_url(re.compile("run=run-1&turns=verdict"))
    page.reload()
    expect(page.get_by_label(re.compile("Compared turns"))).to_have_value("of the rollout's verdict")


@pytest.mark.nightly
def test_a_search_is_in_the_link_and_survives_a_reload(viewer: Viewer, full: Dashboard) -> None:
    page = viewer.opens(f"{full.url}/turns?run=run-few")
    find = page.get_by_label("Find")
    find.fill("utt-07")
    find.press("Enter")
    expect(page.locator(ROWS)).to_have_count(1)
    assert "find=utt-07" in page.url
    page.reload()
    expect(page.locator(ROWS)).to_have_count(1)
    expect(page.get_by_label("Find")).to_have_value("utt-07")


def test_a_click_on_a_cell_of_the_heat_map_lists_its_turns(viewer: Viewer, full: Dashboard) -> None:
    """Where a cell is is what the picture itself says, so that the click hits one."""
    page = viewer.opens(f"{full.url}/turns?run=run-few")
    expect(page.locator(ROWS)).to_have_count(25)
    picture = page.get_by_test_id("stVegaLiteChart").first.locator("canvas, svg").first
    expect(picture).to_be_visible()
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
    _lists_the_cell(page)


@pytest.mark.nightly
def test_a_cell_of_the_heat_map_is_reached_by_keyboard(viewer: Viewer, full: Dashboard) -> None:
    page = viewer.opens(f"{full.url}/turns?run=run-few")
    page.locator('[data-testid="stExpander"] summary', has_text="turns by time and latency").focus()
    page.keyboard.press("Enter")
    region = page.get_by_role("region", name="turns by time and latency")
    expect(region.locator("tbody a").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(region).to_be_focused()
    page.keyboard.press("Tab")
    expect(region.locator("tbody a").first).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("since_s="))
    _lists_the_cell(page)


def _lists_the_cell(page: Page) -> None:
    """Exactly the turns that began then and took so long, by the scene that filled the store."""
    chosen = parse_qs(urlsplit(page.url).query)
    since, until, low, high = (int(chosen[name][0]) for name in ("since_s", "until_s", "from_ms", "below_ms"))
    meant = [
        turn
        for turn in turns_of(FEW)
        if turn.outcome != "invalid"
        and turn.first_audio_perf_ns is not None
        and turn.speech_end_perf_ns is not None
        and since * S <= turn.started_unix_ns < until * S
        and low * MS <= turn.first_audio_perf_ns - turn.speech_end_perf_ns < high * MS
    ]
    assert meant
    expect(page.locator(ROWS)).to_have_count(len(meant))
    listed = {row.split("\t")[3] for row in page.locator(ROWS).all_inner_texts()}
    assert listed == {turn.utterance_id for turn in meant}


def opened_player(viewer: Viewer, full: Dashboard) -> Page:
    """The one turn whose audio was kept, found by its words."""
    page = viewer.opens(f"{full.url}/turns?run=run-full&find=the%20salt")
    row = page.locator(f"{ROWS} a")
    expect(row).to_have_count(1)
    row.click()
    expect(page.locator(".player .wave")).to_have_count(2)
    return page


def test_playhead_moves_over_waterfall_while_audio_plays(viewer: Viewer, full: Dashboard) -> None:
    page = opened_player(viewer, full)
    head, play = page.locator(".player .head"), page.get_by_role("button", name="Play")
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
def test_player_is_legible_at_all_widths_themes_and_has_keys(viewer: Viewer, full: Dashboard) -> None:
    page = opened_player(viewer, full)
    picture = page.locator(".player .picture")
    for width in (390, 768, 1024, 1280, 1920, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        expect(picture.locator("svg")).to_have_attribute("width", str(picture.evaluate("e => e.clientWidth")))
        assert picture.evaluate(_CUT_LABELS) == [], f"{width} px"
        with texts_spaced(page):
            assert picture.evaluate(_CUT_LABELS) == [], f"{width} px, spaced"
    for colors, scheme in ((LIGHT, "light"), (DARK, "dark"), (LIGHT, "light")):
        page.emulate_media(color_scheme=scheme)
        red, green, blue = bytes.fromhex(colors.ink.removeprefix("#"))
        expect(page.locator(".player .label").first).to_have_css("fill", f"rgb({red}, {green}, {blue})")
    slider = page.get_by_role("slider", name="Position in the audio")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_value("200")
    for table in ("the stages and moments of the turn", "the turns of the call"):
        page.locator('[data-testid="stExpander"] summary', has_text=table).press("Enter")
        expect(page.get_by_role("region", name=table).locator("tbody tr").nth(3)).to_be_visible()
        if table.startswith("the stages"):
            page.get_by_role("link", name="listen to the whole call").click()


@pytest.mark.nightly
def test_onset_of_miss_is_in_utc_and_on_clock_of_viewer(viewer: Viewer, full: Dashboard) -> None:
    zone = "Asia/Kolkata"
    page = viewer.opens(f"{full.url}/?run=run-late", zone=zone)
    painted(page)
    verdict = page.locator(".vp-verdict").inner_text()
    result = re.search(r"since (\d\d):(\d\d) UTC.*\((\d\d):(\d\d):\d\d on your clock\)", verdict, re.DOTALL)
    assert result is not None, verdict
    hour, minute, own_hour, own_minute = map(int, result.groups())
    at = datetime(2026, 11, 20, hour, minute, tzinfo=UTC).astimezone(ZoneInfo(zone))
    assert (at.hour, at.minute) == (own_hour, own_minute)
    # The head and the tables speak of the same clock as the remark.
    expect(page.locator(".vp-lines").first).to_contain_text("20 Nov 23:1")
    page = viewer.opens(f"{full.url}/?run=run-late")
    painted(page)
    assert "on your clock" not in page.locator(".vp-verdict").inner_text()
    expect(page.locator(".vp-lines").first).to_contain_text("20 Nov 17:4")


@pytest.mark.nightly
def test_pictures_follow_theme_and_no_message_refers_to_earlier(browser: Browser, full: Dashboard) -> None:
    """A message that refers to one that the browser has forgotten disconnects the page for good."""
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
    assert set(page.evaluate(_COLORS)).isdisjoint(DARK.series)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({_COLORS})().includes('{DARK.series[0]}')")
    assert set(page.evaluate(_COLORS)).isdisjoint({LIGHT.series[0], LIGHT.soft, LIGHT.ink, LIGHT.line})
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({_COLORS})().includes('{LIGHT.series[0]}')")
    page.close()
    kinds = [message.WhichOneof("type") for message in messages]
    assert kinds.count("script_finished") >= 3
    assert "ref_hash" not in kinds
