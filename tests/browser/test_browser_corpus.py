"""The page of a corpus in a real browser: pictures are seen, and clips can be played."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from corpora.manifest.library import BUNDLED, open_corpus
from corpora.rendering.profiles.parsing import profile_from_text
from corpora.reports.gather import choose, gather
from corpora.reports.page import page

DURATION = "document.querySelectorAll('audio')[{}].duration"


@pytest.mark.browser
def test_the_page_of_a_corpus_shows_and_plays_its_clips(browser: Browser, tmp_path: Path) -> None:
    corpus = open_corpus(BUNDLED)
    chosen = choose(corpus, ("home-stop",), 0)
    file = tmp_path / "page.html"
    file.write_text(page(gather(corpus, chosen, [profile_from_text("noise=babble snr=10 channel=telephone")])))
    seen = browser.new_page(viewport={"width": 1200, "height": 1600})
    faults: list[str] = []
    seen.on("pageerror", lambda error: faults.append(str(error)))
    seen.goto(file.as_uri())
    assert seen.evaluate("Array.from(document.images).every(image => image.naturalWidth > 200)")
    assert seen.locator("audio").count() == 2
    for number in range(2):
        seen.evaluate(f"document.querySelectorAll('audio')[{number}].preload = 'auto'")
        seen.evaluate(f"document.querySelectorAll('audio')[{number}].load()")
        seen.wait_for_function(f"{DURATION.format(number)} > 0")
        lasts_s = seen.evaluate(DURATION.format(number))
        assert lasts_s == pytest.approx(chosen[0].samples / chosen[0].sample_rate_hz, abs=0.01)
    assert seen.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert faults == []
