"""The review page in a real Chromium: a bound is moved, saved, and found in the manifest."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from corpora.manifest.clips import read_clip
from corpora.manifest.manifest import Utterance, read_manifest
from tests.corpus_faults import find_faults
from tests.unit.corpora.sources.importing.sources import RATE_HZ, import_source, put, speech

pytestmark = pytest.mark.browser

BOUND_S = 180
expect.set_options(timeout=BOUND_S * 1000)


@dataclass
class Served:
    folder: Path
    url: str

    def utterance(self, name: str) -> Utterance:
        return next(utterance for utterance in read_manifest(self.folder).utterances if utterance.id == name)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two noisy recordings and one that is beyond doubt."""
    place = tmp_path_factory.mktemp("review")
    rng = np.random.default_rng(3)
    for number, name in enumerate(("first", "second")):
        clip = speech(number)
        noise = rng.standard_normal(len(clip)) * (0.012 - 0.006 * number)
        put(place / "in" / f"{name}.wav", clip + noise, text=f"the {name} <b>one</b>")
    put(place / "in" / "sure.wav", speech(3), text="sure")
    folder = import_source(place / "in", place / "calls", edges="recorded").folder
    process = subprocess.Popen(
        [sys.executable, "-m", "corpora", "review", str(folder), "--headless"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["listed"] == 2
    yield Served(folder, ready["url"])
    process.send_signal(signal.SIGINT)
    output = process.stdout.read()
    assert process.wait(BOUND_S) == 0
    assert output == "2 utterances still doubtful.\n"
    process.stdout.close()


@pytest.fixture
def served(serving: Served) -> Iterator[Served]:
    """The manifest is as it was when a test is over; the page reads it again each time."""
    manifest = serving.folder / "manifest.jsonl"
    before = manifest.read_bytes()
    yield serving
    manifest.write_bytes(before)


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": 1200, "height": 800}, color_scheme="light")
    page.on("console", lambda output: complaints.append(output.text) if output.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(served.url) else complaints.append(asked.url))
    page.goto(served.url)
    yield page
    page.close()
    assert [output for output in complaints if not output.startswith("data:")] == []


def _until_decoded(page: Page) -> None:
    """The page's policy allows no evaluated strings, which is how the driver would wait for a condition."""
    deadline = time.monotonic() + BOUND_S
    while not page.evaluate("state.pcm !== null"):
        assert time.monotonic() < deadline, "the clip was never decoded"
        page.wait_for_timeout(20)


def test_bound_is_dragged_nudged_and_saved_to_manifest(served: Served, page: Page) -> None:
    before = served.utterance("first")
    expect(page.locator("#name")).to_have_text("first")
    expect(page.locator("#text")).to_have_text("“the first <b>one</b>”")
    expect(page.locator("#reasons li").first).to_contain_text("known only to")
    expect(page.locator("#list button")).to_have_count(2)
    _until_decoded(page)
    held = page.evaluate("Array.from(state.pcm)")
    assert held == np.rint(read_clip(served.folder, before) * 32_768).astype(int).tolist()

    box = page.locator("#whole").bounding_box()
    assert box is not None
    start_x = box["x"] + before.speech_start_sample / before.samples * box["width"]
    page.mouse.move(start_x, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(start_x + 40, box["y"] + 100)
    page.mouse.up()
    moved = page.evaluate("state.start")
    assert moved == pytest.approx(before.speech_start_sample + 40 / box["width"] * before.samples, abs=40)

    page.locator("#whole").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("e")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("[state.start, state.end]") == [moved + 16 - 160, before.speech_end_sample - 16]
    page.keyboard.press("Enter")

    expect(page.locator("#message")).to_have_text("first saved")
    expect(page.locator("#name")).to_have_text("second")
    after = served.utterance("first")
    assert (after.speech_start_sample, after.speech_end_sample) == (moved + 16 - 160, before.speech_end_sample - 16)
    assert (after.reviewed, after.bounds_confidence_db, after.sha256) == (True, None, before.sha256)
    assert find_faults(served.folder) == ()


@pytest.mark.nightly
def test_nothing_can_be_saved_before_there_is_a_clip(served: Served, browser: Browser) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page = browser.new_page()
    page.route("**/clips", hold)
    with page.expect_request("**/clips"):
        page.goto(served.url)
    expect(page.locator("#save")).to_be_disabled()
    held[0].continue_()
    expect(page.locator("#save")).to_be_enabled()
    page.close()


@pytest.mark.nightly
def test_correct_bounds_are_accepted_unchanged_and_list_empties(served: Served, page: Page) -> None:
    def states() -> list[tuple[int, int, float | None, bool]]:
        utterances = [served.utterance(name) for name in ("first", "second")]
        return [(o.speech_start_sample, o.speech_end_sample, o.bounds_confidence_db, o.reviewed) for o in utterances]

    before = states()
    page.locator("#save").click()
    expect(page.locator("#message")).to_have_text("first saved")
    page.locator("#save").click()
    expect(page.locator("#message")).to_have_text("second saved; all clips are reviewed")
    expect(page.locator("#left")).to_have_text("0 of 2 to review")
    assert states() == [(*state[:3], True) for state in before]


@pytest.mark.nightly
def test_clip_or_only_speech_is_played_and_time_can_be_typed(served: Served, page: Page) -> None:
    page.evaluate(
        "() => { window.played = []; const start = AudioBufferSourceNode.prototype.start;"
        "AudioBufferSourceNode.prototype.start = function () { window.played.push(this.buffer.length);"
        " start.call(this); } }"
    )
    _until_decoded(page)
    page.locator("#play").click()
    page.locator("#whole").focus()
    page.keyboard.press(" ")
    first = served.utterance("first")
    assert page.evaluate("played") == [first.samples, first.speech_end_sample - first.speech_start_sample + 1]
    page.locator("#start").fill("123.5")
    page.locator("#start").press("Tab")
    assert page.evaluate("state.start") == round(0.1235 * RATE_HZ)
    page.locator("#reset").click()
    assert page.evaluate("state.start") == first.speech_start_sample
