"""The Turns page and the page of one turn by Streamlit's own test runner: what explains a search, and the next turn."""

import re
import time
from pathlib import Path

import pytest

from tests.unit.dashboard.opened_pages import html_of, opened, text_of
from tests.unit.dashboard.scenes import Scene, fill, turns_of

SEARCHED = "turns that are searched for against"


@pytest.mark.slow
def test_what_sets_the_turns_of_a_search_apart_stands_below_their_pictures(store: Path) -> None:
    scene = Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True, invalid_share=0.0)
    fill(store, scene)
    slow = sum(
        turn.first_audio_perf_ns - turn.speech_end_perf_ns >= 600_000_000
        for turn in turns_of(scene)
        if turn.first_audio_perf_ns is not None and turn.speech_end_perf_ns is not None
    )
    assert 0 < slow < 120
    text = text_of(opened("turns", from_ms="600"))
    (selected, others) = re.findall(rf"Which dimension explains it (\d+) {SEARCHED} (\d+) others", text)[0]
    assert (int(selected), int(selected) + int(others)) == (slow, 240)
    assert text.index("Distribution") < text.index("Which dimension explains it")
    # Of all turns there are no others.
    assert "Which dimension explains it" not in text_of(opened("turns"))


@pytest.mark.parametrize(
    ("index", "previous", "following"), [(0, None, 1), (1, 0, 2), (3, 2, None)], ids=["first", "middle", "last"]
)
def test_the_page_of_a_turn_leads_to_the_turns_before_and_after_it(
    store: Path, index: int, previous: int | None, following: int | None
) -> None:
    turns = fill(store, Scene(turns=8, newest_unix_ns=time.time_ns(), ended=True))
    trace = turns[4].trace_id
    app = opened("turn", trace=trace, turn=str(index), order="newest")
    (steps,) = re.findall(r'<nav class="vp vp-neighbors" aria-label="Turns of this call">(.*?)</nav>', html_of(app))
    links = dict(re.findall(r'<a href="([^"]*)" target="_self">(.*?)</a>', steps))
    assert links == {
        f"turns?trace={trace}&amp;turn={to}&amp;order=newest": label
        for to, label in ((previous, "← previous turn"), (following, "next turn →"))
        if to is not None
    }
    assert f"turn {index + 1} of 4 in this call" in text_of(app)
