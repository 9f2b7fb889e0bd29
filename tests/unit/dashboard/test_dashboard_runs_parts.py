"""Parts of the Runs page, and what its selectors narrow: what is listed, drawn and counted, ticked and offered."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import source
from dashboard.components import several_runs
from dashboard.source import ENV_RUNS, ENV_SLO, ENV_STORE
from loadtest.capacity.report import Capacity, LoadStep, StepStatus, capacity_object
from loadtest.run.json_file import write_json
from telemetry.model.errors import ConfigError
from telemetry.store.answers import Behavior, MetricStats
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunListing
from telemetry.store.run_folders.entries import EntryState, RunEntry
from telemetry.store.run_folders.places import CAPACITY_NAME
from tests.fixtures_turns import START_UNIX_NS, fill_store, synthetic_run
from tests.run_folders import HOUR_NS, MS, latency_run, run_folder
from tests.unit.dashboard.opened_pages import html_of, opened, text_of

SECOND = 1_000_000_000
TREND_ALT = "p95 of voice to voice from run to run"
FOREST_ALT = "Differences of the latencies from the baseline"
LOAD_ALT = "p50 and p95 of voice to voice against the calls in flight"


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The page of no place; a test says what is in the list, or which folder it is made from."""
    for name in (ENV_STORE, ENV_SLO):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ENV_RUNS, "[]")
    return monkeypatch


def ended(name: str, place: int, state: EntryState = "met") -> RunEntry:
    return RunEntry(run_id=name, store="store", state=state, began_unix_ns=START_UNIX_NS + place * HOUR_NS, p95_ns=5e8)


def listed(shows: pytest.MonkeyPatch, entries: list[RunEntry]) -> AppTest:
    """The page of these runs, of whose details nothing is known."""

    def details(entry: RunEntry) -> RunDetails:
        return RunDetails(entry.run_id)

    shows.setattr(source, "run_listing", lambda: RunListing(entries))
    shows.setattr(source, "details", details)
    return opened("runs")


def pictures(app: AppTest) -> list[str]:
    """What the pictures of a page say that they show."""
    return [element.proto.alt for element in app.get("vega_lite_chart")]


def rows_of(html: str) -> list[list[str]]:
    """The cells of each row below the head of a table."""
    found = re.findall(r"<tr>(.*?)</tr>", html.split("<tbody>", 1)[1])
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in found]


@pytest.mark.slow
def test_runs_that_were_asked_the_same_are_drawn_as_a_trend(shows: pytest.MonkeyPatch) -> None:
    entries = [ended("newest", 3, "under way"), ended("later", 1), ended("first", 0)]
    app = listed(shows, entries)
    assert sum(alt.startswith(TREND_ALT) for alt in pictures(app)) == 1
    unfit = "1 run in no trend: too few turns for a p95, or not included in the trend"
    assert f"p95 from run to run runs that were asked the same; {unfit}" in text_of(app)


def test_a_run_alone_is_no_trend(shows: pytest.MonkeyPatch) -> None:
    app = listed(shows, [ended("only", 0)])
    assert not [alt for alt in pictures(app) if alt.startswith(TREND_ALT)]
    assert "p95 from run to run" not in text_of(app)


def measured(callers: int, status: StepStatus, p95_ms: int) -> LoadStep:
    return LoadStep(
        callers=callers,
        run_ids=(f"run-{callers}",),
        turns=100,
        invalid=0,
        ok_share=1.0,
        voice_to_voice_ns=(float(p95_ms * MS),) * 100,
        verdicts=(),
        status=status,
        sure=True,
        measured_s=30.0,
    )


