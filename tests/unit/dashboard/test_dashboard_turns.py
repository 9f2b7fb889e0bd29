"""The pages of turns and of one turn: the list, the heat map, the waterfall, the player, what was kept."""

import re
from pathlib import Path

import altair as alt
import msgspec
import pytest

from dashboard import charts as turn_charts
from dashboard.components import one_turn
from dashboard.descriptions import time_of_day
from dashboard.links import Choice, TurnsChoice
from dashboard.pages import turns
from dashboard.player.turn_player import call_data, call_table, turn_data
from telemetry.charts import turns as charts
from telemetry.charts.drawing import LIGHT
from telemetry.model.waterfall import waterfall
from telemetry.store.questions.pages import ViewHead
from telemetry.store.questions.turns import EDGES_MS, FoundWords, HeatCell, ListedTurn, TurnsAnswer, calls_turns
from telemetry.store.recordings.excerpt import CallExcerpt
from telemetry.store.recordings.kept_call import KeptTurn, PartialText
from tests.unit.dashboard.opened_pages import html_of, opened, text_of
from tests.unit.dashboard.scenes import MS, S, Scene, turns_of

NOW = 1_800_000_000 * S
GONE = {"first_audio_perf_ns": None, "reply_end_perf_ns": None}
HOSTILE = "<img src=x onerror=alert(1)>"
ROW = ListedTurn("ab" * 16, 2, "call-1", NOW, "ok", 812 * MS, utterance_id=HOSTILE, cohort="A", model=HOSTILE)
CELLS = (HeatCell(NOW, 6, 3), HeatCell(NOW + 10 * S, 9, 1))
COUNTS = tuple({6: 3, 9: 1}.get(band, 0) for band in range(len(EDGES_MS) + 1))
ANSWER = TurnsAnswer(
    ViewHead(()), 60, 4, 10 * S, CELLS, COUNTS, (ROW,), (ROW,), page=1, pages=3, words=FoundWords(7), values={}
)


def test_every_row_links_to_turn_with_filters_and_escapes_names() -> None:
    html = turns.turns_table([ROW], Choice(run="r", cohort="A"), TurnsChoice(order="newest"), time_of_day)
    assert f"turns?run=r&amp;cohort=A&amp;trace={'ab' * 16}&amp;turn=2&amp;order=newest" in html
    assert HOSTILE not in html
    assert "&lt;img" in html


def test_pages_are_links_and_the_ends_are_none() -> None:
    html = turns.pages(ANSWER, Choice(), TurnsChoice(at_page=1, find="x"))
    assert "page 2 of 3" in html
    assert 'href="turns?find=x"' in html
    assert 'href="turns?find=x&amp;at_page=2"' in html
    alone = TurnsAnswer(ViewHead(()), 3, pages=1)
    assert turns.pages(alone, Choice(), TurnsChoice()) == ""


def test_each_narrowing_can_be_taken_away_alone() -> None:
    html = turns.narrowed(ANSWER, Choice(), TurnsChoice(HOSTILE, outcome="ok", from_ms=500, below_ms=600), time_of_day)
    assert html.count("<a ") == 3
    assert HOSTILE not in html
    assert "7 kept calls were searched" in html
    assert "from 500 ms below 600 ms" in html


def test_heat_map_has_every_cell_and_slowest_turns_as_points() -> None:
    rows = turn_charts.heat_map(ANSWER).rows
    assert [(row["band"], row["n"]) for row in rows if row["n"]] == [("300 ms to 400 ms", 3), ("600 ms to 700 ms", 1)]
    (point,) = (row for row in rows if row["trace"])
    assert (point["band"], point["value"], point["turn"]) == ("800 ms to 900 ms", "812 ms", 2)
    assert turn_charts.shown_bands(ANSWER) == [9, 8, 7, 6]
    assert turn_charts.band_label(0) == "before the end of speech"
    assert turn_charts.band_label(len(EDGES_MS)) == "from 60 s"
    assert len(turn_charts.heat_map(ANSWER).table.rows) == 2
    table = turn_charts.heat_map(ANSWER, link=lambda cell: f"./turns?from_ms=<{cell.band}>").table
    assert turn_charts.table_html(table).count('<th scope="row"><a href="./turns?from_ms=&lt;') == 2
    assert "<a " not in turn_charts.table_html(turn_charts.heat_map(ANSWER).table)
    for spec in (turn_charts.heat_map(ANSWER).spec, turn_charts.distribution(ANSWER).spec):
        alt.LayerChart.from_dict(spec | {"data": {"name": "rows"}})
    every = [turn_charts.band_label(band) for band in range(len(EDGES_MS), -1, -1)]
    for spec in (charts.heat_map(every, LIGHT), charts.distribution(every, LIGHT)):
        assert spec["height"] >= 14 * len(every), "the name of each band has a line of its own"
    assert [row["share"] for row in turn_charts.distribution(ANSWER).rows] == ["25 %", "0 %", "0 %", "75 %"]


