"""The parts of the Runs page around its list: trends, what a search for capacity found, comparisons, behavior."""

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import runs_source, runs_tables
from dashboard.source_names import ENV_RUNS, ENV_SLO, ENV_STORE
from loadtest.capacity.report import Capacity, LoadStep, StepStatus, capacity_object
from loadtest.run.json_file import write_json
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
    monkeypatch.setattr(runs_source, "_offered", runs_source._Offered())
    return monkeypatch


def ended(name: str, place: int, state: EntryState = "met") -> RunEntry:
    return RunEntry(run_id=name, store="store", state=state, began_unix_ns=START_UNIX_NS + place * HOUR_NS, p95_ns=5e8)


def listed(shows: pytest.MonkeyPatch, entries: list[RunEntry]) -> AppTest:
    """The page of these runs, of whose details nothing is known."""

    def details(entry: RunEntry) -> RunDetails:
        return RunDetails(entry.run_id)

    shows.setattr(runs_source, "run_listing", lambda: RunListing(entries))
    shows.setattr(runs_source, "details", details)
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
    unfit = "1 run in no trend: too few turns for a p95, or nothing is claimed of them"
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

    shows.setattr(runs_source, "run_listing", lambda: RunListing([ended("r", 0)]))
    shows.setattr(runs_source, "details", details)
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
    first, second = rows_of(runs_tables.behavior([("<one>", busy), ("two", RunDetails("r-2"))]))
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