@pytest.mark.slow
def test_what_a_search_for_capacity_found_stands_above_its_steps(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    folder = run_folder(tmp_path, "search", latency_run("r-search", 20))
    shows.setenv(ENV_RUNS, json.dumps([str(tmp_path)]))
    assert "callers within its objectives" not in text_of(opened("runs"))
    found = Capacity(target="ws://x", steps=(measured(12, "met", 700), measured(16, "missed", 2000)), met=12, missed=16)
    write_json(folder / CAPACITY_NAME, capacity_object(found))  # as `voiceprobe capacity` does
    app = opened("runs")
    assert found.sentence
    assert found.sentence in text_of(app)
    (drawn,) = (each.proto for each in app.get("vega_lite_chart") if each.proto.alt.startswith(LOAD_ALT))
    assert '"capacity"' in drawn.spec


@pytest.mark.slow
def test_three_ticked_runs_are_two_comparisons_with_the_oldest(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    names = ("base", "next", "last")
    for place, name in enumerate(names):
        began = START_UNIX_NS + place * HOUR_NS
        run_folder(tmp_path, name, latency_run(f"r-{name}", 20, seed=place, began_unix_ns=began))
    shows.setenv(ENV_RUNS, json.dumps([str(tmp_path)]))
    app = opened("runs", ticked=json.dumps([f"{tmp_path / name / 'store'}#r-{name}" for name in names]))
    heads = re.findall(r'vp-compared"><h3>(.*?)</h3>', html_of(app))
    assert heads == ["next against base", "last against base"]
    labels = [each.label for each in app.expander if each.label.startswith("All figures:")]
    assert labels == [f"All figures: {head}" for head in heads]
    assert sum(alt.startswith(FOREST_ALT) for alt in pictures(app)) == 1


@pytest.mark.slow
def test_the_page_shows_barge_in_and_patience_of_its_runs(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    with StoreReader(fill_store(tmp_path, synthetic_run("r", 240))) as reader:
        known = reader.run_details("r")

    def details(entry: RunEntry) -> RunDetails:
        return {"r": known}[entry.run_id]

    shows.setattr(source, "run_listing", lambda: RunListing([ended("r", 0)]))
    shows.setattr(source, "details", details)
    app = opened("runs")
    assert "Barge-in and patience callers who interrupt a reply" in text_of(app)
    (table,) = (each.proto.body for each in app.get("html") if 'aria-label="barge-in and patience"' in each.proto.body)
    turns = [turn for turn in synthetic_run("r", 240).turns if turn.source == "client" and turn.outcome != "invalid"]
    gone = sum(turn.outcome == "abandoned" for turn in turns)
    assert gone
    ((name, barge_ins, *others, gave_up, between, _),) = rows_of(table)
    assert (name, barge_ins, others) == ("r", "none asked", ["–"] * 4)
    assert gave_up == f"{gone} of {len(turns)} turns"
    low, high = map(float, re.findall(r"([\d.]+) %", between))
    assert low < 100 * gone / len(turns) < high


def test_what_callers_did_stands_in_a_row_for_each_run() -> None:
    busy = RunDetails(
        "r-1",
        behavior=Behavior(40, 28, 4, 3, 5, 30),  # 35 whose end is known
        barge_in_stop=MetricStats("barge_in_stop", "ns", 40, 210.0 * MS, 480.0 * MS, None, 500.0 * MS),
        abandoned=5,
        eligible=200,
        abandoned_interval=(0.011, 0.057),
        waited_p50=2.5 * SECOND,
    )
    first, second = rows_of(several_runs.behavior([("<one>", busy), ("two", RunDetails("r-2"))]))
    assert first == [
        "&lt;one&gt;",
        "40",
        "75 %",
        "80 %",
        "210 ms",
        "480 ms",
        "5 of 200 turns",
        "1.1 % to 5.7 %",
        "2.5 s",
    ]
    assert second == ["two", "none asked", "–", "–", "–", "–", "0 of 0 turns", "–", "–"]


DAY_NS = 24 * 3_600 * 1_000_000_000
NOW_NS = time.time_ns()
WHOLE: dict[str, Any] = {"turns": 100, "p95_ns": 5e8, "missing_turns": 0, "calibrated_to_ms": 3.8, "users": 8}


def run(name: str, days_ago: float, **changes: Any) -> RunEntry:
    values: dict[str, Any] = {
        "state": "met",
        "began_unix_ns": NOW_NS - round(days_ago * DAY_NS),
        "target": "ws://a",
        "cohorts": ("A",),
        **WHOLE,
        **changes,
    }
    return RunEntry(run_id=name, store=name, **values)


NEWEST = run("newest", 0.5, cohorts=("A", "B"))
MISSED = run("missed", 3, state="missed", missing_turns=4)
OTHER = run("other", 4, target="ws://b", cohorts=("B",))
OLDEST = run("oldest", 50, calibrated_to_ms=None)
ALL = [NEWEST, MISSED, OTHER, OLDEST]


@pytest.fixture
def listed_shows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (ENV_STORE, ENV_SLO):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ENV_RUNS, "[]")
    monkeypatch.setattr(source, "details", lambda entry: RunDetails(entry.run_id))
    monkeypatch.setattr(source, "compared", lambda entries, _margin, _given: ())
    monkeypatch.setattr(source, "run_listing", lambda **_: RunListing(list(ALL)))
    return monkeypatch


def names(app: AppTest) -> list[str]:
    return list(app.dataframe[0].value["run"]) if app.dataframe else []


def ticked(*entries: RunEntry) -> str:
    return json.dumps([each.reference for each in entries])


def chip(app: AppTest) -> str:
    (found,) = [each.proto.popover.label for each in app.get("popover") if not each.proto.popover.label.startswith("F")]
    return str(found)


@pytest.mark.parametrize(
    ("link", "listed"),
    [
        ({}, ["newest", "missed", "other", "oldest"]),
        ({"began": "1d"}, ["newest"]),
        ({"began": "7d", "target": "ws://a"}, ["newest", "missed"]),
        ({"cohort": "B"}, ["newest", "other"]),
        ({"state": "missed"}, ["missed"]),
        ({"callers": "9"}, []),
    ],
)
def test_the_link_says_which_runs_are_listed(
    listed_shows: pytest.MonkeyPatch, link: dict[str, str], listed: list[str]
) -> None:
    app = opened("runs", **link)
    assert names(app) == listed
    text = text_of(app)
    assert ("All runs" in text) == (not link)
    assert ("Runs that match the filter" in text) == bool(link and listed)
    assert ("No run matches the filter" in text) == (not listed)


def test_the_head_the_trend_and_the_newest_run_are_of_what_is_listed(listed_shows: pytest.MonkeyPatch) -> None:
    whole, some = opened("runs"), opened("runs", target="ws://a", state="met", began="28d")
    assert chip(whole) == "✕ valid · telemetry lost in 1 of 4 runs · 3 of 4 runs calibrated"
    assert chip(some) == "✓ valid · telemetry complete · calibrated ± 3.8 ms"
    assert "4 runs" in text_of(whole)
    assert "400 turns" in text_of(whole)
    assert "1 of 4 runs" in text_of(some)
    assert "Under their own conditions newest" in text_of(some)
    assert "Under their own conditions other" in text_of(opened("runs", target="ws://b"))
    assert "p95 from run to run" in text_of(whole)
    assert "p95 from run to run" not in text_of(some)


def test_selectors_offer_what_occurs_in_all_runs(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", target="ws://b", state="failed")
    assert app.selectbox(key="choice_began").label == "Time"
    assert app.selectbox(key="choice_cohort").options == ["every cohort", "A", "B"]
    assert app.selectbox(key="choice_target").options == ["any target", "ws://a", "ws://b"]
    assert app.selectbox(key="choice_state").options == ["any state", "met", "missed", "failed"]
    assert "Filters (2)" in [each.proto.popover.label for each in app.get("popover")]
    app.selectbox(key="choice_state").select("").run()
    assert not app.exception
    assert app.query_params == {"target": "ws://b"}
    assert names(app) == ["other"]


@pytest.mark.slow
def test_a_run_that_is_ticked_stays_so_when_the_filter_leaves_it_out(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", cohort="B", ticked=ticked(MISSED, NEWEST))
    text = text_of(app)
    assert names(app) == ["newest", "other"]
    sentence = "The filter leaves out 1 ticked run, which is shown below all the same: missed. Widen it to untick it."
    assert sentence in text
    assert "Compared" in text
    assert "Under their own conditions missed, newest" in text
    both = text_of(opened("runs", began="1d", ticked=ticked(MISSED, OTHER)))
    assert "The filter leaves out 2 ticked runs, which are shown below all the same: other, missed." in both
    assert "leaves out" not in text_of(opened("runs", ticked=ticked(MISSED, NEWEST)))


def test_where_no_run_matches_the_page_says_how_to_widen(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", callers="9", ticked=ticked(MISSED))
    text = text_of(app)
    assert "No run matches the filter There are 4 runs without it: widen the filter above, or show every run ." in text
    assert "ticked run, which is shown below all the same: missed" in text
    assert "Under their own conditions missed" in text
    (link,) = [part.partition('"')[0] for part in html_of(app).split('href="')[1:] if part.startswith("runs?")]
    assert "callers" not in link
    assert link.startswith("runs?ticked=")
    assert len(app.get("popover")) == 1, "no chip for no run"
    alone = text_of(opened("runs", callers="9"))
    assert "Tick two runs" not in alone
    assert "Under their own conditions" not in alone


def test_a_value_that_cannot_be_meant_is_left_out_with_a_sentence(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", began="soon", state="bad")
    assert names(app) == [each.run_id for each in ALL]
    text = text_of(app)
    assert "the link asks for began 'soon', not one of 1d, 7d, 28d, 90d: left out" in text
    assert "the link asks for state 'bad'" in text


def test_runs_whose_cohorts_are_not_known_are_not_left_out_silently(listed_shows: pytest.MonkeyPatch) -> None:
    old = run("old", 1, cohorts=None)
    listed_shows.setattr(source, "run_listing", lambda **_: RunListing([*ALL, old]))
    assert "The cohorts of 1 run are not known: not in the list." in text_of(opened("runs", cohort="B"))
    assert "are not known" not in text_of(opened("runs"))


def test_a_list_without_a_run_has_its_selectors_and_one_that_fails_has_none(listed_shows: pytest.MonkeyPatch) -> None:
    listed_shows.setattr(source, "run_listing", lambda **_: RunListing([]))
    app = opened("runs", cohort="B")
    assert "No runs yet" in text_of(app)
    assert app.selectbox(key="choice_cohort").value == "B"

    def fails(**_: object) -> RunListing:
        raise ConfigError("runs", ["no folder"])

    listed_shows.setattr(source, "run_listing", fails)
    app = opened("runs")
    assert "The runs cannot be listed" in text_of(app)
    assert not app.selectbox