def test_the_call_is_on_one_clock_with_links_to_its_turns() -> None:
    turns = [turn for turn in turns_of(Scene(4, NOW)) if turn.source == "client"]
    call, trace = calls_turns(turns), turns[0].trace_id
    html = one_turn.call_strip(call, trace, 1, Choice(run="r"))
    assert html.count("<li ") == 4
    assert html.count('aria-current="page"') == 1
    assert f"turns?run=r&amp;trace={trace}&amp;turn=3" in html
    steps = one_turn.neighbors(call, trace, 0, Choice())
    assert "turn 1 of 4" in steps
    assert 'aria-disabled="true">← previous turn' in steps
    assert f"trace={trace}&amp;turn=1" in steps


def test_player_gets_waterfall_and_audio_on_one_clock() -> None:
    turn = next(turn for turn in turns_of(Scene(4, NOW)) if turn.source == "client")
    assert turn.speech_end_perf_ns is not None
    begin, end = turn.started_perf_ns, turn.speech_end_perf_ns + 3 * S
    kept = CallExcerpt(first_perf_ns=begin, end_perf_ns=end, peaks=((0.0, 1.0), (0.5, 0.0)), audio=b"fLaC")
    data = turn_data(waterfall(turn, None), kept, turn.speech_end_perf_ns, key="k")
    assert data["end_ms"] == 3_000
    assert data["first_ms"] == (begin - turn.speech_end_perf_ns) / MS
    low, high = data["whole"]
    assert low <= data["first_ms"] < data["end_ms"] <= high
    assert [line["name"] for line in data["lines"]][-1] == "events"
    (speech,) = data["lines"][0]["bars"]
    assert speech["to"] == 0
    call = call_data(calls_turns([turn]), kept, turn, key="k")
    (spoken,) = call["lines"][0]["bars"]
    # Both pictures draw the same moment at the same distance from the beginning of the audio.
    assert spoken["to"] - call["first_ms"] == pytest.approx(speech["to"] - data["first_ms"])


def test_the_figures_of_a_whole_call_are_a_table() -> None:
    turns = [turn for turn in turns_of(Scene(4, NOW)) if turn.source == "client"]
    table = call_table(calls_turns([*turns[:3], msgspec.structs.replace(turns[3], outcome="timeout", **GONE)]))
    assert [row[0] for row in table.rows] == ["turn 1", "turn 2", "turn 3", "turn 4"]
    first, last = table.rows[0], table.rows[3]
    wait = (turns[0].first_audio_perf_ns or 0) - (turns[0].speech_end_perf_ns or 0)
    assert first[3] == f"{wait / MS:.0f} ms"
    assert last[3:] == ("timed out", "–")


def test_words_and_what_was_kept_are_shown() -> None:
    kept = KeptTurn(
        turn_index=0,
        started_perf_ns=0,
        ended_perf_ns=1,
        asked=HOSTILE,
        reply="yes",
        partials=(PartialText(5 * MS, "h"),),
    )
    html = one_turn.words(None, CallExcerpt(turn=kept))
    assert HOSTILE not in html
    assert "yes" in html
    assert "1 partial transcript<" in html
    assert one_turn.words(None, None) == ""
    assert "--keep-audio" in one_turn.notices(None, None)
    assert "<code>/srv/&lt;b&gt;</code>" in one_turn.notices(None, "/srv/<b>")
    notice = one_turn.notices(CallExcerpt(fault="a.flac: is missing", note="x", expires_unix_ns=NOW), None)
    assert "a.flac: is missing" in notice
    assert "Kept until 15 Jan 2027 08:00 UTC" in notice


SEARCHED = "turns that are searched for against"


@pytest.mark.slow
def test_explanation_of_searched_turns_is_below_their_pictures(full: Path, full_scene: Scene) -> None:
    slow = sum(
        turn.first_audio_perf_ns - turn.speech_end_perf_ns >= 600_000_000
        for turn in turns_of(full_scene)
        if turn.first_audio_perf_ns is not None and turn.speech_end_perf_ns is not None
    )
    assert 0 < slow < 120
    text = text_of(opened("turns", from_ms="600"))
    (selected, others) = re.findall(rf"Which dimension explains it (\d+) {SEARCHED} (\d+) others", text)[0]
    assert (int(selected), int(selected) + int(others)) == (slow, 240)
    assert text.index("Distribution") < text.index("Which dimension explains it")
    # Of all turns there are no others.
    assert "Which dimension explains it" not in text_of(opened("turns"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "previous", "following"), [(0, None, 1), (1, 0, 2), (3, 2, None)], ids=["first", "middle", "last"]
)
@pytest.mark.usefixtures("full")
def test_turn_page_links_to_previous_and_next_turn(
    full_scene: Scene, index: int, previous: int | None, following: int | None
) -> None:
    trace = turns_of(full_scene)[4].trace_id
    app = opened("turn", trace=trace, turn=str(index), order="newest")
    (steps,) = re.findall(r'<nav class="vp vp-neighbors" aria-label="Turns of this call">(.*?)</nav>', html_of(app))
    links = dict(re.findall(r'<a href="([^"]*)" target="_self">(.*?)</a>', steps))
    assert links == {
        f"turns?trace={trace}&amp;turn={to}&amp;order=newest": label
        for to, label in ((previous, "← previous turn"), (following, "next turn →"))
        if to is not None
    }
    assert f"turn {index + 1} of 4 in this call" in text_of(app)
